"""Compare every file of a data folder with the digests that preprocessing wrote into ``corpus.json``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.command import run_command
from fairseq_poolingformer.text.data_folder import check_folder


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(
        prog="poolingformer-preprocess check",
        description="Read every file of data folders whole and compare it with its digest. Training and prediction "
        "check small files whenever they open them, but of a large file its size and a sample only.",
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", type=Path, help="a data folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 1 where a file is damaged."""
    return run_command(make_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> None:
    for folder in args.folders:
        count, problems = check_folder(folder)
        if problems:
            raise ValueError("\n".join(problems))
        print(f"{folder}: {count} files as they were written")


if __name__ == "__main__":
    sys.exit(main())

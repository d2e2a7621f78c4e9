"""``poolingformer preprocess CORPUS``: runs the command of one corpus, lists the corpora, or checks data folders."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.command import did_you_mean, output_for_a_while, run_command, saying_what_is_missing
from fairseq_poolingformer.options import take_user_dir
from fairseq_poolingformer.tasks.registry import corpora
from fairseq_poolingformer.text.data_folder import check_folder


def usage() -> str:
    """The list of corpora."""
    texts = {name: task.corpora[name] for name, task in corpora().items()}
    width = max(map(len, texts))
    lines = "\n".join(f"  {name:{width}}  {text}" for name, text in texts.items())
    return (
        "usage: poolingformer preprocess CORPUS [options]\n\n"
        f"Make a data folder that fairseq trains on. Corpora:\n\n{lines}\n\n"
        "poolingformer preprocess CORPUS --help lists the options of each.\n"
        "poolingformer preprocess check FOLDER compares the files of a data folder with their digests.\n"
        "--user-dir DIR before all that adds the corpora of tasks of your own."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    name, *options = take_user_dir(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        with output_for_a_while():
            print(usage())
        return 0
    if name not in (known := ["check", *corpora()]):
        similar = did_you_mean(name, known) or "; poolingformer preprocess --help lists them"
        print(f"poolingformer preprocess: error: {name}: no such corpus{similar}", file=sys.stderr)
        return 2
    if name == "check":
        return run_command(make_check_parser(), _check, options)
    with saying_what_is_missing("poolingformer preprocess"):
        command = corpora()[name].command(name)
    return command.main(options)


def make_check_parser() -> argparse.ArgumentParser:
    """Return the parser of ``check``, which compares every file of a data folder with its digest in ``corpus.json``."""
    parser = argparse.ArgumentParser(
        prog="poolingformer preprocess check",
        description="Read every file of data folders whole and compare it with its digest. Training and prediction "
        "check small files whenever they open them, but of a large file its size only.",
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", type=Path, help="a data folder")
    return parser


def _check(args: argparse.Namespace) -> None:
    for folder in args.folders:
        count, problems = check_folder(folder)
        if problems:
            raise ValueError("\n".join(problems))
        print(f"{folder}: {count} files as they were written")


if __name__ == "__main__":
    sys.exit(main())

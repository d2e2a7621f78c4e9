"""Write passages of documents that come twice, from which a small model learns to copy, as evidence/sources.py does.

    PYTHONPATH=. python run_scripts/rfc/twice.py DOCUMENTS.txt TWICE.txt [--passages 40000]

Documents have blank lines between them, as --write-text of poolingformer-preprocess rfc leaves them.
"""

import argparse
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fairseq_poolingformer.text.whole_file import write_lines
from run_scripts.evidence.sources import twice


def passages(documents: Path) -> Iterator[str]:
    """The passages of every paragraph in the file's order, with a blank line after each."""
    rng = random.Random("twice")
    with open(documents, encoding="utf-8") as lines:
        for line in lines:
            yield from (f"{passage}\n" for passage in twice(line, rng))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("documents", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--passages", type=int, default=40000, metavar="N", help="write the first N (default: 40000)")
    args = parser.parse_args()
    write_lines(args.output, islice(passages(args.documents), args.passages))


if __name__ == "__main__":
    main()

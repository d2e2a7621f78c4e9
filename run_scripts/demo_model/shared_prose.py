"""Write preprocess/prose.txt: digests of the sentences that the docstrings of several Pythons' libraries share.

    python run_scripts/demo_model/shared_prose.py LIBRARY LIBRARY …

Run it with the newest of these Pythons, whose parser reads the libraries of the others. The first library decides on
the order and, by its modules, on what is held out. Packages that distributions leave out are not read.
"""

import argparse
from pathlib import Path

from fairseq_poolingformer.preprocess.facts import DIGITS, PROSE, digest, find_modules, is_held_out, read_prose

LEFT_OUT = {"ensurepip", "idlelib", "lib2to3", "tkinter"}


def shared_sentences(libraries: list[Path]) -> tuple[list[str], list[str]]:
    """The sentences for training and those held out, none of which is among the former."""
    sides: tuple[dict[str, None], dict[str, None]] = ({}, {})
    for name, path in find_modules(libraries[0]):
        if name.split(".")[0] not in LEFT_OUT:
            sides[is_held_out(name)].update(dict.fromkeys(read_prose(path)))
    shared = set.intersection(
        *({sentence for _, path in find_modules(library) for sentence in read_prose(path)} for library in libraries)
    )
    train = [sentence for sentence in sides[0] if sentence in shared]
    return train, [sentence for sentence in sides[1] if sentence in shared and sentence not in sides[0]]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("libraries", nargs="+", type=Path, metavar="LIBRARY", help="a folder such as lib/python3.12")
    parser.add_argument("--output", type=Path, default=PROSE, help="(default: %(default)s)")
    args = parser.parse_args()
    sides = [[digest(sentence)[:DIGITS] for sentence in side] for side in shared_sentences(args.libraries)]
    if len({*sides[0], *sides[1]}) < sum(map(len, sides)):
        parser.error(f"two sentences have one digest of {DIGITS} digits")
    args.output.write_text("\n\n".join("\n".join(side) for side in sides) + "\n", encoding="ascii")
    print(f"{args.output}: {len(sides[0]):,} sentences for training, {len(sides[1]):,} held out")


if __name__ == "__main__":
    main()

"""Write the sources of Python's own library as running text, a line for each module: real text on every machine.

    python run_scripts/evidence/sources.py OUTPUT_FOLDER

A space comes between words and punctuation, so that a name is a word wherever it is used; ends of lines and indents
are left out. One package in ten is in valid.txt, with all its modules: its names are hardly ever in train.txt.
twice.txt has train.txt's text in passages of 10 to 24 words that come twice, with up to 14 other words between.
"""

from __future__ import annotations

import argparse
import random
import re
import sysconfig
import tokenize
from pathlib import Path

from fairseq_poolingformer.preprocess.facts import find_modules, is_held_out

from fairseq_poolingformer.text.atomic_write import atomic_write

MIN_WORDS = 400  # of a module; in shorter ones nothing is far away


def running_text(source: str) -> str:
    """The words and the runs of punctuation of a source, with a space between them."""
    return " ".join(re.findall(r"\w+|[^\w\s]+", source))


def is_valid(module: str) -> bool:
    """Whether a module is in valid.txt, which its package decides."""
    return is_held_out(module.split(".")[0])


def twice(text: str, rng: random.Random) -> list[str]:
    """All passages of a text, each followed by some of the next words and by itself again."""
    words, passages, at = text.split(), [], 0
    while at + 40 <= len(words):
        passage, between = rng.randint(10, 24), rng.randint(0, 14)
        end = at + passage
        passages.append(" ".join(words[at : end + between] + words[at:end]))
        at = end + between
    return passages


def write_corpus(root: Path, output: Path) -> dict[str, int]:
    """Write train.txt, valid.txt and twice.txt, documents with a blank line between them."""
    lines: dict[str, list[str]] = {"train": [], "valid": []}
    for module, path in find_modules(root):
        try:
            with tokenize.open(path) as file:
                text = running_text(file.read())
        except (OSError, SyntaxError, UnicodeDecodeError):  # SyntaxError: the source names an unknown encoding
            continue
        if text.count(" ") >= MIN_WORDS:
            lines["valid" if is_valid(module) else "train"].append(text)
    rng = random.Random("twice")
    lines["twice"] = [passage for text in lines["train"] for passage in twice(text, rng)]
    output.mkdir(parents=True, exist_ok=True)
    for split, texts in lines.items():
        with atomic_write(output / f"{split}.txt") as path:
            path.write_text("\n\n".join(texts), encoding="utf-8")
    return {split: len(texts) for split, texts in lines.items()}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_path("stdlib")), help="default: this Python's")
    args = parser.parse_args()
    print(", ".join(f"{split} {count}" for split, count in write_corpus(args.root, args.output_folder).items()))


if __name__ == "__main__":
    main()

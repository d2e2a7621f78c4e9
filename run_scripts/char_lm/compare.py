"""A table of bits per character: of runs, and as published.

usage: compare.py NAME=FILE.json NAME=PUBLISHED …
"""

import json
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Prints a line for each name: what its evaluation says, and the number that was published."""
    rows: dict[str, list[str]] = {}
    for argument in arguments:
        name, value = argument.split("=", 1)
        row = rows.setdefault(name, ["-", "-"])
        if not value.endswith(".json"):
            row[1] = value
        elif Path(value).is_file():
            row[0] = f"{json.loads(Path(value).read_text(encoding='utf-8'))['bpc']:.4f}"
    width = max(map(len, rows), default=0)
    print(f"{'':{width}}  this run  published")
    for name, (own, published) in rows.items():
        print(f"{name:{width}}  {own:>8}  {published:>9}")


if __name__ == "__main__":
    main(sys.argv[1:])

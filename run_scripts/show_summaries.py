"""Generated summaries beside their references.

python run_scripts/show_summaries.py hypotheses.txt references.txt [--ids data/test.id.txt] [--count 3]
"""

import argparse
import sys
import textwrap
from pathlib import Path


def show(hypotheses: list[str], references: list[str], names: list[str], count: int, width: int = 80) -> str:
    """Lay out ``count`` examples from all parts of the list."""
    chosen = [index * len(hypotheses) // count for index in range(min(count, len(hypotheses)))]
    lines = []
    for index in chosen:
        lines.append(names[index])
        for label, text in (("reference", references[index]), ("summary", hypotheses[index])):
            label = f"  {label:<10} "
            lines += textwrap.wrap(text, width, initial_indent=label, subsequent_indent=" " * len(label)) or [label]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("hypotheses", type=Path, help="one per line")
    parser.add_argument("references", type=Path, help="one per line, in the same order")
    parser.add_argument("--ids", type=Path, help="the documents' names, one per line, in the same order")
    parser.add_argument("--count", type=int, default=3, help="examples to show (default: %(default)s)")
    args = parser.parse_args()
    hypotheses, references = (
        path.read_text(encoding="utf-8").split("\n")[:-1] for path in (args.hypotheses, args.references)
    )
    if len(hypotheses) != len(references):
        parser.error(f"{len(hypotheses)} hypotheses but {len(references)} references")
    if args.ids:
        names = args.ids.read_text(encoding="utf-8").split("\n")
    else:
        names = [f"example {index}" for index in range(len(hypotheses))]
    print(show(hypotheses, references, names, args.count))
    return 0


if __name__ == "__main__":
    sys.exit(main())

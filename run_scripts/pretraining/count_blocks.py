"""Prints the number of blocks in an epoch of masked language modeling.

python run_scripts/pretraining/count_blocks.py DATA [--max-positions 4096] [--document-blocks separate]
"""

import argparse
from pathlib import Path

from fairseq_poolingformer.text.document_blocks import cut_into_blocks
from fairseq_poolingformer.text.sequences import Sequences


def main() -> None:
    """Run the command; its flags are the task's."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--max-positions", type=int, default=4096)
    parser.add_argument("--document-blocks", choices=("separate", "pack"), default="separate")
    args = parser.parse_args()
    blocks = cut_into_blocks(
        Sequences(args.data / "train").bounds,
        max_tokens=args.max_positions,
        pack=args.document_blocks == "pack",
    )
    print(len(blocks))


if __name__ == "__main__":
    main()

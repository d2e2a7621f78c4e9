"""A random choice of a split's examples as a split of its own, SPLIT-few, and their documents and summaries as text.

    python run_scripts/few_examples.py DATA N SPLIT [SPLIT …]

For a quick look at a model: fairseq generates for a whole split only, and the lead baseline needs documents as text.
The first examples would not do, because many corpora are sorted, and these would then be the shortest or the oldest.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text import tokenizers
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.dictionary import smallest_dtype
from fairseq_poolingformer.text.sequences import SequencesWriter


def cut(data: Path, split: str, count: int, seed: int) -> int:
    """Write ``count`` examples of a split, or all if it has fewer; returns how many."""
    folder, few = DataFolder(data, PAIRS), f"{split}-few"
    tokenizer = tokenizers.load_tokenizer(data)
    for array, name in zip(PAIRS.ids, ("document", "summary"), strict=True):
        sequences = folder.sequences(split, array)
        places = np.sort(np.random.default_rng(seed).permutation(len(sequences))[:count])
        chosen = [sequences[index] for index in places]
        with SequencesWriter(folder.array_path(few, array), smallest_dtype(len(tokenizer))) as writer:
            for sequence in chosen:
                writer.append(sequence)
        texts = map(tokenizer.decode, chosen)
        write_lines(folder.text_path(few, name), (" ".join(text.split()) for text in texts))
    ids = folder.text(split, "id").read_text(encoding="utf-8").split("\n")
    write_lines(folder.text_path(few, "id"), (ids[place] for place in places))
    return len(chosen)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="a data folder that preprocessing made")
    parser.add_argument("count", type=int, help="number of examples")
    parser.add_argument("splits", nargs="+", help="train, valid or test")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice (default: %(default)s)")
    args = parser.parse_args()
    if args.count < 1:
        parser.error(f"N {args.count}: must be 1 or more")
    for split in args.splits:
        print(f"{split}-few: {cut(args.data, split, args.count, args.seed)} examples")
    return 0


if __name__ == "__main__":
    sys.exit(main())

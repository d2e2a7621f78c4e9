"""Does the reader read? The share of facts that it has right, of short documents with names that it never saw.

    python run_scripts/reader/probe.py [--folder DIR] [--count 100]

Documents are like those that pretraining ends with; names and prose are the ones held out.
"""

import argparse
import sys
from pathlib import Path
from random import Random

from count_facts import shares_right
from fairseq_poolingformer.preprocess.facts import DocumentMaker, Shape
from pretrain import STAGES

from fairseq_poolingformer.models.shipped_reader import FOLDER, load_reader
from fairseq_poolingformer.preprocess import facts


def probe(folder: Path, shape: Shape, count: int) -> dict[str, float]:
    """The shares of facts right, by field and of ``all``, in summaries of ``count`` documents."""
    maker = DocumentMaker(facts.read_sentences(is_held_out=True), True, shape)
    documents = [maker.make(Random(f"probe {number}")) for number in range(count)]
    hub = load_reader(folder)
    summaries = hub.summarize([one.text for one in documents], max_length=80, batch_size=20, beam=1)
    shares = shares_right(summaries, [one.summary for one in documents])
    return {name: share for name, (share, _) in shares.items()}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the reader (default: the one that is shipped)")
    parser.add_argument("--count", type=int, default=100, help="documents (default: %(default)s)")
    args = parser.parse_args()
    for number, (shape, _) in enumerate(STAGES, 1):
        shares = probe(args.folder, shape, args.count)
        print(
            f"documents of stage {number}:", ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

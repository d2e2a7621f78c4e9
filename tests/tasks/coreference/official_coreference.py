"""Documents with chains of mentions as the official scorer of CoNLL-2012 reads them.

``fixtures/official_coreference.json`` has its counts for random ones: scorer.pl of
github.com/conll/reference-coreference-scorers, version 8.01, of each document by itself.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.coreference.data import write_document

METRICS = ("muc", "b_cubed", "ceaf_e")

Clusters = list[list[tuple[int, int]]]


def crosses(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[0] < right[0] < left[1] < right[1] or right[0] < left[0] < right[1] < left[1]


def write(path: Path, chains: Sequence[Clusters], words: int = 24) -> None:
    """Write documents ``(case/N); part 000`` that have these chains."""
    lines = [
        f"{line}\n"
        for number, clusters in enumerate(chains)
        for line in write_document(f"(case/{number}); part 000", ["word"] * words, [words // 2] * 2, clusters)
    ]
    path.write_text("".join(lines), encoding="utf-8")

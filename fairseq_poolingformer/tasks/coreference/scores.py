"""The official figures of coreference for files in the column format of CoNLL-2012."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.coreference.conll import SCORED_COLUMNS, ConllDocument, parse_document, split_documents
from fairseq_poolingformer.tasks.coreference.metrics import CoreferenceScore, score_document
from fairseq_poolingformer.text.json_lines import BadLine

MAX_REPEATED = 10  # of more, the official scorer holds the response for wrong and refuses it


def score(gold: Sequence[Path], predictions: Path) -> dict[str, float]:
    """Compute the figures that the official scorer prints, times 100 and unrounded.

    As in the official scorer, a document without a prediction has no predicted mentions, and predictions for
    other documents do not count. The official one cuts figures after two decimals.

    Args:
        gold: released files.
        predictions: a file of predictions.

    Returns:
        ``conll_f1``, the mean of the three F1; then F1, recall and precision of MUC, B³, CEAF-φ₄ and of the mentions
        alone.

    Raises:
        ValueError: a file cannot be read, a document occurs twice or its words differ, or too many predicted mentions
            are repeated.
    """
    key = read_files(gold)
    response = read_files([predictions])
    if not key.keys() & response.keys():
        raise ValueError(f"{predictions}: no document of the gold files; the first one is {next(iter(key))}")
    total = CoreferenceScore()
    for name, document in key.items():
        predicted = response.get(name)
        if predicted is not None and len(predicted.words) != len(document.words):
            raise ValueError(
                f"{predictions}: {name} has {len(predicted.words)} words, but {len(document.words)} in the gold files; "
                "predict for the same release"
            )
        total += score_document(document.clusters, predicted.clusters if predicted else ())
    if total.repeated > MAX_REPEATED:
        raise ValueError(
            f"{predictions}: {total.repeated} mentions occur twice; the official scorer takes {MAX_REPEATED} at most"
        )
    return figures(total)


def figures(total: CoreferenceScore) -> dict[str, float]:
    """The figures of :func:`score` from counts."""
    named = {"muc": total.muc, "b_cubed": total.b_cubed, "ceaf_e": total.ceaf_e, "mentions": total.mentions}
    found = {"conll_f1": 100 * total.conll_f1}
    for name, counts in named.items():
        found |= {
            f"{name}_f1": 100 * counts.f1,
            f"{name}_recall": 100 * counts.recall,
            f"{name}_precision": 100 * counts.precision,
        }
    return found


def read_files(paths: Sequence[Path]) -> dict[str, ConllDocument]:
    """The documents of files by name.

    Raises:
        ValueError: a file is not in the format, or a document occurs twice.
    """
    found: dict[str, ConllDocument] = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8-sig", newline="\n") as file:
                documents = [(raw.first_line, parse_document(raw, SCORED_COLUMNS)) for raw in split_documents(file)]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error.reason})") from error
        except BadLine as error:
            raise ValueError(f"{path}: {error}") from error
        for line, document in documents:
            if document.name in found:
                raise ValueError(f"{path}, line {line}: {document.name} occurs a second time")
            found[document.name] = document
    if not found:
        raise ValueError(f"{', '.join(map(str, paths))}: no document")
    return found

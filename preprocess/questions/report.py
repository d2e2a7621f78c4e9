"""The table of a question answering corpus: lengths of documents, numbers of segments, kinds of answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.question_answering.examples import (
    QuestionAnsweringSplit,
    SegmentLimits,
    Segments,
    cut_into_segments,
)
from fairseq_poolingformer.tasks.question_answering.labels import (
    Answers,
    AnswerType,
    Label,
    count_longer,
    label_segments,
    read_answers,
)
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.table import aligned

from ..pipeline.task_corpus import count_notes


def table(
    folder: DataFolder,
    name: str,
    splits: Sequence[str],
    max_positions: Sequence[int],
    rejects: Mapping[str, int] | None = None,
    doc_stride: int = 1568,
) -> str:
    """Report examples, lengths in tokens, segments and answers of each split, and of each language of several.

    The answer of an example is the one that training takes from its annotations. "without segment" counts the answers
    that fit in no segment of that length.

    Args:
        folder: the data folder.
        name: the corpus's name.
        splits: its splits.
        max_positions: lengths of segments to report, in tokens.
        rejects: number of rejected records of each split, where known.
        doc_stride: document tokens from the beginning of a segment to that of the next one.

    Returns:
        Lines of text: the table with aligned columns, then the notes of each split with their counts.
    """
    head = [name, "examples", "question median", "document median", "90th"]
    for length in max_positions:
        head += [f"segments of {length}", "without segment"]
    head += [*(kind.name.lower() for kind in AnswerType), "rejected"]
    rows, lines = [head], []
    for split in splits:
        data = QuestionAnsweringSplit.open(folder.path, split)
        answers = read_answers(data)
        cuts = [_cut(data, answers, length, doc_stride) for length in max_positions]
        rejected = "" if rejects is None else str(rejects[split])
        rows.append([*_row(split, data, answers, cuts, np.ones(len(data), bool)), rejected])
        languages = _languages(folder.text(split, "id"))
        if len(set(languages)) > 1:
            for language in np.unique(languages):
                rows.append([*_row(f"  {language}", data, answers, cuts, languages == language), ""])
        lines += count_notes(split, folder.text(split, "notes"))
        longer = count_longer(answers, MAX_ANSWER_LENGTH)
        if longer:
            lines.append(f"{split}: {longer} × short answer of more than {MAX_ANSWER_LENGTH} tokens")
    return "\n".join([aligned(rows), *lines])


def _cut(
    data: QuestionAnsweringSplit, answers: Answers, max_positions: int, doc_stride: int
) -> tuple[Segments, np.ndarray]:
    """Return the segments, and (n,) True at examples whose answer fits in no segment."""
    limits = SegmentLimits(max_positions, doc_stride)
    segments = cut_into_segments(data.question.sizes, data.document.sizes, limits)
    is_answered = np.zeros(len(data), bool)
    is_answered[segments.example[label_segments(segments, answers) == Label.POSITIVE]] = True
    return segments, (answers.answer_type != AnswerType.NULL) & ~is_answered


def _row(
    name: str,
    data: QuestionAnsweringSplit,
    answers: Answers,
    cuts: list[tuple[Segments, np.ndarray]],
    chosen: np.ndarray,
) -> list[str]:
    count = int(np.count_nonzero(chosen))
    row = [name, str(count), f"{np.median(data.question.sizes[chosen]):.0f}"]
    row += [f"{value:.0f}" for value in np.percentile(data.document.sizes[chosen], [50, 90])]
    for segments, without in cuts:
        row += [str(np.count_nonzero(chosen[segments.example])), str(np.count_nonzero(without & chosen))]
    if not len(data.annotation.values):
        return row + [""] * len(AnswerType)
    counts = np.bincount(answers.answer_type[chosen], minlength=len(AnswerType))
    return [*row, *(f"{100 * number / count:.1f} %" for number in counts)]


def _languages(path: Path) -> np.ndarray:
    with open(path, encoding="utf-8") as lines:
        return np.array([line.rstrip("\n").partition("\t")[2] for line in lines])

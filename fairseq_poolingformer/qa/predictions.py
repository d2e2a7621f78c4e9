"""The best answers of a split as official predictions, and as lines that people can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.qa.folder import PARAGRAPH_COLUMNS, QuestionAnsweringSplit
from fairseq_poolingformer.qa.official_predictions import (
    NATURAL_QUESTIONS,
    TYDIQA,
    NaturalQuestionsPrediction,
    Prediction,
    TydiqaPrediction,
)
from fairseq_poolingformer.qa.spans import NO_SPAN, Span
from fairseq_poolingformer.text.data_folder import QUESTIONS, DataFolder
from fairseq_poolingformer.text.tokenizers import Tokenizer

READABLE_COLUMNS = ("example_id", "question", "short_answer", "short_score", "long_answer", "long_score")


@dataclass(frozen=True)
class Corpus:
    """What a data folder says of the corpus that it was made from.

    Args:
        kind: ``"natural_questions"`` or ``"tydiqa"``.
        example_ids: (n,) of a split, as in the corpus.
        languages: (n,) of them; None for Natural Questions.
    """

    kind: str
    example_ids: list[int | str]
    languages: list[str] | None

    @classmethod
    def read(cls, folder: Path, split: str) -> Corpus:
        """Read ``corpus.json`` and a split's example ids.

        Raises:
            FileNotFoundError: a file is not there.
            ValueError: a file is not what preprocessing writes.
        """
        data = DataFolder(Path(folder), QUESTIONS)
        kind = data.corpus().get("kind")
        if kind not in (NATURAL_QUESTIONS, TYDIQA):
            raise ValueError(
                f"{data.corpus_path}: unknown kind {kind!r}; this version knows {NATURAL_QUESTIONS} and {TYDIQA}"
            )
        path = data.text(split, "id")
        with open(path, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        width = 2 if kind == TYDIQA else 1
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                raise ValueError(f"{path}, line {number}: {len(row)} columns where {kind} has {width}")
        ids = [int(row[0]) if row[0].lstrip("-").isdecimal() else row[0] for row in rows]
        return cls(kind, ids, [row[1] for row in rows] if kind == TYDIQA else None)


def short_answer(record: np.void) -> tuple[str, float]:
    """The best kind of short answer of a record: ``"SPAN"``, ``"YES"`` or ``"NO"``, and its score."""
    scores = {kind: float(record[f"{kind.lower()}_score"]) for kind in ("SPAN", "YES", "NO")}
    kind = max(scores, key=scores.get)
    return kind, scores[kind]


def official_predictions(
    corpus: Corpus, split: QuestionAnsweringSplit, records: np.ndarray, examples: range
) -> Iterator[Prediction]:
    """One prediction an example, in their order; an example without an answer has a null one.

    Args:
        corpus: of the split.
        split: for the answers' places in the corpus.
        records: (n,) see :class:`~fairseq_poolingformer.qa.answers.BestAnswers`.
        examples: the numbers of those to give.
    """
    for example in examples:
        record = records[example]
        if record["score"] == -np.inf:
            long, candidate, span, answer, scores = NO_SPAN, -1, NO_SPAN, "NONE", (0.0, 0.0)
        else:
            kind, short_score = short_answer(record)
            long, candidate = _long_answer(corpus.kind, split, example, record)
            span = _short_span(corpus.kind, split, example, record) if kind == "SPAN" else NO_SPAN
            answer = "NONE" if kind == "SPAN" else kind
            scores = (0.0 if long.is_null else float(record["long_score"]), short_score)
        if corpus.kind == NATURAL_QUESTIONS:
            shorts = () if span.is_null else (span,)
            yield NaturalQuestionsPrediction(
                corpus.example_ids[example], long, scores[0], shorts, scores[1], yes_no_answer=answer
            )
        else:
            yield TydiqaPrediction(
                *(corpus.example_ids[example], corpus.languages[example], candidate, scores[0], span, scores[1]),
                yes_no_answer=answer,
            )


def _long_answer(kind: str, split: QuestionAnsweringSplit, example: int, record: np.void) -> tuple[Span, int]:
    """Where the record's paragraph is in the corpus, and its number among the candidates."""
    if record["paragraph"] < 0:
        return NO_SPAN, -1
    row = dict(zip(PARAGRAPH_COLUMNS, split.paragraphs(example)[record["paragraph"]].tolist(), strict=True))
    return _span(kind, row["start_offset"], row["end_offset"]), row["candidate_index"]


def _short_span(kind: str, split: QuestionAnsweringSplit, example: int, record: np.void) -> Span:
    start = split.start[example][record["first_token"]]
    return _span(kind, int(start), int(split.end[example][record["end_token"] - 1]))


def _span(kind: str, start: int, end: int) -> Span:
    if kind == NATURAL_QUESTIONS:
        return Span(start_token=start, end_token=end)
    return Span(start_byte=start, end_byte=end)


def readable_lines(
    corpus: Corpus, split: QuestionAnsweringSplit, records: np.ndarray, examples: range, tokenizer: Tokenizer
) -> Iterator[str]:
    """A heading and one line an example, columns :data:`READABLE_COLUMNS` separated by tabs.

    Args:
        corpus, split, records, examples: as for :func:`official_predictions`.
        tokenizer: of the data folder; texts are what it makes of the ids.
    """
    yield "\t".join(READABLE_COLUMNS)
    for example in examples:
        record, document = records[example], split.document[example]
        cells = [str(corpus.example_ids[example]), tokenizer.decode(split.question[example]), "", "", "", ""]
        if record["score"] != -np.inf:
            kind, score = short_answer(record)
            span = document[record["first_token"] : record["end_token"]]
            cells[2:4] = tokenizer.decode(span) if kind == "SPAN" else kind, f"{score:.2f}"
        if record["paragraph"] >= 0:
            first, end = split.paragraphs(example)[record["paragraph"]][:2]
            cells[4:6] = tokenizer.decode(document[first:end]), f"{record['long_score']:.2f}"
        yield "\t".join(" ".join(cell.split()) for cell in cells)

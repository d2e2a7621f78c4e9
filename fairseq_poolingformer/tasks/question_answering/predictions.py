"""Turns the best answers of a split into official predictions, under the examples' own ids, and into readable lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.question_answering.examples import PARAGRAPH_COLUMNS, QuestionAnsweringSplit
from fairseq_poolingformer.tasks.question_answering.gold import NATURAL_QUESTIONS, NO_SPAN, TYDIQA, Span
from fairseq_poolingformer.tasks.question_answering.official_predictions import (
    NaturalQuestionsPrediction,
    Prediction,
    TydiqaPrediction,
)
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.json_values import example_id_of
from fairseq_poolingformer.text.tokenizers import Tokenizer

READABLE_COLUMNS = ("example_id", "question", "short_answer", "short_score", "long_answer", "long_score")


def short_answer(record: np.void) -> tuple[str, float]:
    """Return the best kind of short answer of a record, ``"SPAN"``, ``"YES"`` or ``"NO"``, and its score."""
    scores = {kind: float(record[f"{kind.lower()}_score"]) for kind in ("SPAN", "YES", "NO")}
    kind = max(scores, key=scores.get)
    return kind, scores[kind]


def official_predictions(
    ids: ExampleIds, split: QuestionAnsweringSplit, records: np.ndarray, examples: range
) -> Iterator[Prediction]:
    """Yield one prediction for each example, in their order; an example without an answer gets a null prediction.

    ``records`` are (n,) of :class:`~fairseq_poolingformer.tasks.question_answering.head.BestAnswers`.
    """
    for example in examples:
        record = records[example]
        if record["score"] == -np.inf:
            long, candidate, span, answer, scores = NO_SPAN, -1, NO_SPAN, "NONE", (0.0, 0.0)
        else:
            kind, short_score = short_answer(record)
            long, candidate = _long_answer(ids.kind, split, example, record)
            span = _short_span(ids.kind, split, example, record) if kind == "SPAN" else NO_SPAN
            answer = "NONE" if kind == "SPAN" else kind
            scores = (0.0 if long.is_null else float(record["long_score"]), short_score)
        if ids.kind == NATURAL_QUESTIONS:
            shorts = () if span.is_null else (span,)
            yield NaturalQuestionsPrediction(
                ids.example_ids[example], long, scores[0], shorts, scores[1], yes_no_answer=answer
            )
        else:
            yield TydiqaPrediction(
                *(ids.example_ids[example], ids.languages[example], candidate, scores[0], span, scores[1]),
                yes_no_answer=answer,
            )


def _long_answer(kind: str, split: QuestionAnsweringSplit, example: int, record: np.void) -> tuple[Span, int]:
    """Return the place of the record's paragraph in the corpus, and its number among the candidates."""
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
    ids: ExampleIds, split: QuestionAnsweringSplit, records: np.ndarray, examples: range, tokenizer: Tokenizer
) -> Iterator[str]:
    """Yield a heading and one line for each example, with the columns :data:`READABLE_COLUMNS` separated by tabs."""
    yield "\t".join(READABLE_COLUMNS)
    for example in examples:
        record, document = records[example], split.document[example]
        cells = [example_id_text(ids.example_ids[example]), tokenizer.decode(split.question[example]), "", "", "", ""]
        if record["score"] != -np.inf:
            kind, score = short_answer(record)
            span = document[record["first_token"] : record["end_token"]]
            cells[2:4] = tokenizer.decode(span) if kind == "SPAN" else kind, f"{score:.2f}"
        if record["paragraph"] >= 0:
            first, end = split.paragraphs(example)[record["paragraph"]][:2]
            cells[4:6] = tokenizer.decode(document[first:end]), f"{record['long_score']:.2f}"
        yield "\t".join(" ".join(cell.split()) for cell in cells)


def example_id_text(example_id: int | str) -> str:
    """Write an id for the first column of ``{split}.id.txt``: as JSON, so that 12 and "12" stay different."""
    return json.dumps(example_id)


@dataclass(frozen=True)
class ExampleIds:
    """The examples of a split as the official formats name them."""

    kind: str
    example_ids: list[int | str]
    languages: list[str] | None

    @classmethod
    def read(cls, folder: Path, split: str) -> ExampleIds:
        """Read ``corpus.json`` and ``{split}.id.txt``."""
        data = DataFolder(Path(folder), QuestionAnsweringSplit.layout)
        kind = data.corpus().get("kind")
        if kind not in (NATURAL_QUESTIONS, TYDIQA):
            raise ValueError(
                f"{data.corpus_path}: unknown kind {kind!r}; this version knows {NATURAL_QUESTIONS} and {TYDIQA}. "
                "For other downstream tasks there is poolingformer-predict"
            )
        path = data.text(split, "id")
        width = 2 if kind == TYDIQA else 1
        ids, languages = [], []
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                columns = line.rstrip("\n").split("\t")
                if len(columns) != width:
                    raise ValueError(f"{path}, line {number}: {len(columns)} columns where {kind} has {width}")
                try:
                    ids.append(example_id_of({"example_id": json.loads(columns[0])}))
                except ValueError:
                    raise ValueError(f"{path}, line {number}: {columns[0]!r} is no id; preprocess again") from None
                languages.append(columns[-1])
        return cls(kind, ids, languages if kind == TYDIQA else None)

    def __len__(self) -> int:
        return len(self.example_ids)

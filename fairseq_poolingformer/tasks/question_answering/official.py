"""Answers in the official formats of Natural Questions and TyDi QA: people's, which are released, and predictions.

Natural Questions has one JSON object a file, TyDi QA lines of JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_poolingformer.text.atomic_write import text_file
from fairseq_poolingformer.text.input_files import opened
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import (
    YES_NO_ANSWERS,
    BadLine,
    as_object,
    example_id_of,
    integer_of,
    list_of,
    number_of,
    placed,
    read_object,
    text_of,
    yes_no_of,
)

NATURAL_QUESTIONS, TYDIQA = "natural_questions", "tydiqa"  # "kind" of a data folder's corpus.json


@dataclass(frozen=True)
class Span:
    """A half-open piece of a document in bytes (TyDi QA: of plain text), in tokens, or in both; -1 where not known."""

    start_byte: int = -1
    end_byte: int = -1
    start_token: int = -1
    end_token: int = -1

    @property
    def has_bytes(self) -> bool:
        return self.start_byte >= 0 and self.end_byte >= 0

    @property
    def has_tokens(self) -> bool:
        return self.start_token >= 0 and self.end_token >= 0

    @property
    def is_null(self) -> bool:
        return not (self.has_bytes or self.has_tokens)

    def matches(self, other: Span) -> bool:
        """Whether both are the same piece, by bytes or by tokens: one unit that both know and agree in is enough."""
        by_bytes = (self.start_byte, self.end_byte) == (other.start_byte, other.end_byte)
        by_tokens = (self.start_token, self.end_token) == (other.start_token, other.end_token)
        return (self.has_bytes and by_bytes) or (self.has_tokens and by_tokens)


NO_SPAN = Span()


def natural_questions_span(value: object, where: str) -> Span:
    """Read the span of Natural Questions' four keys; bytes or tokens that are missing are -1."""
    record = as_object(value, where)
    keys = ("start_byte", "end_byte", "start_token", "end_token")
    offsets = [integer_of(record, key, -1) for key in keys]
    for start, end in (offsets[:2], offsets[2:]):
        _check_offsets(where, start, end)
        if 0 <= start == end:
            raise ValueError(f"{where}: start and end are equal; ends are exclusive, so the span is empty")
    return Span(*offsets)


def tydiqa_span(value: object, where: str, start_key: str, end_key: str) -> Span:
    """Read the span of TyDi QA's two keys, which gold data and predictions name differently."""
    record = as_object(value, where)
    start, end = integer_of(record, start_key), integer_of(record, end_key)
    _check_offsets(where, start, end)
    return Span(start, end)


def _check_offsets(where: str, start: int, end: int) -> None:
    if (start < 0) != (end < 0):
        raise ValueError(f"{where}: start {start}, end {end}: no answer is -1 and -1")
    if start > end:
        raise ValueError(f"{where}: start {start} is after end {end}")


TYDIQA_KEYS = ("plaintext_start_byte", "plaintext_end_byte")


@dataclass(frozen=True)
class NaturalQuestionsAnnotation:
    """One annotator's answers: the long one or ``NO_SPAN``, the short spans, ``"YES"``, ``"NO"`` or ``"NONE"``."""

    long_answer: Span
    short_answers: tuple[Span, ...]
    yes_no_answer: str


@dataclass(frozen=True)
class TydiqaAnnotation:
    """One annotator's answers: a passage's number or -1, bytes or ``NO_SPAN``, ``"YES"``, ``"NO"`` or ``"NONE"``."""

    passage_answer_index: int
    minimal_answer: Span
    yes_no_answer: str


def natural_questions_annotation(value: object, where: str) -> NaturalQuestionsAnnotation:
    """Read an annotation of Natural Questions, in the original or the simplified format."""
    record = as_object(value, where)
    long_answer = natural_questions_span(record.get("long_answer"), f"{where}.long_answer")
    short_answers = tuple(
        natural_questions_span(span, f"{where}.short_answers[{number}]")
        for number, span in enumerate(list_of(record, "short_answers"))
    )
    return NaturalQuestionsAnnotation(long_answer, short_answers, yes_no_of(record))


def tydiqa_annotation(value: object, where: str) -> TydiqaAnnotation:
    """Read an annotation of TyDi QA's primary tasks; arguments and errors as above."""
    record = as_object(value, where)
    passage = as_object(record.get("passage_answer"), f"{where}.passage_answer")
    minimal = tydiqa_span(record.get("minimal_answer"), f"{where}.minimal_answer", *TYDIQA_KEYS)
    return TydiqaAnnotation(integer_of(passage, "candidate_index"), minimal, yes_no_of(record))


Annotation = NaturalQuestionsAnnotation | TydiqaAnnotation


@dataclass(frozen=True)
class GoldExample:
    """The annotators' answers to one question."""

    example_id: int | str  # as in the corpus
    annotations: tuple[Annotation, ...]  # at least one, all of the example's kind
    language: str = ""  # TyDi QA's; empty for Natural Questions

    @property
    def kind(self) -> str:
        """``"natural_questions"`` or ``"tydiqa"``."""
        return TYDIQA if isinstance(self.annotations[0], TydiqaAnnotation) else NATURAL_QUESTIONS


def read_gold(paths: Sequence[str | Path], workers: int = 1) -> tuple[str, dict[int | str, GoldExample]]:
    """Read gold data, a line at a time, and keep only the annotations."""
    if workers > 1 and len(paths) > 1:
        with ProcessPoolExecutor(min(workers, len(paths))) as pool:
            return _collect(paths, pool.map(_read_file, paths))
    return _collect(paths, map(_read_file, paths))


def _collect(
    paths: Sequence[str | Path], files: Iterator[list[tuple[int, GoldExample]]]
) -> tuple[str, dict[int | str, GoldExample]]:
    gold: dict[int | str, GoldExample] = {}
    first: GoldExample | None = None
    for path, examples in zip(paths, files, strict=True):
        for line, example in examples:
            first = first or example
            if example.kind != first.kind:
                raise ValueError(f"{path}, line {line}: {example.kind} among {first.kind}: score one corpus at a time")
            if example.example_id in gold:
                raise ValueError(f"{path}, line {line}: example {example.example_id} comes a second time")
            gold[example.example_id] = example
    if first is None:
        raise ValueError(f"{', '.join(map(str, paths))}: no examples in it")
    return first.kind, gold


def _read_file(path: str | Path) -> list[tuple[int, GoldExample]]:
    """The examples of a file with their line numbers."""
    examples = []
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            with placed(path, f"line {number}"):
                if not line.isspace():
                    examples.append((number, _example(line)))
    return examples


def _example(line: bytes) -> GoldExample:
    record = read_object(line)
    if not record.get("annotations"):
        raise ValueError("no 'annotations': is this gold data? Those of a test set are not public")
    values = list_of(record, "annotations")
    first = as_object(values[0], "annotations[0]")
    if "passage_answer" in first:
        read, language = tydiqa_annotation, text_of(record, "language")
    elif "long_answer" in first:
        read, language = natural_questions_annotation, ""
    else:
        raise ValueError("an annotation must have 'long_answer' (Natural Questions) or 'passage_answer' (TyDi QA)")
    annotations = tuple(read(value, f"annotations[{number}]") for number, value in enumerate(values))
    return GoldExample(example_id_of(record), annotations, language)


@dataclass(frozen=True)
class NaturalQuestionsPrediction:
    """One example's answers."""

    example_id: int | str  # as in the gold data
    long_answer: Span = NO_SPAN  # a long-answer candidate, or ``NO_SPAN``
    long_answer_score: float = 0.0  # the higher, the surer; below the evaluation's threshold the answer counts as none
    short_answers: tuple[Span, ...] = ()  # the spans that together are the short answer; empty for none
    short_answers_score: float = 0.0  # of the short answer, whether spans, yes or no
    yes_no_answer: str = "NONE"  # ``"NONE"``, ``"YES"`` or ``"NO"``; with yes or no there is no short span

    def __post_init__(self) -> None:
        _check_scores(long_answer_score=self.long_answer_score, short_answers_score=self.short_answers_score)
        _check_yes_no(self.yes_no_answer, "short_answers", self.short_answers)

    def to_json(self) -> dict[str, object]:
        """Return the object for the official file's list of predictions."""
        return asdict(self) | {"short_answers": [asdict(span) for span in self.short_answers]}

    @staticmethod
    def from_json(value: object) -> NaturalQuestionsPrediction:
        """Read an object of the official file. A missing answer is no answer; scores must be there."""
        record = as_object(value, "a prediction")
        shorts = list_of(record, "short_answers") if "short_answers" in record else []
        return NaturalQuestionsPrediction(
            example_id=example_id_of(record),
            long_answer=natural_questions_span(record.get("long_answer", {}), "long_answer"),
            long_answer_score=number_of(record, "long_answer_score"),
            short_answers=tuple(natural_questions_span(span, "short_answers") for span in shorts),
            short_answers_score=number_of(record, "short_answers_score"),
            yes_no_answer=yes_no_of(record, "NONE"),
        )


@dataclass(frozen=True)
class TydiqaPrediction:
    """One example's answers."""

    example_id: int | str  # as in the gold data
    language: str  # as in the gold data, e.g. ``"finnish"``; the official evaluation groups by it
    passage_answer_index: int = -1  # number of the passage among the example's candidates, or -1
    passage_answer_score: float = 0.0  # the higher, the surer; below the threshold the answer counts as none
    minimal_answer: Span = NO_SPAN  # bytes of the document's plain text, or ``NO_SPAN``
    minimal_answer_score: float = 0.0  # of the minimal answer, whether a span, yes or no
    yes_no_answer: str = "NONE"  # ``"NONE"``, ``"YES"`` or ``"NO"``; with yes or no there is no minimal answer

    def __post_init__(self) -> None:
        _check_scores(passage_answer_score=self.passage_answer_score, minimal_answer_score=self.minimal_answer_score)
        _check_yes_no(self.yes_no_answer, "minimal_answer", (self.minimal_answer,))

    def to_json(self) -> dict[str, object]:
        """Return the object for one line of the official file."""
        minimal = {"start_byte_offset": self.minimal_answer.start_byte, "end_byte_offset": self.minimal_answer.end_byte}
        return asdict(self) | {"minimal_answer": minimal}

    @staticmethod
    def from_json(value: object) -> TydiqaPrediction:
        """Read a line of the official file. A missing answer is no answer; language and scores must be there."""
        record = as_object(value, "a prediction")
        minimal = NO_SPAN
        if "minimal_answer" in record:
            minimal = tydiqa_span(record["minimal_answer"], "minimal_answer", "start_byte_offset", "end_byte_offset")
        return TydiqaPrediction(
            example_id=example_id_of(record),
            language=text_of(record, "language"),
            passage_answer_index=integer_of(record, "passage_answer_index", -1),
            passage_answer_score=number_of(record, "passage_answer_score"),
            minimal_answer=minimal,
            minimal_answer_score=number_of(record, "minimal_answer_score"),
            yes_no_answer=yes_no_of(record, "NONE"),
        )


Prediction = NaturalQuestionsPrediction | TydiqaPrediction


def _check_scores(**scores: float) -> None:
    for name, score in scores.items():
        if math.isnan(score):
            raise ValueError(f"{name} is NaN, which no threshold can be compared with")


def _check_yes_no(answer: str, spans_name: str, spans: tuple[Span, ...]) -> None:
    if answer not in YES_NO_ANSWERS:
        raise ValueError(f"yes_no_answer must be one of {', '.join(YES_NO_ANSWERS)}, is {answer!r}")
    if answer != "NONE" and not all(span.is_null for span in spans):
        raise ValueError(
            f"yes_no_answer is {answer}, so {spans_name} must be none: the official evaluation refuses both"
        )


def write_predictions(path: str | Path, kind: str, predictions: Iterable[Prediction]) -> int:
    """Write an official file, one prediction a line in both formats, as they come; return their number."""
    head, between, tail = {NATURAL_QUESTIONS: ('{"predictions": [\n', ",\n", "\n]}\n"), TYDIQA: ("", "\n", "\n")}[kind]
    count = 0
    with text_file(Path(path)) as file:
        file.write(head)
        for prediction in predictions:
            file.write((between if count else "") + json.dumps(prediction.to_json()))
            count += 1
        file.write(tail if count or head else "")
    return count


def read_predictions(path: str | Path) -> tuple[str, dict[int | str, Prediction]]:
    """Read an official file: lines of objects (TyDi QA), or one with ``predictions``."""
    path = Path(path)
    with opened(path) as file:
        lines = [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    try:
        kind = NATURAL_QUESTIONS if not lines or "predictions" in read_object(lines[0][1]) else TYDIQA
    except BadLine:
        kind = NATURAL_QUESTIONS  # an object in several lines
    if kind == TYDIQA:
        values = [(f"line {number}", line) for number, line in lines]
    else:
        content = read_json_file(path) if lines else {"predictions": []}
        with placed(path):
            values = [(f"prediction {n}", value) for n, value in enumerate(list_of(content, "predictions"), 1)]
    predictions: dict[int | str, Prediction] = {}
    places: dict[int | str, str] = {}
    for place, value in values:
        with placed(path, place):
            if kind == TYDIQA:
                answer = TydiqaPrediction.from_json(read_object(value))
            else:
                answer = NaturalQuestionsPrediction.from_json(value)
            if answer.example_id in predictions:
                raise ValueError(f"example {answer.example_id} has a prediction already ({places[answer.example_id]})")
        predictions[answer.example_id], places[answer.example_id] = answer, place
    if not predictions:
        raise ValueError(f"{path}: no predictions in it")
    return kind, predictions

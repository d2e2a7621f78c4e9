"""QASPER's references, and its official figures: F1 of answers and of evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.shared.gold import merged
from fairseq_poolingformer.tasks.shared.normalized_text import Overlap, f1
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_lines import read_object
from fairseq_poolingformer.text.json_values import as_object, list_of, placed, text_of, texts_of

KINDS = ("extractive", "abstractive", "boolean", "none")
UNANSWERABLE = "Unanswerable"
FLOAT = "FLOAT SELECTED"  # of evidence that is the caption of a figure or table
FORM = 'lines of JSON with "question_id", "predicted_answer" and "predicted_evidence"'


def recognizes(predictions: str, gold: str, options: Collection[str]) -> bool:
    """Whether a file that begins so, beside gold data that does, is of this form."""
    return predictions.lstrip().startswith("{") and '"predicted_answer":' in predictions


@dataclass(frozen=True)
class Reference:
    """One annotator's answer, or a predicted one.

    Attributes:
        texts: of an extractive answer all its spans, else one.
        evidence: paragraphs.
        kind: one of :data:`KINDS`.
    """

    texts: tuple[str, ...]
    evidence: tuple[str, ...]
    kind: str = ""

    @property
    def answer(self) -> str:
        """The answer as it is compared."""
        return ", ".join(self.texts)


def references_of(question: Mapping[str, object]) -> list[Reference]:
    """Read the answers of a released question.

    Raises:
        ValueError: there is none, or one has no content.
    """
    annotations = [as_object(value, "an answer") for value in list_of(question, "answers")]
    if not annotations:
        raise ValueError("no answers")
    return [_reference(as_object(annotation.get("answer"), "'answer'")) for annotation in annotations]


def _reference(answer: dict) -> Reference:
    if answer.get("unanswerable"):
        return Reference((UNANSWERABLE,), (), "none")
    evidence = tuple(texts_of(answer, "evidence"))
    if spans := texts_of(answer, "extractive_spans"):
        return Reference(tuple(spans), evidence, "extractive")
    if text := text_of(answer, "free_form_answer"):
        return Reference((text,), evidence, "abstractive")
    if answer.get("yes_no") is None:
        raise ValueError("an answer is neither unanswerable, extractive, free form nor yes or no")
    return Reference(("Yes" if answer["yes_no"] else "No",), evidence, "boolean")


def evidence_f1(predicted: Sequence[str], right: Sequence[str]) -> float:
    """F1 of paragraphs; 1 where there are none."""
    if not predicted and not right:
        return 1.0
    return Overlap.of(len(set(predicted) & set(right)), len(predicted), len(right)).f1


def figures(gold: Mapping[str, Sequence[Reference]], predictions: Mapping[str, Reference]) -> dict[str, float]:
    """Compute the figures of the official script, from 0 to 1: means over questions of the best over the references.

    A missing answer counts 0, and in no kind. ``text_evidence_f1`` leaves the captions of figures and tables out of the
    references, as the script's ``--text_evidence_only``.
    """
    kinds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    answers, evidence, text_evidence = [], [], []
    for name, references in gold.items():
        found = predictions.get(name)
        best = [0.0, 0.0, 0.0]
        if found is not None:
            of_each = [(f1(found.answer, one.answer), one.kind) for one in references]
            best[0], kind = max(of_each, key=lambda value: value[0])
            kinds[kind].append(best[0])
            best[1] = max(evidence_f1(found.evidence, one.evidence) for one in references)
            texts = ([text for text in one.evidence if FLOAT not in text] for one in references)
            best[2] = max(evidence_f1(found.evidence, text) for text in texts)
        for values, value in zip((answers, evidence, text_evidence), best, strict=True):
            values.append(value)
    means = {"answer_f1": answers, "evidence_f1": evidence, "text_evidence_f1": text_evidence}
    means |= {f"answer_f1_{kind}": values for kind, values in kinds.items()}
    return {name: Mean.of(sum(values) / len(values), values) if values else 0.0 for name, values in means.items()}


def read_gold(path: Path) -> dict[str, list[Reference]]:
    """Read the references of the questions in a released file, papers by id.

    Raises:
        ValueError: it is something else; the message names the question.
    """
    found = {}
    for paper, fields in read_json_file(path).items():
        place = paper
        try:
            for value in list_of(as_object(fields, "a paper"), "qas"):
                question = as_object(value, "a question")
                place = text_of(question, "question_id")
                if place in found:
                    raise ValueError("the question comes a second time")
                found[place] = references_of(question)
        except ValueError as error:
            raise ValueError(f"{path}, {place}: {error}") from None
    if not found:
        raise ValueError(f"{path}: no questions in it")
    return found


def read_predictions(path: Path) -> dict[str, Reference]:
    """Read predictions in the official form.

    Raises:
        ValueError: the file holds something else.
    """
    found = {}
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            with placed(path, f"line {number}"):
                fields = read_object(line)
                name, text = text_of(fields, "question_id"), text_of(fields, "predicted_answer")
                if name in found:
                    raise ValueError(f"question {name!r} comes a second time")
                found[name] = Reference((text,), tuple(texts_of(fields, "predicted_evidence")))
    return found


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compute the official figures of a prediction file.

    Args:
        gold: released files.
        predictions: in the official form.
        predicted_only: what has no prediction does not count.

    Returns:
        :func:`figures`, 0 to 100; ``examples`` and ``without_prediction``.

    Raises:
        ValueError: naming the file and the place that is wrong.
    """
    right = merged(gold, read_gold)
    found = read_predictions(Path(predictions))
    if not right.keys() & found.keys():
        raise ValueError(f"{predictions}: no question of the gold data has an answer; are they of another split?")
    missing = len(right.keys() - found.keys())
    right = {name: references for name, references in right.items() if not predicted_only or name in found}
    counts = {"examples": len(right), "without_prediction": missing}
    return {name: 100 * value for name, value in figures(right, found).items()} | counts

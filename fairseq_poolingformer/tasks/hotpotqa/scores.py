"""HotpotQA's right answers, predictions and official figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from fairseq_poolingformer.tasks.shared.estimates import Mean
from fairseq_poolingformer.tasks.shared.normalized_text import Overlap, hotpotqa_words, overlap
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import as_object, list_of, placed, text_of

PARAGRAPH_SCORES = "paragraph_scores"  # a key beside those of the official format; null: not read
_WHOLE_ANSWERS = (["yes"], ["no"], ["noanswer"])  # they share no word with any other answer

Fact = tuple[str, int]  # a paragraph's title, and the number of a sentence in it from 0


@dataclass(frozen=True)
class HotpotqaGold:
    """A question's right answer; ``supporting_facts`` are the sentences that one must know to find it."""

    question_id: str
    answer: str
    supporting_facts: tuple[Fact, ...]


@dataclass(frozen=True)
class HotpotqaPredictions:
    """Answers and supporting facts by question; a question may lack either."""

    answers: Mapping[str, str]
    supporting_facts: Mapping[str, Sequence[Fact]]

    def to_json(self) -> dict[str, object]:
        """The object of the official format."""
        return {
            "answer": dict(self.answers),
            "sp": {key: [list(fact) for fact in facts] for key, facts in self.supporting_facts.items()},
        }


def facts_of(record: Mapping[str, object], key: str) -> tuple[Fact, ...]:
    """Read the list of supporting facts under a key."""
    facts = []
    for value in list_of(record, key):
        is_pair = isinstance(value, list) and len(value) == 2
        if not is_pair or not isinstance(value[0], str) or not isinstance(value[1], int) or isinstance(value[1], bool):
            raise ValueError(f"{key!r} must hold pairs of a title and the number of a sentence, holds {value!r}"[:200])
        facts.append((value[0], value[1]))
    return tuple(facts)


def read_gold(path: Path) -> list[HotpotqaGold]:
    """Read the right answers of a released file, such as ``hotpot_dev_distractor_v1.json``."""
    values = read_json_file(path, list)
    gold = []
    for number, value in enumerate(values):
        with placed(path, f"question {number}"):
            record = as_object(value, "a question")
            if "answer" not in record:
                raise ValueError("no 'answer': those of the test set are not public")
            facts = facts_of(record, "supporting_facts")
            gold.append(HotpotqaGold(text_of(record, "_id"), text_of(record, "answer"), facts))
    if not gold:
        raise ValueError(f"{path}: no questions in it")
    return gold


def read_predictions(path: Path) -> HotpotqaPredictions:
    """Read predictions in the official format, ``{"answer": {question: answer}, "sp": {question: facts}}``."""
    content = read_json_file(path, unique=True)
    with placed(path):
        answers, facts = (as_object(content.get(key), f"{key!r}") for key in ("answer", "sp"))
        answers = {key: text_of(answers, key) for key in answers}
        return HotpotqaPredictions(answers, {key: facts_of(facts, key) for key in facts})


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compute the official figures of a prediction file."""
    right = [question for path in gold for question in read_gold(path)]
    found = read_predictions(predictions)
    if not any(question.question_id in found.answers for question in right):
        raise ValueError(f"{predictions}: no question of the gold data has an answer; are they of another split?")
    counts = {"without_prediction": sum(question.question_id not in found.answers for question in right)}
    right = [question for question in right if not predicted_only or question.question_id in found.answers]
    return {name: 100 * value for name, value in figures(right, found).items()} | {"examples": len(right)} | counts


def figures(gold: Sequence[HotpotqaGold], predictions: HotpotqaPredictions) -> dict[str, float]:
    """Compute the figures of the official script, from 0 to 1, under its names: means over all questions.

    A question's joint precision and recall are the products of those of its answer and its supporting facts.
    """
    values = {
        f"{part}{name}": [0.0] * len(gold) for part in ("", "sp_", "joint_") for name in ("em", "f1", "prec", "recall")
    }

    def put(number: int, part: str, exact: float, found: Overlap) -> None:
        for name, value in (("em", exact), ("f1", found.f1), ("prec", found.precision), ("recall", found.recall)):
            values[f"{part}{name}"][number] = value

    for number, question in enumerate(gold):
        answer = predictions.answers.get(question.question_id)
        facts = predictions.supporting_facts.get(question.question_id)
        if answer is not None:
            answer_exact, answer_found = _compare_answers(answer, question.answer)
            put(number, "", answer_exact, answer_found)
        if facts is not None:
            facts_exact, facts_found = _compare_facts(facts, question.supporting_facts)
            put(number, "sp_", facts_exact, facts_found)
        if answer is not None and facts is not None:
            precision = answer_found.precision * facts_found.precision
            recall = answer_found.recall * facts_found.recall
            put(number, "joint_", answer_exact * facts_exact, Overlap.between(precision, recall))
    return {name: Mean.of(reduce(add, column, 0.0) / len(gold), column) for name, column in values.items()}


def _compare_answers(answer: str, right: str) -> tuple[bool, Overlap]:
    predicted, wanted = hotpotqa_words(answer), hotpotqa_words(right)
    if predicted != wanted and (predicted in _WHOLE_ANSWERS or wanted in _WHOLE_ANSWERS):
        return False, Overlap()
    return predicted == wanted, overlap(predicted, wanted)


def _compare_facts(facts: Iterable[Fact], right: Iterable[Fact]) -> tuple[bool, Overlap]:
    predicted, wanted = set(facts), set(right)
    return predicted == wanted, Overlap.of(len(predicted & wanted), len(predicted), len(wanted))

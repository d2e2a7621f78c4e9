"""Random gold data and predictions in the official formats: many ties, near misses, nulls, yes and no."""

import gzip
import json
import random
from pathlib import Path

LANGUAGES = ("english", "finnish", "thai", "arabic", "korean", "klingon")
NULL_SPAN = {"start_byte": -1, "end_byte": -1, "start_token": -1, "end_token": -1}
_KINDS = ("long", "long", "short", "short", "several", "yes", "no", "null")


def natural_questions_set(seed: int, examples: int) -> tuple[list[dict], dict]:
    """Gold examples with five annotations each, and the object of a predictions file."""
    rng = random.Random(seed)
    how_often_right, distinct_scores = rng.random(), rng.choice((2, 5, 1000))
    gold, predictions = [], []
    for example_id in _ids(rng, examples):
        share = rng.random()
        answered = [rng.random() < share for _ in range(5)]
        annotations = [_natural_questions_answers(rng, rng.choice(_KINDS[:-1] if a else ("null",))) for a in answered]
        gold.append({"example_id": example_id, "annotations": annotations})
        copied = rng.random() < how_often_right
        answers = dict(rng.choice(annotations) if copied else _natural_questions_answers(rng, rng.choice(_KINDS)))
        scores = {
            f"{name}_score": rng.randrange(distinct_scores) / 7 - 1 + copied / 3
            for name in ("long_answer", "short_answers")
        }
        predictions.append({"example_id": example_id, **_with_units_left_out(rng, answers), **scores})
    rng.shuffle(predictions)
    return gold, {"predictions": predictions}


def tydiqa_set(seed: int, examples: int) -> tuple[list[dict], list[dict]]:
    """Gold examples with three annotations each, and predictions; a few are missing, unexpected, misnamed."""
    rng = random.Random(seed)
    how_often_right, distinct_scores = rng.random(), rng.choice((2, 5, 1000))
    languages = LANGUAGES[: rng.randint(1, len(LANGUAGES))]
    gold, predictions = [], []
    for example_id in _ids(rng, examples):
        language, share = rng.choice(languages), rng.random()
        annotations = [_tydiqa_annotation(rng, rng.random() < share) for _ in range(3)]
        texts = {"question_text": "q", "document_plaintext": "d"}
        gold.append({"example_id": example_id, "language": language, "annotations": annotations, **texts})
        copied = rng.random() < how_often_right
        predicted = rng.choice(annotations) if copied else _tydiqa_annotation(rng, rng.random() < 0.7)
        start, end = (predicted["minimal_answer"][f"plaintext_{edge}_byte"] for edge in ("start", "end"))
        prediction = {
            "example_id": example_id if rng.random() < 0.97 else example_id + 1,
            "language": language if rng.random() < 0.97 else rng.choice(LANGUAGES),
            "passage_answer_index": predicted["passage_answer"]["candidate_index"],
            "passage_answer_score": rng.randrange(distinct_scores) / 7 - 1 + copied / 3,
            "minimal_answer": {"start_byte_offset": start, "end_byte_offset": end},
            "minimal_answer_score": rng.randrange(distinct_scores) / 7 - 1 + copied / 3,
            "yes_no_answer": _any_case(rng, predicted["yes_no_answer"]),
        }
        if rng.random() < 0.95 or not predictions:
            predictions.append(prediction)
    rng.shuffle(predictions)
    return gold, predictions


def write_set(folder: Path, gold: list[dict], predictions: dict | list[dict]) -> tuple[Path, Path]:
    """Write both as files that the official scripts read; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "gold.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in gold)
    if isinstance(predictions, dict):
        path, text = folder / "predictions.json", json.dumps(predictions)
    else:
        path, text = folder / "predictions.jsonl", "".join(json.dumps(record) + "\n" for record in predictions)
    path.write_text(text, encoding="utf-8")
    return folder / "gold.jsonl.gz", path


def _ids(rng: random.Random, count: int) -> list[int]:
    return [10 * rng.randrange(-(2**59), 2**59) for _ in range(count)]


def _any_case(rng: random.Random, word: str) -> str:
    return rng.choice((word.upper(), word.lower(), word.capitalize()))


def _span(rng: random.Random) -> dict[str, int]:
    """One of a few spans, so that two are often equal, sometimes only in bytes or only in tokens."""
    start = rng.randrange(3)
    token = start if rng.random() < 0.8 else rng.randrange(3)
    tokens = {"start_token": token, "end_token": token + 1 + (rng.random() < 0.1)}
    return {"start_byte": 10 * start, "end_byte": 10 * start + 9, **tokens}


def _natural_questions_answers(rng: random.Random, kind: str) -> dict:
    shorts = {"short": 1, "several": rng.randint(2, 3)}.get(kind, 0)
    return {
        "long_answer": dict(NULL_SPAN) if kind == "null" else _span(rng),
        "short_answers": [dict(NULL_SPAN) if rng.random() < 0.05 else _span(rng) for _ in range(shorts)],
        "yes_no_answer": _any_case(rng, kind if kind in ("yes", "no") else "none"),
    }


def _with_units_left_out(rng: random.Random, answers: dict) -> dict:
    """Answers of a system that knows bytes only, or tokens only, or leaves out what is null."""
    hidden = rng.choice(((), ("start_byte", "end_byte"), ("start_token", "end_token")))

    def hide(span: dict[str, int]) -> dict[str, int]:
        return {key: -1 if key in hidden else value for key, value in span.items()}

    shown = {**answers, "long_answer": hide(answers["long_answer"])}
    shown["short_answers"] = [hide(span) for span in answers["short_answers"]]
    for name, is_null in (
        ("long_answer", answers["long_answer"] == NULL_SPAN),
        ("short_answers", not answers["short_answers"]),
    ):
        if is_null and rng.random() < 0.5:
            del shown[name]
    return shown


def _tydiqa_annotation(rng: random.Random, answered: bool) -> dict:
    kind = rng.choice(("passage", "span", "span", "span", "yes", "no")) if answered else "null"
    start, end = -1, -1
    if kind == "span":
        start = rng.randrange(30)
        end = start + rng.randint(1, 20)
    return {
        "passage_answer": {"candidate_index": rng.randrange(3) if answered else -1},
        "minimal_answer": {"plaintext_start_byte": start, "plaintext_end_byte": end},
        "yes_no_answer": _any_case(rng, kind if kind in ("yes", "no") else "none"),
    }


MAKERS = {"natural_questions": natural_questions_set, "tydiqa": tydiqa_set}
CLONES = {"natural_questions": "natural-questions", "tydiqa": "tydiqa"}

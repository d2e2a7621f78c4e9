"""Both evaluations once more, from their published rules, on raw JSON, a threshold at a time: slow and plain."""


def best_point(outcomes: list[tuple[bool, bool, float, float]]) -> tuple[float, float, float, float]:
    """F1, precision, recall, threshold of the best F1: of (gold?, predicted?, credit, score) rows."""
    best = (0.0, 0.0, 0.0, 0.0)
    for threshold in sorted({row[3] for row in outcomes}, reverse=True):
        point = point_at(outcomes, threshold)
        if point[0] > best[0] + 1e-12:
            best = (*point, threshold)
    return best


def point_at(outcomes: list[tuple[bool, bool, float, float]], threshold: float) -> tuple[float, float, float]:
    """F1, precision, recall when only answers with at least this score are given."""
    credit = sum(row[2] for row in outcomes if row[3] >= threshold)
    predicted = sum(1 for row in outcomes if row[1] and row[3] >= threshold)
    gold = sum(1 for row in outcomes if row[0])
    precision = credit / predicted if predicted else 0.0
    recall = credit / gold if gold else 0.0
    return (2 * precision * recall / (precision + recall) if credit else 0.0), precision, recall


def natural_questions(gold: list[dict], predictions: dict) -> dict[str, list[tuple[bool, bool, float, float]]]:
    """Outcomes of long and short answers."""
    by_id = {prediction["example_id"]: prediction for prediction in predictions["predictions"]}
    outcomes = {"long": [], "short": []}
    for example in gold:
        prediction = by_id[example["example_id"]]
        for kind, answer, score in (
            ("long", _long(prediction), prediction["long_answer_score"]),
            ("short", _short(prediction), prediction["short_answers_score"]),
        ):
            answers = [(_long if kind == "long" else _short)(annotation) for annotation in example["annotations"]]
            answers = [other for other in answers if other]
            if len(answers) < 2:
                answers = []
            right = bool(answer) and any(_same(answer, other) for other in answers)
            outcomes[kind].append((bool(answers), bool(answer), float(right), score))
    return outcomes


def _long(answers: dict) -> list:
    return _known([answers["long_answer"]]) if "long_answer" in answers else []


def _short(answers: dict) -> list:
    yes_no = answers["yes_no_answer"].upper()
    return [yes_no] if yes_no != "NONE" else _known(answers.get("short_answers", []))


def _known(spans: list[dict]) -> list[dict]:
    return [span for span in spans if max(span.values()) >= 0]


def _same(left: list, right: list) -> bool:
    return all(any(_equal(a, b) for b in right) for a in left) and all(any(_equal(a, b) for a in left) for b in right)


def _equal(a: dict | str, b: dict | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return any(
        a[f"start_{unit}"] >= 0 and all(a[f"{edge}_{unit}"] == b[f"{edge}_{unit}"] for edge in ("start", "end"))
        for unit in ("byte", "token")
    )


def tydiqa(gold: list[dict], predictions: list[dict]) -> dict[str, list[tuple[bool, bool, float, float]]]:
    """Outcomes of passage and minimal answers, all languages together."""
    by_id = {prediction["example_id"]: prediction for prediction in predictions}
    outcomes = {"passage": [], "minimal": []}
    for example in gold:
        annotations = example["annotations"]
        passages = [other["passage_answer"]["candidate_index"] for other in annotations]
        passages = [index for index in passages if index >= 0]
        passages = passages if len(passages) >= 2 else []
        minimals = [_bytes_or_word(other, "plaintext_start_byte", "plaintext_end_byte") for other in annotations]
        minimals = [answer for answer in minimals if answer]
        minimals = minimals if len(minimals) >= 2 else []
        prediction = by_id.get(example["example_id"])
        if prediction is None:
            outcomes["passage"].append((bool(passages), not passages, 0.0, 0.0))
            outcomes["minimal"].append((bool(minimals), not minimals, 0.0, 0.0))
            continue
        index, answer = prediction["passage_answer_index"], _bytes_or_word(prediction, *_OFFSETS)
        right = float(index in passages)
        outcomes["passage"].append((bool(passages), index >= 0, right, prediction["passage_answer_score"]))
        credit = max((_overlap(answer, other) for other in minimals), default=0.0) if answer else 0.0
        outcomes["minimal"].append((bool(minimals), bool(answer), credit, prediction["minimal_answer_score"]))
    return outcomes


_OFFSETS = ("start_byte_offset", "end_byte_offset")


def _bytes_or_word(answers: dict, start: str, end: str) -> set[int] | str:
    yes_no = answers["yes_no_answer"].upper()
    minimal = answers["minimal_answer"]
    return yes_no if yes_no != "NONE" else set(range(max(minimal[start], 0), max(minimal[end], 0)))


def _overlap(predicted: set[int] | str, gold: set[int] | str) -> float:
    if isinstance(predicted, str) or isinstance(gold, str):
        return float(predicted == gold)
    return 2 * len(predicted & gold) / (len(predicted) + len(gold))

"""Made papers with references of every kind and predictions: odd words, equal evidence, ids that are there twice."""

import random

from tests.tasks.released_files import qasper_answer

WORDS = ["the", "a", "An", "cat.", "Dog,", "“dog”", "U.S.", "3%", "x-y", "no", "é", "İ", "", "\u00a0", "\t"]
FLOATS = ["FLOAT SELECTED: Table 1", "a FLOAT SELECTED"]


def random_set(seed):
    """Papers, and predictions by question."""
    rng = random.Random(seed)

    def text(most=6):
        return " ".join(rng.choices(WORDS, k=rng.randint(0, most)))

    paragraphs = [text(4) for _ in range(6)] + FLOATS

    def evidence():
        return rng.choices(paragraphs, k=rng.randint(0, 3))

    def reference():
        kinds = [
            {"unanswerable": True},
            {"extractive_spans": [text() for _ in range(rng.randint(1, 3))]},
            {"free_form_answer": text() or "z"},
            {"yes_no": rng.random() < 0.5},
        ]
        return qasper_answer(evidence(), **rng.choice(kinds))

    def question():
        return {"question_id": f"q{rng.randint(0, 9)}", "answers": [reference() for _ in range(rng.randint(1, 4))]}

    papers = {f"p{k}": {"qas": [question() for _ in range(rng.randint(1, 3))]} for k in range(rng.randint(1, 3))}
    names = [question["question_id"] for paper in papers.values() for question in paper["qas"]]
    answers = [text(), "Yes", "No", "Unanswerable", text(2)]
    found = {name: {"answer": rng.choice(answers), "evidence": evidence()} for name in names if rng.random() < 0.9}
    return papers, found

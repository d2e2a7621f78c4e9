import json
import random

import pytest

from fairseq_poolingformer.tasks.hotpotqa import data as hotpotqa
from fairseq_poolingformer.tasks.shared.answers import find_answers, triviaqa_words
from fairseq_poolingformer.tasks.triviaqa import data as triviaqa
from tests.tasks.triviaqa.random_triviaqa import MAKERS, altered, phrase, write_set


def test_triviaqa_of_the_web_asks_for_an_answer_to_each_question_and_document(tmp_path):
    """The verified set has some questions and some of their documents, and the answers that people gave."""

    def question(name, verified, entities, results):
        pages = {
            key: [{"Filename": page, "DocPartOfVerifiedEval": page.startswith("v")} for page in pages]
            for key, pages in (("EntityPages", entities), ("SearchResults", results))
        }
        answer = {"NormalizedAliases": ["x y"], "HumanAnswers": [f"of {name}"]}
        return {"QuestionId": name, "QuestionPartOfVerifiedEval": verified, "Answer": answer, **pages}

    data = [question("a", True, ["v1.txt", "u.txt"], ["v2.txt"]), question("b", False, ["v3.txt"], [])]
    texts = {"a": ["x y", "of a"], "b": ["x y", "of b"]}
    every = {"a--v1.txt": texts["a"], "a--u.txt": texts["a"], "a--v2.txt": texts["a"], "b--v3.txt": texts["b"]}
    content = {"Data": data, "Domain": "Web", "VerifiedEval": False}
    gold, predictions = write_set(tmp_path, content, {"a--v1.txt": "the X-Y!", "a--v2.txt": "x", "c": "x y"})
    assert triviaqa.read_gold(gold) == every
    assert triviaqa.score([gold], predictions) == pytest.approx(
        {"exact_match": 25, "f1": 100 * (1 + 2 / 3) / 4, "examples": 4, "without_prediction": 2}
    )
    gold, predictions = write_set(tmp_path, {**content, "VerifiedEval": True}, {"b--v3.txt": "x y"})
    assert triviaqa.read_gold(gold) == {"a--v1.txt": texts["a"], "a--v2.txt": texts["a"]}
    with pytest.raises(ValueError, match="no key of the gold data has a prediction"):
        triviaqa.score([gold], predictions)
    gold, _ = write_set(tmp_path, {**content, "Domain": "Wikipedia"}, {})
    assert triviaqa.read_gold(gold) == texts


UNANSWERED = {"Domain": "Web", "Data": [{"QuestionId": "q"}]}
WITHOUT_ALIAS = {"Domain": "Wikipedia", "Data": [{"Answer": {"NormalizedAliases": []}}]}


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (triviaqa.read_gold, {"Data": []}, "'Domain' must be Wikipedia or Web"),
        (triviaqa.read_gold, UNANSWERED, "question 0: no 'Answer': those of a test set"),
        (triviaqa.read_gold, WITHOUT_ALIAS, "there must be one at least"),
        (hotpotqa.read_predictions, {"answer": {"a": 3}, "sp": {}}, "'a' must be a string"),
        (hotpotqa.read_predictions, {"answer": {}, "sp": {"a": [["T", "1"]]}}, "pairs of a title and the number of a"),
        # JSON readers would take the last of two predictions
        (triviaqa.read_predictions, '{"q": "x", "q": "y"}', "'q' comes a second time; leave one"),
        (hotpotqa.read_predictions, '{"answer": {"q": "x", "q": "y"}, "sp": {}}', "'q' comes a second time; leave one"),
    ],
)
def test_bad_files_are_named(tmp_path, read, content, message):
    (tmp_path / "p.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"p\.json.*{message}"):
        read(tmp_path / "p.json")


def test_finds_every_piece_that_counts_as_right():
    """The twin tries every piece of the text; ours are the right pieces that hold no other one."""
    rng = random.Random(1)
    hits = 0
    for _ in range(150):
        answer = phrase(rng)
        text = f"{phrase(rng)} {altered(rng, answer)} {phrase(rng)} {answer}"[:60]
        wanted = triviaqa_words(answer)
        pieces = [(i, j) for i in range(len(text)) for j in range(i + 1, len(text) + 1)] if wanted else []
        right = {(i, j) for i, j in pieces if triviaqa_words(text[i:j]) == wanted}
        shortest = {(i, j) for i, j in right if not any(i <= k and m <= j and (k, m) != (i, j) for k, m in right)}
        spans = find_answers(text, [answer, "something else"])
        assert set(spans) <= right
        inside = {k for k in range(1, len(text)) if text[k - 1].isalnum() and text[k].isalnum()}
        assert {(i, j) for i, j in shortest if i not in inside and j not in inside} <= set(spans)
        hits += len(spans)
    assert hits > 100


@pytest.mark.parametrize(("module", "kind"), [(triviaqa, "triviaqa"), (hotpotqa, "hotpotqa")])
def test_predictions_of_another_split_are_refused(tmp_path, module, kind):
    gold, predictions = MAKERS[kind](4, 12)
    files = write_set(tmp_path, gold, predictions)
    assert 0 < module.score([files[0]], files[1])["f1"] < 100
    _, other = write_set(tmp_path / "other", [], {"answer": {}, "sp": {}} if kind == "hotpotqa" else {"x": "y"})
    with pytest.raises(ValueError, match="gold data has a"):
        module.score([files[0]], other)

import json

import numpy as np
import pytest

from fairseq_poolingformer.tasks.triviaqa.data import TriviaqaSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import squad
from preprocess.pipeline.records import Record, Reject
from tests.preprocess.conftest import convert, rejects


def question(name, text, *answers, **more):
    return {"id": name, "question": text, "answers": [{"text": a, "answer_start": s} for a, s in answers], **more}


CONTEXT = "the théory of attention attends to it"
QUESTIONS = [
    [
        question(f"{number}a", "what attends", ("attention", 14), ("the théory", 0)),
        question(f"{number}b", "what else", ("attends", 24), is_impossible=True),  # only plausible
    ]
    for number in range(20)
]
ARTICLES = [{"title": f"T{n}", "paragraphs": [{"context": CONTEXT, "qas": qas}]} for n, qas in enumerate(QUESTIONS)]


def test_answers_are_their_tokens(tmp_path, capsys):
    (tmp_path / "train.json").write_text(json.dumps({"version": "v2.0", "data": ARTICLES}))
    assert convert(squad, tmp_path / "data", "--data", tmp_path / "train.json", "--valid-share", 0.3) == 0
    assert f"20 × {squad.NO_ANSWER}" not in capsys.readouterr().out  # of both splits together
    tokenizer = load_tokenizer(tmp_path / "data")
    titles = {}
    for split in ("train", "valid"):
        arrays = TriviaqaSplit.open(tmp_path / "data", split)
        ids = [json.loads(line) for line in (tmp_path / "data" / f"{split}.id.txt").read_text().splitlines()]
        titles[split] = {title for _, title in ids}
        for number, (name, _) in enumerate(ids):
            spans = arrays.answers(number)
            document = np.asarray(arrays.document[number])
            texts = [tokenizer.decode(document[first:end].tolist()).strip() for first, end in spans.tolist()]
            assert texts == ([] if name.endswith("b") else ["the théory", "attention"])
    assert titles["train"] | titles["valid"] == {f"T{number}" for number in range(20)}
    assert not titles["train"] & titles["valid"], "an article in both splits"


def parsed(**changes):
    fields = {"id": "x", "context": CONTEXT, **question("x", "what", ("attention", 14)), **changes}
    return squad.parse(Record("f", 1, json.dumps(fields).encode()), annotated=True)


def test_an_answer_beside_its_place_is_found_and_those_of_test_are_not_read(tmp_path):
    moved = parsed(answers=[{"text": "attention", "answer_start": 10}])
    assert (moved.answers, moved.notes) == (((14, 23),), (squad.MOVED,))
    row = {"id": "x", "context": CONTEXT, "question": "what"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    assert convert(squad, tmp_path / "data", "--test", tmp_path / "test.jsonl") == 0
    assert len(TriviaqaSplit.open(tmp_path / "data", "test")) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answers": [{"text": "nowhere", "answer_start": 0}]}, "answer that the context lacks: 'nowhere'"),
        ({"answers": [{"text": " ", "answer_start": 0}]}, "empty answer"),
        ({"answers": [{"text": "x", "answer_start": "0"}]}, "malformed: 'answer_start' must be an integer"),
        ({"answers": [3]}, "malformed: an answer must be a JSON object"),
        ({"answers": {"text": ["x"], "answer_start": []}}, "malformed: 1 texts of answers, and 0 places"),
        ({"answers": None}, "no answers"),
        ({"context": " "}, "empty document"),
        ({"question": ""}, "empty question"),
    ],
)
def test_what_is_no_question_says_why(changes, reason):
    result = parsed(**changes)
    assert isinstance(result, Reject)
    assert result.reason.startswith(reason)


def test_broken_paragraphs_are_rejected_and_the_others_go_on(tmp_path):
    article = {"title": "T", "paragraphs": [3, {"context": CONTEXT, "qas": ["x", *QUESTIONS[0]]}]}
    (tmp_path / "train.json").write_text(json.dumps({"data": [article, 7, {"title": "U", "paragraphs": None}]}))
    options = ("--train", tmp_path / "train.json", "--max-reject-fraction", 0.9)
    assert convert(squad, tmp_path / "data", *options) == 0
    reasons = [reject["reason"].partition(":")[0] for reject in rejects(tmp_path / "data")]
    assert reasons == ["malformed", "malformed", "wrong type", "malformed"]
    assert len((tmp_path / "data" / "train.id.txt").read_text().splitlines()) == 2

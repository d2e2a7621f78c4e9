"""QASPER from its released form to the official predictions of what was learned by heart."""

import json

import pytest
import torch

from fairseq_poolingformer.tasks.hotpotqa.head import HotpotqaLogits
from fairseq_poolingformer.tasks.qasper.examples import AnswerType, QasperSplit
from fairseq_poolingformer.tasks.qasper.task import QasperPredictor
from fairseq_poolingformer.tasks.shared.heads import MarkLogits, SpanLogits
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import qasper
from tests.tasks.released_files import QASPER_PAPER, QASPER_QUESTIONS, qasper_answer, write_qasper
from tests.tasks.test_triviaqa_hotpotqa import ENCODERS, figures, train
from tests.text.tiny_gpt2 import write_vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("qasper")
    gold = write_qasper(path / "qasper-train-v0.3.json")
    flags = ["--gpt2-bpe", write_vocabulary(path / "gpt2"), "--output-folder", path / "data", "--workers", 1]
    assert qasper.main(list(map(str, ["--train", gold, "--valid", gold, "--test", gold, *flags]))) == 0
    return path


def test_the_paper_is_its_title_sections_and_captions(folder):
    data = folder / "data"
    split, tokenizer = QasperSplit.open(data, "train"), load_tokenizer(data)
    paragraphs = [QASPER_PAPER["abstract"]]
    paragraphs += [text for section in QASPER_PAPER["full_text"] for text in section["paragraphs"] if text]
    paragraphs += ["FLOAT SELECTED: Table 1: Accuracy of 0.9."]
    assert json.loads(QasperSplit.lines(data, "train", "paragraphs")[0]) == paragraphs
    titles = [QASPER_PAPER["title"], "Introduction", "Method ::: Lexicon"]
    text = " ".join(
        [titles[0], paragraphs[0], titles[1], *paragraphs[1:3], titles[2], *paragraphs[3:5], *paragraphs[5:]]
    )
    assert tokenizer.decode(split.document[0]).strip() == text
    # the first question has two answers with this span and one that there is none
    assert [split.answer_type[k].tolist() for k in range(4)] == [
        [kind] for kind in (AnswerType.SPAN, AnswerType.NO, AnswerType.NONE, AnswerType.YES)
    ]
    ((first, end),) = split.answer[0].reshape(-1, 2)
    assert tokenizer.decode(split.document[0][first:end]).strip() == "thirty words é"
    supporting = [split.sentences(k)[:, 1].nonzero()[0].tolist() for k in range(4)]
    assert supporting == [[3], [4], [], [6]]
    assert QasperSplit.open(data, "test").answer_type.num_values == 0


def test_answers_and_evidence_are_learned_by_heart(folder):
    checkpoint = folder / "model.pt"
    logged = train(folder / "data", "qasper", ENCODERS["poolingformer"], checkpoint)
    assert {name: logged[name] for name in ("span", "type", "paragraph", "sentence")} == dict.fromkeys(
        ("span", "type", "paragraph", "sentence"), 1
    )
    found = figures(folder / "data", "qasper", checkpoint, folder / "qasper-train-v0.3.json")
    assert (found["answer_f1"], found["evidence_f1"], found["examples"]) == (100, 100, 4)
    lines = [json.loads(line) for line in checkpoint.with_name("model.predictions.json").read_text().splitlines()]
    assert [line["predicted_answer"] for line in lines] == ["thirty words é", "No", "Unanswerable", "Yes"]


def rejects(folder, questions, tmp_path, **paper):
    path = write_qasper(tmp_path / "x.json", questions)
    content = json.loads(path.read_text())
    content["1909.00694"] |= paper
    path.write_text(json.dumps(content))
    data = tmp_path / "data"
    flags = ["--gpt2-bpe", folder / "gpt2", "--output-folder", data, "--workers", 1, "--max-reject-fraction", 1]
    qasper.main(list(map(str, ["--train", path, *flags])))
    return [json.loads(line)["reason"] for line in (data / "train.rejects.jsonl").read_text().splitlines()]


def test_bad_questions_are_rejected_alone(folder, tmp_path):
    bad = [
        {**QASPER_QUESTIONS[0], "question_id": "b1", "answers": []},
        {**QASPER_QUESTIONS[0], "question_id": "b2", "answers": [qasper_answer()]},
        {**QASPER_QUESTIONS[0], "question_id": "b3", "question": " "},
        "question",
        {**QASPER_QUESTIONS[0]},
    ]
    assert rejects(folder, [*QASPER_QUESTIONS, *bad], tmp_path) == [
        "malformed: no answers",
        "malformed: an answer is neither unanswerable, extractive, free form nor yes or no",
        "empty question: question",
        "wrong type: the line is a string, not an object",
        "example id twice: q1 is the id of an earlier example",
    ]


def test_a_record_that_is_not_a_paper_is_named(folder, tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text('{"id": "a", "text": "b"}\n')
    flags = ["--gpt2-bpe", folder / "gpt2", "--output-folder", tmp_path / "data", "--workers", 1]
    assert qasper.main(list(map(str, ["--train", tmp_path / "x.jsonl", *flags]))) == 1
    assert "'question_id' must be a string, is missing" in capsys.readouterr().err


def test_evidence_is_what_is_probable_or_else_the_best_and_none_without_an_answer(folder, tmp_path):
    predictor = QasperPredictor(folder / "data", "valid")
    odds = torch.tensor([[-2.0, 1, -3, 0.5, -1, -1, -1], [-2, -1, -3, -5, -1.5, -4, -4], [3, 3, 3, 3, 3, 3, 3]])
    place, row = torch.arange(21) % 7, torch.arange(21) // 7
    spans = SpanLogits(*torch.zeros(2, 3, 4), torch.zeros(3, 4, dtype=torch.long), torch.arange(3), 3)
    kinds = torch.eye(4)[[AnswerType.YES, AnswerType.NO, AnswerType.NONE]]
    marks = MarkLogits(odds.flatten(), row, place, row, place)
    output = HotpotqaLogits(spans, kinds, marks, marks)
    predictor.add([0, 1, 2], output, {"net_input": {"src_tokens": torch.zeros(3, 4, dtype=torch.long)}})
    predictor.write(tmp_path / "p.jsonl")
    paragraphs = json.loads(QasperSplit.lines(folder / "data", "valid", "paragraphs")[0])
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [(line["question_id"], line["predicted_answer"], line["predicted_evidence"]) for line in found] == [
        ("q1", "Yes", [paragraphs[1], paragraphs[3]]),
        ("q2", "No", [paragraphs[1]]),
        ("q3", "Unanswerable", []),
    ]

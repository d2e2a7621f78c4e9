"""ContractNLI from its released form to the published predictions of what was learned by heart."""

import json

import pytest

from fairseq_poolingformer.tasks.contract_nli.examples import ContractNliSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import contract_nli
from tests.tasks.released_files import (
    CONTRACT,
    CONTRACT_ANNOTATIONS,
    CONTRACT_HYPOTHESES,
    CONTRACT_SPANS,
    write_contract_nli,
)
from tests.tasks.test_triviaqa_hotpotqa import ENCODERS, figures, train
from tests.text.tiny_gpt2 import write_vocabulary


def convert(folder, file, data, *more):
    flags = ["--gpt2-bpe", folder / "gpt2", "--output-folder", data, "--workers", 1, *more]
    return contract_nli.main(list(map(str, ["--train", file, *flags])))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("contract_nli")
    write_vocabulary(path / "gpt2")
    gold = write_contract_nli(path / "train.json")
    assert convert(path, gold, path / "data", "--valid", gold, "--test", gold) == 0
    return path


def test_every_hypothesis_about_a_contract_is_an_example(folder):
    data = folder / "data"
    split, tokenizer = ContractNliSplit.open(data, "train"), load_tokenizer(data)
    names = [json.loads(line) for line in ContractNliSplit.lines(data, "train")]
    assert names == [["34", name] for name in CONTRACT_HYPOTHESES]
    questions = [tokenizer.decode(split.question[k]).strip() for k in range(3)]
    assert questions == [x["hypothesis"] for x in CONTRACT_HYPOTHESES.values()]
    text = " ".join(CONTRACT[start:end] for start, end in CONTRACT_SPANS)
    assert [tokenizer.decode(split.document[k]).strip() for k in range(3)] == [text] * 3
    assert [split.answer_type[k].tolist() for k in range(3)] == [[1], [2], [0]]
    assert [split.sentences(k)[:, 1].nonzero()[0].tolist() for k in range(3)] == [[2], [3], []]
    assert ContractNliSplit.open(data, "test").answer_type.num_values == 0


def test_choices_and_evidence_are_learned_by_heart(folder):
    checkpoint = folder / "model.pt"
    train(folder / "data", "contract_nli", ENCODERS["poolingformer"], checkpoint)
    found = figures(folder / "data", "contract_nli", checkpoint, folder / "train.json")
    names = ("accuracy", "f1_entailment", "macro_f1_contradiction", "map", "precision_at_recall_80")
    assert {name: found[name] for name in names} == dict.fromkeys(names, 100)
    ((document,),) = [json.loads(checkpoint.with_name("model.predictions.json").read_text())]
    (annotations,) = [one["annotations"] for one in document["annotation_sets"]]
    assert {name: value["choice"] for name, value in annotations.items()} == {
        name: value["choice"] for name, value in CONTRACT_ANNOTATIONS.items()
    }
    assert {name: len(value["span_probs"]) for name, value in annotations.items()} == dict.fromkeys(annotations, 4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"spans": [[0, 8], [9, 999]]}, "malformed: spans must be pairs of places in the text"),
        ({"text": " "}, "empty document: no text or no spans"),
        ({"annotation_sets": []}, "malformed: 0 annotation sets; there must be one"),
        ({"annotations": {}}, "no annotation: of nda-1"),
        (
            {"annotations": {"nda-1": {"choice": "Maybe", "spans": []}}},
            "malformed: 'choice' must be one of",
        ),
        (
            {"annotations": {"nda-1": {"choice": "Entailment", "spans": [4]}}},
            "malformed: 'spans' must be numbers",
        ),
        ({"id": None}, "malformed: 'id' must be an integer or a string"),
    ],
)
def test_rejects(changes, reason, folder, tmp_path):
    convert(folder, write_contract_nli(tmp_path / "x.json", **changes), tmp_path / "data", "--max-reject-fraction", 1)
    first = json.loads((tmp_path / "data" / "train.rejects.jsonl").read_text().splitlines()[0])
    assert first["reason"].startswith(reason)


def test_another_file_is_named(folder, tmp_path, capsys):
    (tmp_path / "x.json").write_text('{"documents": []}')
    assert convert(folder, tmp_path / "x.json", tmp_path / "data") == 1
    assert "x.json: 'labels' must be a JSON object, is None; is this ContractNLI?" in capsys.readouterr().err

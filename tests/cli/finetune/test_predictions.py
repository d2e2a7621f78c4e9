"""``poolingformer predict`` on records: what is refused, and what is said."""

import json

import pytest
from transformers import RobertaForSequenceClassification

from fairseq_poolingformer.cli import predict, summarize
from tests.models import tiny_huggingface


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    kind = RobertaForSequenceClassification
    return tiny_huggingface.folder(tmp_path_factory.mktemp("judge") / "model", "roberta", kind, num_labels=2)


@pytest.fixture
def records(tmp_path):
    (tmp_path / "data").mkdir()
    for split, count in (("train", 3), ("test", 2)):
        lines = [json.dumps({"text": f"the thing {number}"}) for number in range(count)]
        (tmp_path / "data" / f"{split}.jsonl").write_text("\n".join(lines))
    return tmp_path / "data"


def run(data, model, output, *flags):
    return predict.main([str(word) for word in (data, "--model", model, "--output", output, "--device", "cpu", *flags)])


def test_all_records_or_those_of_a_subset(records, judge, tmp_path, capsys):
    output = tmp_path / "predictions.jsonl"
    for flags, count in (((), 5), (("--subset", "test"), 2), (("--text-column", "text", "--max-positions", 8), 5)):
        assert run(records, judge, output, *flags) == 0
        assert len(output.read_text().splitlines()) == count
    said = capsys.readouterr().err
    assert said.count(f"{output}: is replaced") == 2
    assert said.count("documents are longer than 8 tokens; their rest is cut off") == 1
    assert run(records, judge, output, "--subset", "valid") == 1
    assert "no --subset valid in it; leave it out to predict all records" in capsys.readouterr().err


def test_what_is_refused(records, judge, tmp_path, capsys):
    file = records / "test.jsonl"
    before = file.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        run(file, judge, file)
    assert file.read_bytes() == before
    for flags, message in ((["--text-column", "x"], "no column x"), (["--max-positions", 99], "model reads 46 tokens")):
        assert run(file, judge, tmp_path / "out", *flags) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(file, judge, tmp_path / "out", "--text-key", "x")


@pytest.mark.parametrize(
    "settings", [{"num_labels": 1}, {"num_labels": 3, "problem_type": "multi_label_classification"}]
)
def test_other_problems_than_one_label(records, tmp_path, capsys, settings):
    kind = RobertaForSequenceClassification
    model = tiny_huggingface.folder(tmp_path / "model", "roberta", kind, **settings)
    assert run(records, model, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert (
        f"num_labels {settings['num_labels']}, problem_type {settings.get('problem_type')}: predicts amounts or" in said
    )


def test_random_weights_are_refused(records, tmp_path, capsys):
    body = tiny_huggingface.folder(tmp_path / "body", "roberta")
    config = json.loads((body / "config.json").read_text())
    (body / "config.json").write_text(json.dumps(config | {"architectures": ["RobertaForSequenceClassification"]}))
    assert run(records, body, tmp_path / "out") == 1
    assert f"{body}: lacks weights that RobertaForSequenceClassification needs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "text.txt").write_text("the thing")
    short = tiny_huggingface.folder(tmp_path / "short", "bart")
    (short / "generation_config.json").write_text("[]")
    assert summarize.main(["--model", str(short), "--device", "cpu", str(tmp_path / "text.txt")]) == 1
    assert "generation_config.json: must hold an object" in capsys.readouterr().err

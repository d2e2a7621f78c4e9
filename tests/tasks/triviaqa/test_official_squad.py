"""SQuAD's figures of random and hostile predictions against the official scripts, where these are at hand."""

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fairseq_poolingformer.tasks.triviaqa import squad
from tests.tasks.triviaqa.random_triviaqa import altered, phrase

pytestmark = pytest.mark.full
SETS = 300  # of 1 to 20 predictions each


HOSTILE = [
    *("running", "don't", "2,500", "ß", "“quoted”", "١٢", "日本", "🙂", "a\u0301", "ﬁne", "4.5%", "%", "(B)", "C."),
    *("an.", "''", "\u200b", "\x1c", "\x85", "\u2028", "\ufeff", "NaN", "inf", "null", "!?", "40%", "٤٠%", "U.S."),
]


def text(source: random.Random) -> str:
    """A text; one in ten is empty or blank."""
    if source.random() < 0.1:
        return source.choice(["", " ", "\n", ".", "the", "a an the"])
    return " ".join([phrase(source), *source.choices(HOSTILE, k=source.randrange(4)), phrase(source)])


@pytest.fixture
def official(pytestconfig):
    """Imports an official file."""

    def load(name: str) -> ModuleType:
        path = Path(pytestconfig.getoption("--official-qa-scripts", default=None) or "/no/folder") / name
        if not path.is_file():
            pytest.skip(f"needs --official-qa-scripts FOLDER with {name}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def predictions_of(source):
    """Texts by id, and the right ones; the ids are in another order in the gold data."""
    gold = {f"q{n}": [text(source) for _ in range(source.randint(1, 3))] for n in range(source.randint(1, 20))}
    predictions = {
        name: altered(source, source.choice(gold[name])) if source.random() < 0.6 else text(source)
        for name in source.sample(sorted(gold), len(gold))
    }
    return gold, predictions


def squad_file(gold):
    questions = [{"id": name, "answers": [{"text": text} for text in texts]} for name, texts in gold.items()]
    return {"version": "1.1", "data": [{"paragraphs": [{"qas": questions[:3]}, {"qas": questions[3:]}]}]}


def test_squad_v1(official, tmp_path):
    script = official("evaluate-v1.1.py")
    source = random.Random(2)
    for _ in range(SETS):
        gold, predictions = predictions_of(source)
        predictions = {name: text for name, text in predictions.items() if source.random() < 0.9} | {"other": "x"}
        (tmp_path / "gold.json").write_text(json.dumps(squad_file(gold)))
        assert squad.read_gold([tmp_path / "gold.json"]) == (gold, False)
        assert squad.score_v1(gold, predictions) == script.evaluate(squad_file(gold)["data"], predictions)


def test_squad_v2(official, tmp_path, monkeypatch, capsys):
    script = official("evaluate-v2.0.py")
    source = random.Random(3)
    for _ in range(SETS):
        gold, predictions = predictions_of(source)
        for name in gold:
            if source.random() < 0.4:
                gold[name] = []
                predictions[name] = source.choice(["", predictions[name]])
        predictions["other"] = "x"
        files = {"data_file": squad_file(gold), "pred_file": predictions}
        for name, content in files.items():
            (tmp_path / name).write_text(json.dumps(content))
        options = {name: str(tmp_path / name) for name in files} | {"na_prob_file": None, "na_prob_thresh": 1.0}
        options |= {"out_image_dir": None, "out_file": str(tmp_path / "out"), "verbose": False}
        monkeypatch.setattr(script, "OPTS", SimpleNamespace(**options))
        script.main()
        expected = json.loads((tmp_path / "out").read_text())
        assert squad.score_v2(gold, predictions) == expected, (gold, predictions)

"""SQuAD's figures of random and hostile predictions against the official scripts, where these are at hand."""

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fairseq_poolingformer.tasks.triviaqa import squad

pytestmark = pytest.mark.full
SETS = 300  # of 1 to 20 predictions each
WORDS = [
    *("the", "a", "An", "THE", "cat", "cats", "sat", "on", "mat", "running", "runs", "U.S.", "don't", "x-ray", "2,500"),
    *("théâtre", "naïve", "İstanbul", "ß", "Straße", "½", "“quoted”", "–", "…", "١٢", "日本", "🙂", "a\u0301", "ﬁne"),
    *("40%", "4.5%", "٤٠%", "100.%", "%", "A", "(B)", "C.", "D,", "E", "AB", "_", "__a__", "an.", ".", "!?", "''", '"'),
    *("1,", "2,", "3", "4,3", "\u200b", "\x1c", "\x85", "\u2028", "\ufeff", "NaN", "inf", "null", "yes", "no"),
]
BLANKS = (" ", " ", " ", "  ", "\n", "\t", "\u00a0", "", ". ", ".\n\n")


def text(source: random.Random, longest: int = 12) -> str:
    """A text of at most so many words; one in ten is empty or blank."""
    if source.random() < 0.1:
        return source.choice(["", " ", "\n", ".", "the", "a an the"])
    words = source.choices(WORDS, k=source.randint(1, longest))
    return "".join(word + source.choice(BLANKS) for word in words)


def altered(source: random.Random, original: str) -> str:
    """A text that is like another one."""
    words = original.split()
    changed = [word for word in words if source.random() < 0.8] + [source.choice(WORDS)] * (source.random() < 0.4)
    if source.random() < 0.2:
        source.shuffle(changed)
    return source.choice([original, " ".join(changed), " ".join(changed).upper(), f"The {original}!"])


@pytest.fixture
def official(pytestconfig):
    """Imports an official file."""
    folder = pytestconfig.getoption("--official-qa-scripts", default=None)

    def load(name: str) -> ModuleType:
        path = Path(folder or "") / name
        if folder is None or not path.is_file():
            pytest.skip(f"needs --official-qa-scripts FOLDER with {name}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def predictions_of(source):
    """Texts by id, and the right ones; the ids are in another order in the gold data."""
    gold = {
        f"q{number}": [text(source) for _ in range(source.randint(1, 3))] for number in range(source.randint(1, 20))
    }
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

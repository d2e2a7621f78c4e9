"""Figures of random and hostile predictions against the official scripts, where these are at hand."""

import importlib.util
import json
import random
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fairseq_poolingformer.tasks.presets import SUITES, metrics, scores, squad
from tests.tasks.presets.random_texts import altered, text

SETS = 300  # of 1 to 20 predictions each


@pytest.fixture
def official(pytestconfig, monkeypatch):
    """Imports an official file."""
    folder = pytestconfig.getoption("--official-qa-scripts", default=None)

    def load(name: str) -> ModuleType:
        path = Path(folder or "") / name
        if folder is None or not path.is_file():
            pytest.skip(f"needs --official-qa-scripts FOLDER with {name}")
        module_name = ".".join(path.relative_to(folder).with_suffix("").parts)
        monkeypatch.syspath_prepend(folder)
        spec = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def predictions_of(source, make=text, most=3):
    """Texts by id, and the right ones; the ids are in another order in the gold data."""
    gold = {
        f"q{number}": [make(source) for _ in range(source.randint(1, most))] for number in range(source.randint(1, 20))
    }
    predictions = {
        name: altered(source, source.choice(gold[name])) if source.random() < 0.6 else make(source)
        for name in source.sample(sorted(gold), len(gold))
    }
    return gold, predictions


class Pool:
    """multiprocessing's, in this process."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def starmap(self, function, arguments):
        return [function(*one) for one in arguments]


def test_scrolls(official, monkeypatch):
    """R-Lsum apart, which the score does not take in and which nltk's sentences decide."""

    class Metric:
        def __init__(self, config_name):
            self.config_name = config_name

    docstrings = SimpleNamespace(file_utils=SimpleNamespace(add_start_docstrings=lambda *_: lambda cls: cls))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Metric=Metric, utils=docstrings))
    script = official("scrolls/scrolls.py")
    rouge = sys.modules["scrolls.rouge"]
    monkeypatch.setattr(rouge, "Pool", Pool)
    monkeypatch.setattr(rouge.nltk, "sent_tokenize", lambda text: re.split(r"(?<=[.?!])\s+", text.strip()))
    source = random.Random(0)
    checked = 0
    for _ in range(SETS):
        gold, predictions = predictions_of(source)
        found = {}
        for task in SUITES["scrolls"]:
            metric = script.Scrolls(task)
            expected = metric._compute(**metric.convert_from_map_format(predictions, gold))
            figures, _ = scores.score(f"scrolls/{task}", gold, predictions)
            names = {name: name.removeprefix("rouge/") for name in expected if name != "rouge/rougeLsum"}
            shared = {name: expected[name] for name, own in names.items() if own in figures}
            assert {name: figures[names[name]] for name in shared} == shared, (task, gold, predictions)
            assert {"num_predicted", *expected["display_keys"]} <= shared.keys()
            found[task] = figures[metrics.METRICS[scores.PRESETS[f"scrolls/{task}"].metric].score]
            assert found[task] == expected["scrolls_score"]
        checked += len(predictions)
    print(f"{checked} predictions of each task")


def of_zero_scrolls(kind, source):
    """A text that may be a right answer, or makes one."""
    if kind == "accuracy":
        return f"{text(source, 2)} ({source.choice('ABCD')}) {text(source, 3)}"
    if kind == "exponential_similarity":
        return f"{text(source, 2)} {source.choice(['40', '4.', '99.9', '0', '٤٠', '100'])}% {text(source, 3)}"
    if kind == "concordance_index":
        numbers = source.sample(range(1, 7), 6)[: source.randint(2, 6)]
        order = sorted(numbers) and source.sample(range(1, len(numbers) + 1), len(numbers))
        return source.choice(["", "Order: ", "(x)\t"]) + source.choice([", ", " ", ",", ",\n"]).join(map(str, order))
    return text(source)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("f1_ascii", "compute_f1"),
        ("accuracy", "compute_accuracy"),
        ("exponential_similarity", "compute_exp_similarity"),
        ("concordance_index", "compute_concordance_index"),
    ],
)
def test_zero_scrolls(official, kind, function):
    script = official("zero_scrolls.py")
    source = random.Random(1)
    for _ in range(SETS):
        gold, predictions = predictions_of(source, lambda source: of_zero_scrolls(kind, source))
        texts = list(predictions.values())
        references = [gold[name] for name in predictions]
        metric = metrics.METRICS[kind]
        found = metric.figures(metric.values(texts, references))[metric.score]
        assert found == getattr(script, function)(texts, references), (texts, references)


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

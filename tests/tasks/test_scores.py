"""Figures of WikiHop and classification, against counts by hand and scikit-learn, and files that are wrong."""

import json
import random

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.classification import data as document_classification_scores
from fairseq_poolingformer.tasks.wikihop import data as wikihop_scores


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def question(name, answer, candidates=("a", "b", "c")):
    return {"id": name, "query": "q", "candidates": list(candidates), "supports": [], "answer": answer}


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([question("1", "a")], {"1": "d"}, "p.json, 1: 'd' is no candidate of that question"),
        ([question("1", "a")], {"2": "a"}, "p.json: the gold files do not have '2'"),
        ([question("1", "a"), question("1", "a")], {}, "gold.json, element 2: id 1 is there twice"),
        ({}, {}, "gold.json: must hold a list"),
    ],
)
def test_wrong_files_of_wikihop_are_named(tmp_path, gold, predicted, message):
    files = [write(tmp_path / "gold.json", gold)]
    with pytest.raises(ValueError, match=message):
        wikihop_scores.score(files, write(tmp_path / "p.json", predicted))


def write_json_lines(path, labels):
    path.write_text("".join(json.dumps({"id": k, "label": v}) + "\n" for k, v in labels.items()))
    return path


@pytest.mark.parametrize("seed", range(5))
def test_classification_equals_scikit_learn(tmp_path, seed):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random.Random(seed)
    names = ["a", "b", "c"][: 2 + seed % 2]
    gold = {str(k): rng.choice(names) for k in range(40)}
    found = {k: v if rng.random() < 0.6 else rng.choice(names) for k, v in gold.items() if rng.random() < 0.9}
    files = [write_json_lines(tmp_path / "gold.jsonl", gold)]
    figures = document_classification_scores.score(files, write_json_lines(tmp_path / "p.jsonl", found))
    right, predicted = [gold[k] for k in found], list(found.values())
    assert figures["accuracy"] == pytest.approx(100 * metrics.accuracy_score(right, predicted))
    wanted = metrics.precision_recall_fscore_support(right, predicted, labels=names, zero_division=0)
    for number, name in enumerate(names):
        for kind, values in zip(("precision", "recall", "f1"), wanted[:3], strict=True):
            assert figures[f"{kind}_{name}"] == pytest.approx(100 * values[number])
    assert (figures["examples"], figures["without_prediction"]) == (len(found), 40 - len(found))


@pytest.mark.parametrize("seed", range(5))
def test_several_labels_equal_scikit_learn(tmp_path, seed):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random.Random(seed)
    names = ["a", "b", "c", "d"]
    gold, found = ({k: rng.sample(names, rng.randint(0, 3)) for k in range(40)} for _ in range(2))
    gold[0], gold[1] = names, "a"  # one label need not be in a list
    figures = document_classification_scores.score(
        [write_json_lines(tmp_path / "gold.jsonl", gold)], write_json_lines(tmp_path / "p.jsonl", found)
    )
    right, predicted = ([[name in labels[k] for name in names] for k in range(40)] for labels in (gold, found))
    assert figures["accuracy"] == pytest.approx(100 * metrics.accuracy_score(right, predicted))
    options = {"zero_division": 0}
    for average, suffix in (("micro", ""), (None, "_a")):
        wanted = metrics.precision_recall_fscore_support(right, predicted, average=average, **options)[:3]
        wanted = [value if average else value[0] for value in wanted]
        assert [figures[f"{kind}{suffix}"] for kind in ("precision", "recall", "f1")] == pytest.approx(
            [100 * value for value in wanted]
        )
    assert figures["macro_f1"] == pytest.approx(100 * metrics.f1_score(right, predicted, average="macro", **options))


@pytest.mark.parametrize("seed", range(5))
def test_amounts_equal_scipy(tmp_path, seed):
    stats = pytest.importorskip("scipy.stats")
    rng = random.Random(seed)
    gold = {k: rng.choice([rng.randint(0, 3), rng.random(), str(rng.randint(0, 3))]) for k in range(40)}
    found = {k: rng.choice([0.25, rng.random()]) for k in range(39)}
    figures = document_classification_scores.score(
        [write_json_lines(tmp_path / "gold.jsonl", gold)], write_json_lines(tmp_path / "p.jsonl", found)
    )
    right, predicted = [float(gold[k]) for k in found], list(found.values())
    assert figures["pearson"] == pytest.approx(100 * stats.pearsonr(right, predicted).statistic)
    assert figures["spearman"] == pytest.approx(100 * stats.spearmanr(right, predicted).statistic)
    assert figures["mse"] == pytest.approx(sum((x - y) ** 2 for x, y in zip(right, predicted, strict=True)) / 39)
    assert (figures["examples"], figures["without_prediction"]) == (39, 1)


def test_amounts_without_a_correlation_and_labels_that_are_none(tmp_path):
    gold = write_json_lines(tmp_path / "gold.jsonl", {1: 1, 2: 2})
    same = write_json_lines(tmp_path / "p.jsonl", {1: 0.5, 2: 0.5})
    assert document_classification_scores.score([gold], same)["pearson"] == 0
    names = write_json_lines(tmp_path / "names.jsonl", {1: "x", 2: "y"})
    with pytest.raises(ValueError, match=r"p\.jsonl: amounts, and a label is not a number"):
        document_classification_scores.score([names], same)
    with pytest.raises(ValueError, match=r'gold\.csv: not lines of JSON with "id" and "label"; make one of each row'):
        document_classification_scores.score([tmp_path / "gold.csv"], same)


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_amounts_that_are_not_finite_are_refused(tmp_path, amount):
    """A training that came to nothing predicts them."""
    gold = write_json_lines(tmp_path / "gold.jsonl", {1: 1.5, 2: 2})
    with pytest.raises(ValueError, match=r"p\.jsonl, line 1: no label: .* or a finite amount"):
        document_classification_scores.score([gold], write_json_lines(tmp_path / "p.jsonl", {1: amount, 2: 1.5}))


def test_whole_numbers_are_amounts_beside_fractions_and_else_labels(tmp_path):
    whole, fractions, floats = (
        write_json_lines(tmp_path / f"{number}.jsonl", labels)
        for number, labels in enumerate([{1: 1, 2: 2}, {1: 1.5, 2: 2.5}, {1: 1.0, 2: 1.0}])
    )
    assert document_classification_scores.score([fractions], whole)["mse"] == 0.25
    assert document_classification_scores.score([floats], whole)["accuracy"] == 50


def test_gold_in_every_released_format(tmp_path):
    for label in ("pos", "neg"):
        (tmp_path / "test" / label).mkdir(parents=True)
        (tmp_path / "test" / label / "0_3.txt").write_text("x")
    found = write_json_lines(tmp_path / "p.jsonl", {"test/pos/0_3": "pos", "test/neg/0_3": "pos"})
    figures = document_classification_scores.score([tmp_path / "test"], found)
    assert (figures["accuracy"], figures["recall_pos"], figures["recall_neg"]) == (50, 100, 0)
    articles = '<article id="1" hyperpartisan="true"/><article id="2" hyperpartisan="false"/>'
    (tmp_path / "truth.xml").write_text(f"<articles>{articles}</articles>")
    found = write_json_lines(tmp_path / "p.jsonl", {"1": "true"})
    assert document_classification_scores.score([tmp_path / "truth.xml"], found)["f1_true"] == 100
    with pytest.raises(ValueError, match="do not have '3'"):
        document_classification_scores.score(
            [tmp_path / "truth.xml"], write_json_lines(tmp_path / "p.jsonl", {"3": "true"})
        )
    zeros = write_json_lines(tmp_path / "p.jsonl", {"0001": "true"})
    with pytest.raises(ValueError, match="do not have '0001'; their '1' is another id"):
        document_classification_scores.score([tmp_path / "truth.xml"], zeros)
    found = write_json_lines(tmp_path / "p.jsonl", {"2": "false"})  # no document of one label is in the split
    figures = document_classification_scores.score([tmp_path / "truth.xml"], found)
    assert [figures[f"{kind}_true"] for kind in ("precision", "recall", "f1")] == [0, 0, 0]
    (tmp_path / "twice.jsonl").write_text('{"id": 1, "label": "true"}\n{"id": "1", "label": "false"}\n')
    with pytest.raises(ValueError, match=r"twice.jsonl, line 2: id 1 is there twice"):
        document_classification_scores.score([tmp_path / "truth.xml"], tmp_path / "twice.jsonl")


def _squad(path):
    qas = [{"id": name, "answers": [{"text": "x"}]} for name in "abc"]
    return write(path, {"data": [{"paragraphs": [{"qas": qas}]}]})


def _triviaqa(path):
    data = [{"QuestionId": name, "Answer": {"NormalizedAliases": ["x"]}} for name in "abc"]
    return write(path, {"Domain": "Wikipedia", "Data": data})


def _hotpotqa(path):
    return write(path, [{"_id": name, "answer": "x", "supporting_facts": [["t", 0]]} for name in "abc"])


def _conll(path, names="abc"):
    documents = [f"#begin document ({n}); part 000\n{n} 0 0 x - (1)\n{n} 0 1 y - (1)\n\n#end document\n" for n in names]
    path.write_text("".join(documents))
    return path


def _lines(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _wikihop(path):
    return write(path, [question(name, "x", ["x", "y"]) for name in "abc"])


def _texts(path):
    return write(path, dict.fromkeys("ab", "x"))


PART = {  # task: how gold data of a, b, c, and right predictions of a and b, are written; the figure
    "wikihop": (_wikihop, _texts, "accuracy"),
    "squad": (_squad, _texts, "exact_match"),
    "triviaqa": (_triviaqa, _texts, "f1"),
    "hotpotqa": (
        _hotpotqa,
        lambda p: write(p, {"answer": dict.fromkeys("ab", "x"), "sp": {n: [["t", 0]] for n in "ab"}}),
        "joint_f1",
    ),
    "coreference": (_conll, lambda p: _conll(p, "ab"), "muc_recall"),
}


@pytest.mark.parametrize("task", PART)
def test_a_part_of_the_gold_data_is_scored_where_that_is_asked_for(tmp_path, task):
    """And intervals of the figures that are means over examples."""
    make_gold, make_predictions, figure = PART[task]
    words = ["--task", task, str(make_predictions(tmp_path / "p")), "--gold", str(make_gold(tmp_path / "gold"))]
    found = []
    for flags in ([], ["--predicted-only"]):
        assert score.main([*words, "--json", str(tmp_path / "s"), "--intervals", *flags]) == 0
        read = json.loads((tmp_path / "s").read_text())
        found.append((read[figure], read["examples"], read["without_prediction"]))
    assert found == [(pytest.approx(200 / 3), 3, 1), (100, 2, 1)]
    assert read["intervals"].get(figure) == (None if task == "coreference" else [100, 100])

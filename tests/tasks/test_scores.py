import gzip
import json
import random

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.classification import scores as document_classification_scores
from fairseq_poolingformer.tasks.wikihop import data as wikihop_scores


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def question(name, answer, candidates=("a", "b", "c")):
    return {"id": name, "query": "q", "candidates": list(candidates), "supports": [], "answer": answer}


def write_json_lines(path, labels):
    rows = labels.items() if isinstance(labels, dict) else labels
    path.write_text("".join(json.dumps({"id": name, "label": label}) + "\n" for name, label in rows))
    return path


def scored(tmp_path, gold, predicted):
    """The figures of labels by id."""
    files = [write_json_lines(tmp_path / name, labels) for name, labels in (("gold", gold), ("p.jsonl", predicted))]
    return document_classification_scores.score(files[:1], files[1])


@pytest.mark.parametrize("seed", range(5))
def test_classification_equals_scikit_learn(tmp_path, seed):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random.Random(seed)
    names = ["a", "b", "c"][: 2 + seed % 2]
    gold = {str(k): rng.choice(names) for k in range(40)}
    answers = {k: v if rng.random() < 0.6 else rng.choice(names) for k, v in gold.items() if rng.random() < 0.9}
    figures = scored(tmp_path, gold, answers)
    right, predicted = [gold[k] for k in answers], list(answers.values())
    assert figures["accuracy"] == pytest.approx(100 * metrics.accuracy_score(right, predicted))
    macro = metrics.f1_score(right, predicted, labels=names, average="macro", zero_division=0)
    assert figures["macro_f1"] == pytest.approx(100 * macro)
    wanted = metrics.precision_recall_fscore_support(right, predicted, labels=names, zero_division=0)
    for number, name in enumerate(names):
        for kind, values in zip(("precision", "recall", "f1"), wanted[:3], strict=True):
            assert figures[f"{kind}_{name}"] == pytest.approx(100 * values[number])
    assert (figures["examples"], figures["without_prediction"]) == (len(answers), 40 - len(answers))


def test_whole_numbers_of_tables_and_lists_of_one_are_labels(tmp_path):
    figures = scored(tmp_path, {1: 1, 2: ["x"], 3: True}, {1: 1.0, 2: "x", 3: "1"})
    assert (figures["accuracy"], figures["recall_true"]) == (pytest.approx(200 / 3), 0)


ARTICLES = '<article id="1" hyperpartisan="true"/><article id="2" hyperpartisan="false"/>'
XML = f"<articles>{ARTICLES}</articles>"


@pytest.mark.parametrize(
    ("module", "gold", "predicted", "message"),
    [
        ("wikihop", [question("1", "a")], {"1": "d"}, "p, 1: 'd' is no candidate of that question"),
        ("wikihop", [question("1", "a")], {"2": "a"}, "p: the gold files do not have '2'"),
        ("wikihop", [question("1", "a"), question("1", "a")], {}, "gold, element 2: id 1 is there twice"),
        ("wikihop", {}, {}, "gold: must hold a list"),
        ("labels", "gold.csv", {1: "x"}, r"gold\.csv, line 2: no label: 'label' must be a string"),
        ("labels", {1: "x", 2: "y"}, {1: 0.5, 2: "x"}, "p, line 1: no label: 'label' must be a string, a whole number"),
        ("labels", {1: "x", 2: ["x", "y"]}, {1: "x"}, "gold, line 2: several labels: 'label' is a list of 2"),
        ("labels", "truth.xml", {"3": "true"}, "do not have '3'"),
        ("labels", "truth.xml", {"0001": "true"}, "do not have '0001'; their '1' is another id"),
        ("labels", "truth.xml", [(1, "true"), ("1", "false")], "p, line 2: id 1 is there twice"),
    ],
)
def test_wrong_files_are_named(tmp_path, module, gold, predicted, message):
    (tmp_path / "truth.xml").write_text(XML)
    (tmp_path / "gold.csv").write_text("id,sentiment\n1,x\n")
    scores, writes = (
        (wikihop_scores, write) if module == "wikihop" else (document_classification_scores, write_json_lines)
    )
    path = tmp_path / gold if isinstance(gold, str) else writes(tmp_path / "gold", gold)
    with pytest.raises(ValueError, match=message):
        scores.score([path], writes(tmp_path / "p", predicted))


def test_gold_in_every_format_of_preprocessing(tmp_path):
    zstandard, pyarrow = pytest.importorskip("zstandard"), pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    files = "truth.xml.gz", "lines.jsonl.gz", "lines.zst", "array.json", "rows.parquet"
    for label in ("pos", "neg"):
        (tmp_path / "test" / label).mkdir(parents=True)
        (tmp_path / "test" / label / "0_3.txt").write_text("x")
    (tmp_path / "truth.xml").write_text(XML)
    (tmp_path / "truth.xml.gz").write_bytes(gzip.compress(XML.encode()))
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "label": "true"}\n'))
    (tmp_path / "lines.zst").write_bytes(zstandard.compress(b'{"id": "1", "label": "true"}\n'))
    (tmp_path / "rows.csv").write_text('text,label\n"a, b",true\nc,false\n')
    (tmp_path / "array.json").write_text('[\n{"id": 1, "label": "true"}]')
    pyarrow.parquet.write_table(pyarrow.table({"id": ["1"], "label": ["true"]}), tmp_path / "rows.parquet")
    for gold, predictions, expected in (
        ("test", {"test/pos/0_3": "pos", "test/neg/0_3": "pos"}, {"accuracy": 50, "recall_pos": 100, "recall_neg": 0}),
        ("test", {"pos/0_3": "pos", "neg/0_3": "pos"}, {"accuracy": 50}),  # of preprocess labelled_text
        ("truth.xml", {"1": "true"}, {"f1_true": 100}),
        ("rows.csv", {"rows.csv:2": "true", "rows.csv:3": "true"}, {"accuracy": 50}),
        *((name, {"1": "true"}, {"accuracy": 100}) for name in files),
        # no document of one label is in the split
        ("truth.xml", {"2": "false"}, {"precision_true": 0, "recall_true": 0, "f1_true": 0}),
    ):
        paths = [tmp_path / gold], write_json_lines(tmp_path / "p.jsonl", predictions)
        assert expected.items() <= document_classification_scores.score(*paths).items()


def _conll(path, names="abc"):
    documents = [f"#begin document ({n}); part 000\n{n} 0 0 x - (1)\n{n} 0 1 y - (1)\n\n#end document\n" for n in names]
    path.write_text("".join(documents))
    return path


TRIVIA = [{"QuestionId": name, "Answer": {"NormalizedAliases": ["x"]}} for name in "abc"]
HOTPOT = [{"_id": name, "answer": "x", "supporting_facts": [["t", 0]]} for name in "abc"]
TEXTS = dict.fromkeys("ab", "x")
PART = {  # task: gold data of a, b, c, and right predictions of a and b; the figure
    "wikihop": ([question(name, "x", ["x", "y"]) for name in "abc"], TEXTS, "accuracy"),
    "triviaqa": ({"Domain": "Wikipedia", "Data": TRIVIA}, TEXTS, "f1"),
    "hotpotqa": (HOTPOT, {"answer": TEXTS, "sp": {name: [["t", 0]] for name in "ab"}}, "joint_f1"),
    "coreference": ("abc", "ab", "muc_recall"),
}


@pytest.mark.parametrize("task", PART)
def test_a_part_of_the_gold_data_is_scored_where_that_is_asked_for(tmp_path, task):
    gold, predictions, figure = PART[task]
    make = _conll if task == "coreference" else write
    words = ["--task", task, str(make(tmp_path / "p", predictions)), "--gold", str(make(tmp_path / "gold", gold))]
    results = []
    for flags in ([], ["--predicted-only"]):
        assert score.main([*words, "--json", str(tmp_path / "s"), *flags]) == 0
        read = json.loads((tmp_path / "s").read_text())
        results.append((read[figure], read["examples"], read["without_prediction"]))
    assert results == [(pytest.approx(200 / 3), 3, 1), (100, 2, 1)]

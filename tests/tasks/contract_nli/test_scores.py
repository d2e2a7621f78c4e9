"""ContractNLI's figures against scikit-learn's, by which the published evaluator computes them; wrong files."""

import json

import numpy as np
import pytest

from fairseq_poolingformer.cli import score as command
from fairseq_poolingformer.tasks.contract_nli.scores import (
    Annotation,
    Choice,
    Prediction,
    annotation_of,
    evidence_figures,
    figures,
    score,
)
from tests.tasks.released_files import CONTRACT_ANNOTATIONS, write_contract_nli


def naive_precision_at_recall(is_evidence, probability, recall=0.8):
    for threshold in sorted(set(probability), reverse=True):
        chosen = probability >= threshold
        hits = (chosen & is_evidence).sum()
        if hits / is_evidence.sum() >= recall:
            return hits / chosen.sum()


@pytest.mark.parametrize("seed", range(3))
def test_figures_equal_scikit_learns(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    for _ in range(30):
        size = int(rng.integers(1, 40))
        is_evidence = rng.random(size) < 0.3
        is_evidence[rng.integers(size)] = True
        probability = rng.random(size).round(int(rng.integers(1, 4)))  # some are equal
        found = evidence_figures(is_evidence, probability)
        assert found["map"] == pytest.approx(metrics.average_precision_score(is_evidence, probability), abs=1e-12)
        assert found["precision_at_recall_80"] == naive_precision_at_recall(is_evidence, probability)
    right, choices = rng.integers(0, 3, 40), rng.random((40, 3))
    pairs = [
        (Annotation(Choice(one), ()), Prediction(row, np.zeros(2))) for one, row in zip(right, choices, strict=True)
    ]
    found, predicted = figures(pairs), choices.argmax(1)
    assert found["accuracy"] == metrics.accuracy_score(right, predicted)
    wanted = metrics.precision_recall_fscore_support(right, predicted, labels=[1, 2], zero_division=0)
    for number, name in enumerate(("entailment", "contradiction")):
        own = [found[f"{kind}_{name}"] for kind in ("precision", "recall", "f1")]
        assert own == pytest.approx([values[number] for values in wanted[:3]], abs=1e-12)
    assert found["map"] is None  # no evidence


def prediction(choice, spans, **change):
    probabilities = {one.name: 0.8 if one.name == choice else 0.1 for one in Choice}
    return {"choice": choice, "class_probs": probabilities, "span_probs": spans} | change


def write(path, annotations, name=34):
    path.write_text(json.dumps([{"id": name, "annotation_sets": [{"annotations": annotations}]}]))
    return path


def test_means_over_documents_and_over_hypotheses(tmp_path):
    gold = write_contract_nli(tmp_path / "gold.json")
    found = {
        "nda-1": prediction("Entailment", [0.1, 0.2, 0.9, 0.3]),
        "nda-2": prediction("Entailment", [0.95, 0.1, 0.1, 0.5]),
        "nda-3": prediction("NotMentioned", [0.99, 0.1, 0.1, 0.1]),  # whose spans do not count
    }
    assert (
        command.main([str(write(tmp_path / "p.json", found)), "--gold", str(gold)]) == 0
    )  # the file tells whose it is
    values = score([gold], tmp_path / "p.json")
    assert values["accuracy"] == pytest.approx(100 * 2 / 3)
    assert (values["precision_entailment"], values["recall_entailment"]) == (50, 100)
    assert (values["f1_contradiction"], values["macro_f1_entailment"]) == (0, 100)
    assert values["map"] == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)
    assert values["macro_map"] == pytest.approx(100 * (1 + 1 / 2) / 2)
    assert values["precision_at_recall_80"] == pytest.approx(100 * 2 / 3)
    assert (values["examples"], values["without_prediction"]) == (3, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"nda-9": prediction("Entailment", [0] * 4)}, r"p.json: the gold files do not have \('34', 'nda-9'\)"),
        ({"nda-1": prediction("Entailment", [0] * 3)}, "p.json, document 34: 3 spans, and it has 4"),
        ({"nda-1": CONTRACT_ANNOTATIONS["nda-1"]}, "p.json, document 34: 'class_probs' must be a JSON object"),
        ({"nda-1": prediction("Entailment", ["x"])}, "p.json, document 34: 'class_probs' must have a number"),
        ({"nda-1": prediction("Entailment", [0, 0, 0, np.nan])}, "p.json, document 34: 'class_probs' must have a"),
        ({}, "p.json: no predictions in it"),
    ],
)
def test_wrong_files_are_named(content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        score([write_contract_nli(tmp_path / "gold.json")], write(tmp_path / "p.json", content))


def test_what_comes_twice_and_choices_that_are_none(tmp_path):
    gold, path = write_contract_nli(tmp_path / "gold.json"), tmp_path / "p.json"
    (document,) = json.loads(write(path, {"nda-1": prediction("Entailment", [0] * 4)}).read_text())
    path.write_text(json.dumps([document, document | {"id": "34"}]))
    with pytest.raises(ValueError, match=r"p\.json, document 34: 'nda-1' comes a second time"):
        score([gold], path)
    release = json.loads(gold.read_text())
    release["documents"] *= 2
    gold.write_text(json.dumps(release))
    with pytest.raises(ValueError, match=r"gold\.json, document 34: 'nda-1' comes a second time"):
        score([gold], path)
    with pytest.raises(ValueError, match="'choice' must be one of NotMentioned, Entailment, Contradiction, is "):
        annotation_of({"choice": ["Entailment"], "spans": []}, 0)

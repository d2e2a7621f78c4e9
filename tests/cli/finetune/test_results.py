"""The figures on a model's card, as the Hub reads them."""

import pytest

from fairseq_poolingformer.cli.finetune.results import _complete_card, as_text
from fairseq_poolingformer.weights.card import Training, model_card
from fairseq_poolingformer.weights.convert import FAMILIES

RESULT = {
    "split": "test",
    "examples": 40,
    "figures": {"accuracy": {"mean": 62.5, "low": 50.0, "high": 75.004}, "mse": {"mean": 0.123456}},
}


@pytest.fixture
def folder(tmp_path):
    """The card of a model whose training knows its validation loss, trained on labelled texts."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "corpus.json").write_text('{"corpus": "labelled_text", "examples": {"train": 320, "valid": 40}}')
    settings = {"data": str(data), "arch": "poolingformer_roberta_base", "max_positions": 4096}
    (tmp_path / "judge").mkdir()
    facts = {"architecture": "PoolingformerRobertaForSequenceClassification", "training": Training(90, "loss", 0.5)}
    text = model_card("judge", FAMILIES["poolingformer-roberta"], settings, {}, **facts)
    (tmp_path / "judge" / "README.md").write_text(text)
    return tmp_path / "judge"


@pytest.mark.parametrize(("split", "named"), [("test", "test"), ("valid", "validation")])
def test_the_hub_reads_the_figures_that_the_report_prints(folder, split, named):
    hub = pytest.importorskip("huggingface_hub")
    _complete_card(folder / "README.md", "labelled_text", "reviews", {**RESULT, "split": split})
    data = hub.ModelCard.load(folder / "README.md").data
    assert [(one.metric_type, one.metric_value) for one in data.eval_results] == [
        ("accuracy", 62.5),
        ("mse (not in %)", 0.12),
    ]
    assert {(one.dataset_name, one.dataset_split, one.task_type) for one in data.eval_results} == {
        ("reviews", named, "text-classification")
    }
    assert (data.model_name, data.pipeline_tag) == ("judge", "text-classification")
    report = as_text({**RESULT, "split": split})
    text = (folder / "README.md").read_text()
    for one in data.eval_results:
        assert one.metric_type in report
        assert f"{one.metric_value:.2f}" in report
    assert "| accuracy | 62.50 [50.00, 75.00] |" in text
    assert text.count("model-index:") == 1
    assert "| validation, loss | 0.5 |" in text


def test_a_card_without_figures_keeps_the_loss(folder):
    hub = pytest.importorskip("huggingface_hub")
    _complete_card(folder / "README.md", "labelled_text", "reviews", {**RESULT, "figures": {}})
    [found] = hub.ModelCard.load(folder / "README.md").data.eval_results
    assert (found.metric_type, found.metric_value, found.dataset_name) == ("loss", 0.5, "reviews")

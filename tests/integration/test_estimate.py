"""run_scripts/estimate.py against models, against a count by hand, and against measured training steps."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

from tests.models import tiny_bart, tiny_roberta

SCRIPTS = Path(__file__).parents[2] / "run_scripts"


@pytest.fixture(scope="module")
def estimate():
    spec = importlib.util.spec_from_file_location("estimate", SCRIPTS / "estimate.py")
    module = sys.modules["estimate"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["estimate"]


@pytest.mark.parametrize("name", ["bart_large", "bart_base", "roberta_large", "roberta_base"])
def test_parameters_are_those_of_the_models(estimate, name, tmp_path):
    bart = name.startswith("bart")
    folder = tiny_bart.write_data_folder(tmp_path) if bart else tiny_roberta.write_dictionary(tmp_path)
    narrow = ["--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "48", "--encoder-attention-heads", "4"]
    if bart:
        narrow += ["--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "48", "--decoder-attention-heads", "4"]
        narrow += ["--max-source-positions", "512"]
    task, model = (tiny_bart if bart else tiny_roberta).build(folder, *narrow, arch=f"poolingformer_{name}")
    size = dataclasses.replace(estimate.SIZES[name], width=32, inner=48, vocabulary=len(task.source_dictionary))
    pooled = {"bart_large": 6, "bart_base": 3, "roberta_large": 6, "roberta_base": 3}[name]
    attention = estimate.Attention(128, 512, pooled, kernel=5, stride=4)
    expected = sum(parameter.numel() for parameter in model.parameters())
    assert estimate.parameters(size, attention, 512 if bart else 4096) == expected


def test_multiply_adds_of_four_tokens_by_hand(estimate):
    """Width 2, inner width 3, one layer each, vocabulary 5; window 1, so three keys of each token."""
    size = estimate.Size(2, 3, 1, 1, 5)
    counts = estimate.multiply_adds(size, estimate.Attention(1), source=4, target=2)
    projections, feed_forward, pairs = 4 * 4, 2 * 6, 3 * 2 * 2
    assert counts["encoder"] == 4 * (projections + feed_forward + pairs)
    # a target token: self-attention over half of two tokens; queries, outputs and four source tokens of cross attention
    assert counts["decoder"] == 2 * (4 * 4 + 1 * 2 * 2 + 2 * 4 + 4 * 2 * 2 + 2 * 6) + 4 * 2 * 4
    assert counts["output"] == 2 * 2 * 5
    two = estimate.multiply_adds(size, estimate.Attention(1, 8, 1, 5, 4), source=4, target=2)
    # level two: a query each; one pool of five tokens, key and value, weights and sums; four pools seen by each token
    assert two["encoder"] - counts["encoder"] == 4 * 4 + (2 * 4 + 4 * 5 * 2) + 4 * 4 * 2 * 2
    # one softmax: no queries of its own; one pool of four tokens, weights and sums; four pools seen
    softmax = estimate.multiply_adds(size, estimate.Attention(1, 8, 1, 4, 4, "softmax"), source=4, target=2)
    assert softmax["encoder"] - counts["encoder"] == 4 * 4 * 2 + 4 * 4 * 2 * 2
    training = estimate.Training(size, estimate.Attention(1), 4, 2, 1, 1, 1, 1)
    forward = sum(counts.values())
    assert estimate.operations(training, recompute=False) == 6 * forward
    assert estimate.operations(training, recompute=True) == 8 * forward - 2 * counts["output"]


def test_layers_of_as_many_keys(estimate):
    rows = [line.split(" | ") for line in estimate.table_of_layers([768, 1024]).splitlines()[2:]]
    assert [int(row[1]) for row in rows] == [513, 1025, 513, 513, 513]
    window, _, papers, fine, wide = (float(row[2]) for row in rows)
    assert window == round((4 * 768**2 + 2 * 513 * 768) / 1e6, 2)
    assert window == pytest.approx(fine, abs=0.01)
    assert window == pytest.approx(wide, abs=0.01)
    assert papers - window == pytest.approx(1.5 * 768**2 / 1e6, abs=0.02)  # queries, and keys and values of pools


def test_a_window_that_costs_what_level_two_costs(estimate):
    """Width 768: 1.5·768² for the projections, κ and pools; a key takes 2·768. The widened window is counted as one."""
    _, _, row = estimate.table_of_windows(["summarization/base_w128_p512"], [545, 512]).split("\n")
    keys = (1.5 * 768 * 768 + 4 * 5 * 768 / 4 + 2 * 512 / 4 * 2 * 768) / (2 * 768)
    assert row.split(" | ")[1:4] == [f"{keys:.0f}", f"{128 + keys / 2:.0f}", "1.000 ×"]
    size, one = estimate.SIZES["bart_base"], estimate.Attention(128)
    lower, upper = (dataclasses.replace(size, encoder_layers=3) for _ in range(2))
    wider = dataclasses.replace(one, window=512)
    both = sum(estimate.multiply_adds(s, a, 4096, 0)["encoder"] for s, a in ((lower, one), (upper, wider)))
    two = estimate.multiply_adds(size, estimate.Attention(128, 512, 3, 5, 4), 4096, 0)["encoder"]
    assert row.split(" | ")[4] == f"{both / two:.3f} × |"


def base(estimate, source):
    attention = estimate.Attention(128, 512, 3, 5, 4)
    return estimate.Training(estimate.SIZES["bart_base"], attention, source, 256, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("source", "recompute", "gib"), [(4096, True, 0.76), (4096, False, 1.46), (16384, False, 4.86)]
)
def test_memory_beyond_the_model_is_about_the_measured(estimate, source, recompute, gib):
    """Measured training steps of the base size in float32: activations and gradients."""
    training = base(estimate, source)
    predicted = estimate.memory(training, recompute, half=False)["activations"]
    predicted += 4 * estimate.parameters(training.size, training.attention, source)
    assert predicted / 2**30 == pytest.approx(gib, rel=0.12)


def test_the_document_has_the_table_that_the_script_prints(estimate, capsys):
    names = ["summarization/arxiv_16k", "question_answering/nq_large", "pretraining/thesis_large"]
    assert estimate.main(names) == 0
    table = capsys.readouterr().out
    assert table in (SCRIPTS.parent / "docs" / "scale.md").read_text(encoding="utf-8")
    assert len(table.splitlines()) == 2 + 3


def test_the_longest_document_just_fits(estimate):
    training = estimate.load("summarization/arxiv_16k")

    def gib(tokens):
        alone = dataclasses.replace(training, source=tokens, device_batch=1)
        # inputs of twelve layers and what one layer keeps; a position more is a row more
        assert estimate.memory(alone, True)["activations"] == tokens * 1024 * 25.5 * 2
        return sum(estimate.memory(alone, True).values()) / 2**30

    tokens = estimate.longest(training, 80, True)
    assert gib(tokens) <= 80 < gib(tokens + 1024)
    assert estimate.longest(training, 1, True) == 0

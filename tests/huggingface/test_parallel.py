"""Documents that ranks share in transformers' models: the outputs, losses and gradients of one process."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.huggingface import context_parallel
from tests.attention.sharding.ranks import in_threads
from tests.huggingface import parallel_processes
from tests.huggingface.tiny_models import CONFIGS, LEVELS, inputs, ours, short

CASES = [(kind, head) for kind, (_, heads) in CONFIGS.items() if kind != "modernbert-other" for head in heads]


def model_and_batch(kind, head, left=False, **changes):
    """A model with two levels in float64, and a batch with labels and padding."""
    model = ours(kind, head).from_short(short(kind, head), **{**LEVELS, "max_position_embeddings": 62, **changes})
    return model.double(), inputs(kind, head, left)


def results(model, given, ranks=None, **division):
    """The outputs, and the gradients by name, of a model or of a part of its documents."""
    model = copy.deepcopy(model)
    with context_parallel(model, ranks, **division):
        output = model(**given)
        loss_of(output, 1 if ranks is None else ranks.size).backward()
    return dict(output), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def loss_of(output, size):
    """The loss, or of a model without one a share of a sum over what every rank has."""
    if "loss" in output:
        return output.loss
    own = [x for name, x in output.items() if isinstance(x, torch.Tensor) and not name.startswith("encoder")]
    return sum(x.sin().sum() for x in own) / size


def whole(model, given):
    model = copy.deepcopy(model)
    output = model(**given)
    loss_of(output, 1).backward()
    return dict(output), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(expected, found, real):
    """Outputs of all ranks, or parts of outputs side by side; sums of losses and gradients."""
    output, grads = expected
    outputs, others = zip(*found, strict=True)
    for name, value in output.items():
        if name == "loss":
            torch.testing.assert_close(sum(o[name] for o in outputs), value, rtol=1e-12, atol=1e-12)
        elif isinstance(value, torch.Tensor):
            parts = [torch.cat([o[name] for o in outputs], 1)] if outputs[0][name].shape != value.shape else []
            where = real if value.shape[:2] == real.shape else ...
            for part in parts or [o[name] for o in outputs]:
                torch.testing.assert_close(part[where], value[where], rtol=0, atol=1e-12)
    for name, grad in grads.items():
        total = sum(other[name] for other in others)
        torch.testing.assert_close(total, grad, rtol=0, atol=1e-12 * max(1.0, float(grad.abs().max())), msg=name)
    assert len(grads) > 20


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_ranks_compute_what_one_process_does(kind, head):
    model, given = model_and_batch(kind, head)
    real = given["attention_mask"].flatten(0, -2).bool()
    expected = whole(model, given)
    size = 2 if "t5" in kind else 2 + len(kind + head) % 2  # T5's norms are in float32: a third of a loss is rounded
    found = in_threads(size, lambda ranks: results(model, given, ranks))
    assert_same(expected, found, real)


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForQuestionAnswering"])
def test_padding_on_the_left_chosen_global_tokens_and_hidden_states(head):
    model, given = model_and_batch("bert", head, left=True)
    real = given["attention_mask"].bool()
    given["global_attention_mask"] = (torch.arange(20) % 7 == 6).expand(4, -1).long()
    given["output_hidden_states"] = head == "Model"
    expected = whole(model, given)
    if head == "ForMaskedLM":  # rows begin with their real tokens
        order = (~real).byte().argsort(dim=1, stable=True)
        expected[0]["logits"] = expected[0]["logits"].gather(1, order[..., None].expand(-1, -1, 50))
        real = real.gather(1, order)
    found = in_threads(3, lambda ranks: results(model, given, ranks))
    assert_same(expected, found, real)
    for state, wanted in zip(found[2][0].get("hidden_states", ()), expected[0].get("hidden_states", ()), strict=True):
        torch.testing.assert_close(state[real], wanted[real], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rope", ["longrope", "yarn", "linear"])
def test_rope_types_know_the_whole_length(rope):
    own = {"rope_type": rope, "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 14}
    own |= {"short_factor": [1.0] * 6, "long_factor": [3.0] * 6} if rope == "longrope" else {}
    parameters = {"full_attention": own, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
    model, given = model_and_batch("modernbert", "ForTokenClassification", rope_parameters=parameters)
    expected = whole(model, given)
    assert_same(expected, in_threads(2, lambda ranks: results(model, given, ranks)), given["attention_mask"].bool())


@torch.no_grad()
def test_summaries_are_those_of_one_process():
    model, given = model_and_batch("bart", "ForConditionalGeneration")
    inputs = {name: given[name] for name in ("input_ids", "attention_mask")}

    def generate(ranks):
        own = copy.deepcopy(model)
        with context_parallel(own, ranks):
            return own.generate(**inputs, num_beams=3, max_length=12)

    expected = model.generate(**inputs, num_beams=3, max_length=12)
    for found in in_threads(2, generate):
        assert torch.equal(found, expected)


def test_what_cannot_be_divided_is_refused_and_the_model_stays_as_it_was():
    model, given = model_and_batch("bert", "ForQuestionAnswering")
    with pytest.raises(ValueError, match="attention weights are on no rank"), context_parallel(model):
        model(**given, output_attentions=True)
    with pytest.raises(ValueError, match="leave out return_dict=False"), context_parallel(model):
        model(**given, return_dict=False)
    with pytest.raises(ValueError, match="has no Poolingformer's encoder"), context_parallel(torch.nn.Linear(1, 1)):
        pass
    errors = []
    alone = SimpleNamespace(rank=0, size=1, swap=lambda sent, sizes: sent, fail=errors.append)
    with pytest.raises(ZeroDivisionError), context_parallel(model, alone):
        raise ZeroDivisionError
    assert [type(error) for error in errors] == [ZeroDivisionError]  # as the other ranks hear
    assert model.base_model.divided is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in (model, model.base_model))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the results of processes."""
    folder = tmp_path_factory.mktemp("processes")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "tests.huggingface.parallel_processes", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", parallel_processes.CASES)
def test_an_optimizer_step_of_processes_is_that_of_one(folder, name):
    """Where a training draws random numbers, the one is a group of one process."""
    draws = parallel_processes.CASES[name][1]
    alone = torch.load(folder / f"{name} 1.pt") if draws else parallel_processes.step(name, None)
    for number in range(1, parallel_processes.SIZE + 1):
        found = torch.load(folder / f"{name} {number}.pt")
        torch.testing.assert_close(found["loss"], alone["loss"], rtol=1e-12, atol=1e-12)
        for kind in ("grads", "parameters"):
            assert found[kind].keys() == alone[kind].keys()
            for key, value in alone[kind].items():
                most = max(1.0, float(value.abs().max()))
                torch.testing.assert_close(found[kind][key], value, rtol=0, atol=1e-12 * most, msg=f"{number} {key}")


def test_the_documents_recipe():
    text = (Path(__file__).parents[2] / "docs/huggingface.md").read_text(encoding="utf-8")
    (recipe,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "context_parallel" in block)
    model, batch = model_and_batch("bert", "ForMaskedLM")
    expected = whole(model, batch)[1]
    exec(recipe, {"huggingface": huggingface, "model": model, "batch": batch, "group": None})
    for name, grad in expected.items():
        torch.testing.assert_close(model.get_parameter(name).grad, grad, rtol=0, atol=1e-12)

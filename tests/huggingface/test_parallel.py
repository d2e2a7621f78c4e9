"""Documents that ranks share in transformers' models: the outputs, losses and gradients of one process."""

import copy

import pytest
import torch

from fairseq_poolingformer.huggingface import context_parallel
from tests.attention.sharding.ranks import in_threads
from tests.huggingface import test_families, test_modernbert, test_seq2seq_families
from tests.huggingface.test_bart import LEVELS

CASES = [("families", kind, head) for kind in test_families.CONFIGS for head in test_families.HEADS]
CASES += [("modernbert", "modernbert", head) for head in test_modernbert.HEADS]
CASES += [("seq2seq", kind, head) for kind, row in test_seq2seq_families.CONFIGS.items() for head in row[3]]
SOURCES = {"families": test_families, "seq2seq": test_seq2seq_families}


def model_and_batch(source, kind, head, left=False, **changes):
    """A model with two levels in float64, and a batch with labels and padding."""
    settings = {**LEVELS, "max_position_embeddings": 62, **changes}
    if source == "modernbert":
        model = test_modernbert.own_class(head).from_short(test_modernbert.short_model(head), **settings)
        given = test_families.inputs("roberta", head, left)
        given.pop("token_type_ids")
    else:
        tests = SOURCES[source]
        model = tests.ours(kind, head).from_short(tests.short(kind, head), **settings)
        given = tests.inputs(kind, head, left) if source == "families" else tests.inputs(head)
    return model.double(), given


def results(model, given, ranks=None, **division):
    """The outputs, and the gradients by name, of a model or of a part of its documents."""
    model = copy.deepcopy(model)
    with context_parallel(model, ranks, **division):
        output = model(**given)
        loss_of(output, 1 if ranks is None else ranks.size).backward()
    return dict(output), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def loss_of(output, size):
    """The loss, or of a model without one a share of a sum that depends on all outputs."""
    if "loss" in output:
        return output.loss
    return sum(x.sin().sum() for x in output.values() if isinstance(x, torch.Tensor)) / size


def whole(model, given):
    model = copy.deepcopy(model)
    output = model(**given)
    loss_of(output, 1).backward()
    return dict(output), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(expected, found, real):
    """Outputs of all ranks, or of a head over a vocabulary their parts side by side; sums of losses and gradients."""
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


@pytest.mark.parametrize(("source", "kind", "head"), CASES)
def test_ranks_compute_what_one_process_does(source, kind, head):
    model, given = model_and_batch(source, kind, head)
    real = given["attention_mask"].flatten(0, -2).bool()
    expected = whole(model, given)
    size = 2 + len(kind + head) % 2
    found = in_threads(size, lambda ranks: results(model, given, ranks))
    assert_same(expected, found, real)

"""A model whose batches are divided computes what it computes of whole ones."""

import copy

import pytest
import torch
from torch import nn

from fairseq_poolingformer.models.context_parallel import ContextParallel, divide
from fairseq_poolingformer.tasks.masked_lm.task import LongMaskedLMCriterion, LongMaskedLMTask
from fairseq_poolingformer.tasks.shared.base_task import CheckedTask
from fairseq_poolingformer.tasks.shared.heads import SpanHead, span_losses
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion
from tests.attention.sharding.ranks import in_threads
from tests.models.tiny_roberta import PAD, SIZES, build, sentences

LEVELS = ("--window-size", "4", "--pooled-window-size", "9", "--pooled-layers", "1-2", "--global-tokens", "1")
NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0")


def build_encoder(folder, *flags, arch="poolingformer_roberta_tiny"):
    encoder = build(folder, *SIZES, *LEVELS, *flags, arch=arch)[1].encoder.sentence_encoder.double()
    for name, parameter in encoder.named_parameters():
        if "pool_weight" in name:
            nn.init.normal_(parameter)
    return encoder


def outputs(encoder, tokens, division=None):
    """The features, and the gradients of all parameters for a loss that differs between tokens."""
    encoder = copy.deepcopy(encoder)
    divide(encoder, division)
    encoded = encoder(tokens)
    out, part = encoded["encoder_out"][0], range(tokens.size(1))
    if division is not None:
        (shard,) = encoded["shard"]
        part = shard.part
        assert encoded["encoder_padding_mask"][0].size(1) == len(part) == len(out)
    weights = torch.randn(max(tokens.size(1), 8), *out.shape[1:], generator=torch.Generator().manual_seed(5)).double()
    real = ~encoded["encoder_padding_mask"][0].t().unsqueeze(-1)
    (out * real * weights[part.start : part.stop]).sum().backward()
    return out * real, {name: parameter.grad for name, parameter in encoder.named_parameters()}


def assert_ranks_compute_the_whole(encoder, tokens, size):
    expected, gradients = outputs(encoder, tokens)
    found = in_threads(size, lambda ranks: outputs(encoder, tokens, ContextParallel(ranks)))
    out = torch.cat([out for out, _ in found])[: tokens.size(1)]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    for name, gradient in gradients.items():
        shares = [grads[name] for _, grads in found]
        if gradient is None:
            assert all(share is None for share in shares)
        else:
            torch.testing.assert_close(sum(shares), gradient, rtol=1e-12, atol=1e-11, msg=name)


@pytest.mark.parametrize(
    "arch", ["poolingformer_roberta_tiny", "longformer_roberta_tiny", "poolingformer_deberta_tiny"]
)
@pytest.mark.parametrize("size", [2, 3])
def test_encoders_of_all_kinds(folder, arch, size):
    levels = () if arch.startswith("pooling") else ("--pooled-layers", "none")
    encoder = build_encoder(folder, *NO_DROPOUT, *levels, arch=arch)
    assert_ranks_compute_the_whole(encoder, sentences([40, 23]), size)


@pytest.mark.parametrize("flags", [("--encoder-normalize-before",), ("--checkpoint-activations",)])
def test_recomputation_in_each_rank(folder, flags):
    encoder = build_encoder(folder, *NO_DROPOUT, *flags)
    assert_ranks_compute_the_whole(encoder, sentences([40, 23]), 2)


def test_positions_of_rows_that_are_padded_on_the_left(folder):
    encoder = build_encoder(folder, *NO_DROPOUT)
    tokens = sentences([40, 23])
    tokens[1] = tokens[1].roll(17)
    assert tokens[1, 0] == PAD
    assert_ranks_compute_the_whole(encoder, tokens, 3)


def test_fewer_columns_than_ranks(folder):
    assert_ranks_compute_the_whole(build_encoder(folder, *NO_DROPOUT), sentences([2, 2]), 4)


def test_each_dropout_of_a_model_draws_for_itself(folder, monkeypatch):
    encoder = build_encoder(folder, "--activation-dropout", "0.1").train()
    places = []
    monkeypatch.setattr(
        "fairseq_poolingformer.models.encoder.token_dropout", lambda dropout, x, at: places.append(at) or x
    )
    outputs(encoder, sentences([40, 23]), ContextParallel())
    assert len(set(places)) == len(places) == 1 + 3 * len(encoder.layers)


def test_joined_parts_add_the_gradients():
    def rank(ranks):
        shard = ContextParallel(ranks).shard(torch.zeros(2, 5, dtype=torch.bool), None)
        own = torch.arange(10.0).view(2, 5)[:, shard.part.start : shard.part.stop].requires_grad_()
        everything = shard.joined(own, 1)
        (everything * (ranks.rank + 1)).sum().backward()
        return everything, own.grad

    for everything, grad in in_threads(3, rank):
        assert torch.equal(everything, torch.arange(10.0).view(2, 5))
        assert grad.unique().tolist() == [6.0]


def masked_lm(folder):
    """A model, its criterion and a batch; the last rows have few targets, so that some ranks have none."""
    built, model = build(folder, *SIZES, *LEVELS, *NO_DROPOUT)
    task = LongMaskedLMTask.__new__(LongMaskedLMTask)
    task.dictionary = built.source_dictionary
    tokens = sentences([40, 23, 9])
    is_target = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(2)) < 0.1
    target = tokens.masked_fill(~is_target, PAD)
    positions = (target != PAD).flatten().nonzero().squeeze(1)
    sample = {"net_input": {"src_tokens": tokens}, "target": target, "masked_positions": positions}
    return model, LongMaskedLMCriterion(task), sample | {"ntokens": 72, "nsentences": 3, "num_characters": 11}


def spans(folder):
    """The same of a task whose head reads all tokens."""
    task, model = build(folder, *SIZES, *LEVELS, *NO_DROPOUT)
    model.register_head("spans", SpanHead(32))
    tokens = sentences([40, 23, 9])
    head_inputs = {"example": torch.tensor([0, 0, 1]), "num_examples": 2, "piece": (tokens != PAD).long()}
    target = torch.zeros_like(tokens)
    target[1, 20] = target[2, 4] = 1
    task.loss = lambda output, target: (span_losses(output, target, target)[0].sum(), {"_right_total": torch.tensor(2)})
    sample = {"net_input": {"src_tokens": tokens, "head_inputs": head_inputs}, "target": target}
    return model, DocumentTaskCriterion(task), sample | {"ntokens": 72, "nsentences": 2}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("made", [masked_lm, spans])
def test_losses_gradients_and_what_is_counted_are_sums_over_the_ranks(folder, made, size):
    model, criterion, sample = made(folder)
    model.double()

    def counted(ranks=None):
        own_model, own_criterion = copy.deepcopy(model), type(criterion)(criterion.task)
        if ranks is not None:
            task = copy.copy(criterion.task)
            getattr(type(task), "divide", CheckedTask.divide)(task, own_model, own_criterion, ranks)
        loss, count, log = own_criterion(own_model, sample)
        loss.backward()
        return loss.detach(), count, log, [p.grad for p in own_model.parameters()]

    loss, count, log, gradients = counted()
    losses, counts, logs, shares = zip(*in_threads(size, counted), strict=True)
    assert sum(counts) == count
    torch.testing.assert_close(sum(losses), loss, rtol=1e-12, atol=0)
    for name, value in log.items():
        assert float(sum(log[name] for log in logs)) == pytest.approx(float(value), rel=1e-12), name
    for gradient, *parts in zip(gradients, *shares, strict=True):
        if gradient is None:
            assert parts == [None] * size
        else:
            torch.testing.assert_close(sum(parts), gradient, rtol=1e-12, atol=1e-12)


def test_a_model_without_our_encoder_is_refused():
    with pytest.raises(ValueError, match="documents of Linear cannot be divided"):
        divide(nn.Linear(1, 1), ContextParallel())

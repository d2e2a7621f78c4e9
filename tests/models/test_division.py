"""A model whose batches are divided computes what it computes of whole ones."""

import copy

import pytest
import torch
from torch import nn

from fairseq_poolingformer.models.division import Division, divide, joined_parts
from tests.attention.sharding.ranks import in_threads
from tests.models.tiny_roberta import PAD, SIZES, build, sentences, write_dictionary

LEVELS = ("--window-size", "4", "--pooled-window-size", "9", "--pooled-layers", "1-2", "--global-tokens", "1")
NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_dictionary(tmp_path_factory.mktemp("data"))


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


def assert_ranks_compute_the_whole(encoder, tokens, size, chunk_tokens=None):
    expected, gradients = outputs(encoder, tokens)
    found = in_threads(size, lambda ranks: outputs(encoder, tokens, Division(ranks, chunk_tokens)))
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
def test_chunks_and_recomputation_in_each_rank(folder, flags):
    encoder = build_encoder(folder, *NO_DROPOUT, *flags)
    assert_ranks_compute_the_whole(encoder, sentences([40, 23]), 2, chunk_tokens=7)


def test_positions_of_rows_that_are_padded_on_the_left(folder):
    encoder = build_encoder(folder, *NO_DROPOUT)
    tokens = sentences([40, 23])
    tokens[1] = tokens[1].roll(17)
    assert tokens[1, 0] == PAD
    assert_ranks_compute_the_whole(encoder, tokens, 3)


def test_fewer_columns_than_ranks(folder):
    assert_ranks_compute_the_whole(build_encoder(folder, *NO_DROPOUT), sentences([2, 2]), 4)


def test_dropout_does_not_depend_on_the_division(folder):
    encoder = build_encoder(folder, "--dropout", "0.2", "--attention-dropout", "0.1", "--activation-dropout", "0.1")
    encoder.train()
    tokens, found = sentences([40, 23]), []
    for chunk_tokens in (None, 40, 11):
        torch.manual_seed(3)
        found.append(outputs(encoder, tokens, Division(None, chunk_tokens)))
    for out, gradients in found[1:]:
        torch.testing.assert_close(out, found[0][0], rtol=1e-12, atol=1e-12)
        for name, gradient in gradients.items():
            if gradient is not None:
                torch.testing.assert_close(gradient, found[0][1][name], rtol=1e-12, atol=1e-11)
    assert not torch.allclose(found[0][0], outputs(encoder.eval(), tokens)[0])


def test_joined_parts_add_the_gradients(folder):
    def rank(ranks):
        shard = Division(ranks).shard(torch.zeros(2, 5, dtype=torch.bool), None)
        own = torch.arange(10.0).view(2, 5)[:, shard.part.start : shard.part.stop].requires_grad_()
        everything = joined_parts(own, shard, 1)
        (everything * (ranks.rank + 1)).sum().backward()
        return everything, own.grad

    for everything, grad in in_threads(3, rank):
        assert torch.equal(everything, torch.arange(10.0).view(2, 5))
        assert grad.unique().tolist() == [6.0]


def test_a_model_without_our_encoder_is_refused():
    with pytest.raises(ValueError, match="documents of Linear cannot be divided"):
        divide(nn.Linear(1, 1), Division())

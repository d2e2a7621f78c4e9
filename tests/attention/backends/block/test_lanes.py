"""Blocks of queries and keys: few and wide, and of the same widths whatever follows a sequence."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_poolingformer.attention import Pooling, Window, band_attention, pool_keys
from fairseq_poolingformer.attention.backends.block import lanes
from fairseq_poolingformer.attention.backends.plan import residue_classes
from tests.attention.calls import FAST, right_padding, tensors


@pytest.mark.parametrize("window", [Window(128), Window(512), Window.unlimited(), Window.unlimited(causal=True)])
def test_keys_are_cut_to_few_wide_blocks(window):
    """Whatever the window, a query block meets its keys in blocks of up to 512, not in slivers."""
    x = torch.zeros(1, 1, 2000, 4)
    (residues,) = residue_classes(window, None, 1, 0, 2000)
    lane = lanes.Lane(x, x, torch.arange(2000), band=residues.band)
    for start in range(0, 2000, 64):
        blocks = list(lane.key_blocks(start, 64))
        wanted = sum(block.size for block in blocks)
        assert len(blocks) <= -(-wanted // 512) + 1
        assert wanted <= (2000 if lane.band is None else min(2000, lane.width(64)))


class ExactProducts(TorchDispatchMode):
    """Products of matrices round once, whatever their shapes: which kernels a CPU has for which shapes is not ours."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket not in (torch.ops.aten.bmm, torch.ops.aten.baddbmm):
            return func(*args, **(kwargs or {}))
        out = func(*(x.double() for x in args), **(kwargs or {}))
        return self.rounded(out, *args[-2:]).to(args[-1].dtype)

    def rounded(self, out, left, right):
        return out


class SmallProductsRoundDifferently(ExactProducts):
    """Some CPUs' kernels for matrices of few rows or columns add up in another order; here they differ by 2 ** -20."""

    FEW = 8

    def rounded(self, out, left, right):
        return out * (1 + 2**-20) if min(*left.shape[1:], *right.shape[1:]) < self.FEW else out


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("pooling", [None, Pooling(5, 4), Pooling(5, 4, "query")])
@pytest.mark.parametrize("cpu", [ExactProducts, SmallProductsRoundDifferently])
@pytest.mark.parametrize("length", [137, 129, 1])
def test_padding_and_neighbours_change_no_bit(backend, pooling, cpu, length):
    """float32: a row's result is the same with more padding, and with other rows beside it.

    Of 129 tokens the last block of queries has one, which is multiplied as if it were several.
    """

    def attend_to(q, k, v, padding):
        arguments = {"window": Window(40), "key_padding_mask": padding, "backend": backend}
        if pooling is None:
            arguments["global_mask"] = torch.arange(k.size(2)) < torch.tensor([1, 7, 0])[: k.size(0), None]
        else:
            (k, hidden), (v, _) = (pool_keys(x, pooling, padding_mask=padding) for x in (k, v))
            arguments |= {"window": Window(90), "pooling": pooling, "key_padding_mask": hidden}
        return band_attention(q, k, v, **arguments)

    inputs = [x.detach() for x in tensors(3, 4, 300, 300, 16, torch.float32)]
    with cpu():
        together = attend_to(*inputs, right_padding([length, 300, 40], 300))
        alone = attend_to(*(x[:1, :, :length] for x in inputs), None)
    assert torch.equal(together[:1, :, :length], alone)

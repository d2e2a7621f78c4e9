"""The forward pass in PyTorch's fused attention: the general pass's numbers, whatever follows or is beside a row."""

from dataclasses import replace

import pytest
import torch

from fairseq_poolingformer.attention import DisentangledPosition, Pooling, RelativePositionBias, Window, band_attention
from fairseq_poolingformer.attention.backends.block import fused
from fairseq_poolingformer.attention.backends.block.lanes import Lane
from fairseq_poolingformer.attention.backends.plan import residue_classes
from tests.attention.calls import right_padding, tensors


@pytest.fixture
def used(monkeypatch):
    answers, original = [], fused.can_run
    monkeypatch.setattr(fused, "can_run", lambda plan, group: answers.append(original(plan, group)) or answers[-1])
    return answers


WINDOWS = [Window(128), Window(300, 20), Window(20, 300), Window(0), Window(2000, 0), Window(60, 60, (1, 3))]
WINDOWS.append(Window.unlimited(causal=True))


@pytest.mark.parametrize("window", [*WINDOWS, Pooling(5, 4), Pooling(5, 30), Pooling(5, 4, "query")])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_long_calls_have_the_numbers_of_the_general_pass(window, masked, monkeypatch, used):
    """Several chunks, among them some whose blocks share their keys, and some beyond the last key."""
    pooling = window if isinstance(window, Pooling) else None
    keys = 700 if pooling is None else pooling.num_pools(700)
    arguments = {"window": window if pooling is None else Window(200), "pooling": pooling, "backend": "block"}
    if masked:
        arguments["key_padding_mask"] = right_padding([keys, keys // 3], keys)
        if pooling is None:
            arguments["global_mask"] = torch.arange(keys) % 350 == torch.tensor([[7], [50]])
            if max(window.left, window.right) <= 300:
                tables = torch.randn(4, 2, 600, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
                arguments["score_terms"] = [DisentangledPosition(*tables, global_bucket=3)]
    inputs = tensors(2, 2, 700, keys, 8)
    out = band_attention(*inputs, **arguments)
    assert True in used
    monkeypatch.setattr(fused, "can_run", lambda plan, group: False)
    torch.testing.assert_close(out, band_attention(*inputs, **arguments), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("window", "disentangled"), [*((x, False) for x in WINDOWS), (Window(128), True), (Window(60, 60, (1, 3)), True)]
)
@pytest.mark.parametrize("length", [3, 163, 530])
@torch.no_grad()
def test_padding_and_neighbours_change_no_bit_of_long_rows(window, length, disentangled):
    padded = 1300
    tables = torch.randn(4, 2, 600, 16, generator=torch.Generator().manual_seed(1))
    terms = [DisentangledPosition(*tables, global_bucket=3)] if disentangled else []
    q, k, v = tensors(2, 2, padded, padded, 16, torch.float32)
    global_mask = torch.arange(padded) < torch.tensor([[1], [7]])
    masks = {"global_mask": global_mask, "key_padding_mask": right_padding([length, padded], padded)}
    arguments = {"window": window, "score_terms": terms, "backend": "block"}
    together = band_attention(q, k, v, **arguments, **masks)
    inputs = [x[:1, :, :length] for x in (q, k, v)]
    alone = band_attention(*inputs, **arguments, global_mask=global_mask[:1, :length])
    assert torch.equal(together[:1, :, :length], alone)


@pytest.mark.parametrize("window", [Window(128), Window(600, 20), Window(2000, 0)])
@pytest.mark.parametrize("pooling", [None, Pooling(5, 4)])
@pytest.mark.parametrize("length", [1, 40, 300, 1100])
def test_products_have_the_same_shapes_whatever_follows(window, pooling, length):
    """But for whole blocks of keys that do not exist: some CPUs round products of other shapes differently."""

    def chunks(queries):
        keys = queries if pooling is None else pooling.num_pools(queries)
        x = torch.zeros(1, 1, keys, 4)
        (residues,) = residue_classes(window, pooling, 1, 0, queries)
        return keys, list(fused._chunks(Lane(x, x, range(keys), band=residues.band), queries))

    keys, short = chunks(length)
    for few, many in zip(short, chunks(5000)[1], strict=False):
        assert replace(few, count=many.count, width=many.width) == many
        assert few.width == many.width or (few.width % fused.KEYS == 0 and few.begin + few.width >= keys)


@torch.no_grad()
def test_products_with_padding_may_overflow(used):
    """Keys whose sum is finite are not replaced before the call."""
    q, k, v = tensors(1, 2, 70, 70, 8, torch.float32)
    arguments = {"window": Window(9), "key_padding_mask": right_padding([50], 70), "scale": 0.01, "backend": "block"}
    expected = band_attention(100 * q, k, v, **arguments)
    k[:, :, 50:] = torch.tensor([1e37, -1e37])[:, None].repeat(10, 1)
    assert torch.equal(band_attention(100 * q, k, v, **arguments), expected)
    assert used == [True, True]


@pytest.mark.parametrize("case", ["dropout", "score term", "bfloat16", "no band", "wide disentangled"])
def test_calls_that_it_cannot_run(case, used):
    dtype = torch.bfloat16 if case == "bfloat16" else torch.float32
    window = Window.unlimited() if case == "no band" else Window(3)
    terms = [RelativePositionBias(torch.zeros(2, 7))] if case == "score term" else []
    if case == "wide disentangled":  # its products ahead would need too much memory
        window, terms = Window(256), [DisentangledPosition(torch.zeros(2, 512, 4))]
    dropout = 0.5 if case == "dropout" else 0.0
    band_attention(*tensors(1, 2, 9, 9, 4, dtype), window=window, score_terms=terms, dropout_p=dropout, backend="block")
    assert used == [False]

"""Global tokens of a batch, looked up once."""

import pytest
import torch

from fairseq_poolingformer.attention import (
    GlobalTokens,
    Window,
    band_attention,
)
from tests.attention.calls import (
    FAST,
    ON_CPU,
    assert_equals_reference,
    outputs_and_gradients,
    right_padding,
    tensors,
)


@pytest.mark.parametrize("backend", FAST)
def test_global_tokens_that_are_padding_are_seen_by_nobody(backend):
    global_mask = torch.zeros(2, 40, dtype=torch.bool)
    global_mask[:, 30] = global_mask[0, 3] = True
    padding = right_padding([40, 20], 40)  # the second row's only global token is padding
    arguments = {"window": Window(3), "global_mask": global_mask, "key_padding_mask": padding}
    assert_equals_reference(tensors(2, 2, 40, 40, 4), backend, **arguments)


@pytest.mark.parametrize("backend", ON_CPU)
def test_global_tokens_are_looked_up_once_for_many_calls(backend, monkeypatch):
    inputs = tensors(2, 2, 40, 40, 4)
    global_mask = torch.rand(2, 40, generator=torch.Generator().manual_seed(0)) < 0.1
    expected = outputs_and_gradients(inputs, window=Window(3), global_mask=global_mask, backend=backend)
    tokens = GlobalTokens(global_mask)
    band_attention(*inputs, window=Window(3), global_mask=tokens, backend=backend)
    monkeypatch.setattr(torch.Tensor, "nonzero", None)  # what waits for a device
    for actual, wanted in zip(
        outputs_and_gradients(inputs, window=Window(3), global_mask=tokens, backend=backend), expected, strict=True
    ):
        assert torch.equal(actual, wanted)

"""Adaptive spans: what their parameters mean, and that they stay in [0, 1]."""

import pytest
import torch

from fairseq_poolingformer.char_lm.adaptive_span import AdaptiveSpans


def spans(z, shared=None):
    module = AdaptiveSpans(len(z), len(z[0]), max_span=1000, ramp=32, shared=shared is not None)
    with torch.no_grad():
        for parameter, values in zip(module.z, z, strict=True):
            parameter.copy_(torch.tensor(values))
        if shared is not None:
            module.shared.fill_(shared)
    return module


def test_reaches_cover_the_ramp_and_are_rounded_up():
    module = spans([[0.0, 0.031], [0.033, 0.0], [0.9, 0.2], [1.0, 1.0]])
    assert module.reaches(module()) == [64, 128, 960, 1000]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_parameters_are_taken_back_into_the_interval(dtype):
    module = spans([[-0.5, 1.5]], shared=-0.1).to(dtype)
    assert module().dtype == torch.float32
    torch.testing.assert_close(module(), torch.tensor([[0.0, 1000]]))
    module.set_num_updates(1)
    assert (module.z[0].tolist(), module.shared.tolist()) == ([0.0, 1.0], [0.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_pass_at_the_edges_as_in_the_published_code(dtype):
    """Adagrad accumulates them even where the clamping undoes the update; in 16 bits none leads out of [0, 1]."""
    module = spans([[0.0, 0.0, 1.0, 1.0, 0.5, -0.1]]).to(dtype)
    (module() * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])).sum().backward()
    # a step goes against the gradient: down from 0 and up from 1 lead out
    at_0, at_1 = (1000.0, -1000.0) if dtype == torch.float32 else (0.0, 0.0)
    assert module.z[0].grad.tolist() == [at_0, -1000.0, 1000.0, at_1, 1000.0, -1000.0]

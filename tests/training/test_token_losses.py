"""The loss by slices of the vocabulary beside fairseq's over all logits: values, gradients, precision, memory."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_poolingformer.training import token_losses as functional
from fairseq_poolingformer.training.token_losses import linear_argmax, linear_cross_entropy
from tests.attention.calls import Largest

TOKENS, SYMBOLS, DIM, PAD = 13, 37, 8, 1


def example(dtype=torch.float64, has_bias=True, tokens=TOKENS, symbols=SYMBOLS):
    generator = torch.Generator().manual_seed(0)
    features, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in [(tokens, DIM), (symbols, DIM), (symbols,)]
    )
    target = torch.randint(0, symbols, (tokens,), generator=generator)
    target[::4] = PAD
    return features, weight, bias if has_bias else None, target


def naive(features, weight, bias, target, label_smoothing):
    """fairseq's loss, over all logits at once."""
    dtype = torch.promote_types(features.dtype, torch.float32)
    log_probs = F.log_softmax(F.linear(features, weight, bias), -1, dtype=dtype)
    return label_smoothed_nll_loss(log_probs, target, label_smoothing, ignore_index=PAD)


def loss(features, weight, bias, target, label_smoothing=0.1, **options):
    """Our loss, of tokens that are not padding."""
    options = {"label_smoothing": label_smoothing, "ignore_index": PAD, **options}
    return linear_cross_entropy(features, weight, bias, target, **options)


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, [x for x in inputs if x is not None], retain_graph=True)


@pytest.fixture
def small_slices(monkeypatch):
    """Five symbols at a time."""
    monkeypatch.setattr(functional, "LOGITS_AT_A_TIME", 70)


@pytest.mark.parametrize("kept_logits", [0, 100, 10**6])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_equals_fairseqs_loss_and_gradients(small_slices, kept_logits, label_smoothing, has_bias):
    *inputs, target = example(has_bias=has_bias)
    ours = loss(*inputs, target, label_smoothing, kept_logits=kept_logits)
    theirs = naive(*inputs, target, label_smoothing)
    for result, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(gradients(result, *inputs), gradients(expected, *inputs))


@pytest.mark.parametrize("trained", range(3))
def test_gradients_of_some_inputs_only(small_slices, trained):
    *inputs, target = example()
    alone = [x.detach().requires_grad_(n == trained) for n, x in enumerate(inputs)]
    loss(*alone, target)[0].backward()
    expected = gradients(naive(*inputs, target, 0.1)[0], *inputs)[trained]
    torch.testing.assert_close(alone[trained].grad, expected)
    assert [x.grad is None for x in alone] == [n != trained for n in range(3)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kept_logits", [0, 10**6])
def test_error_in_half_precision_is_at_most_twice_that_of_all_logits_at_once(monkeypatch, dtype, kept_logits):
    monkeypatch.setattr(functional, "LOGITS_AT_A_TIME", 2**12)
    *inputs, target = example(dtype, tokens=200, symbols=500)
    exact_inputs = [x.detach().double().requires_grad_() for x in inputs]
    exact = naive(*exact_inputs, target, 0.1)[0]
    ours = loss(*inputs, target, kept_logits=kept_logits)[0]
    theirs = naive(*inputs, target, 0.1)[0]
    assert ours.dtype == torch.float32

    def errors(result):
        results = [result, *gradients(result, *inputs)]
        expected = [exact, *gradients(exact, *exact_inputs)]
        return [float((x.double() - y).detach().norm()) for x, y in zip(results, expected, strict=True)]

    rounding = 1e-6 * float(exact.detach())  # of sums in float32
    for error, allowed in zip(errors(ours), errors(theirs), strict=True):
        assert error <= 2 * allowed + rounding


def test_a_loss_scale_reaches_gradients_before_they_are_rounded_to_float16():
    """Gradients of about 1e-8 are zero in float16, but not when the loss is scaled by 2^15 first."""
    *inputs, target = example(torch.float16)
    exact_inputs = [x.detach().double().requires_grad_() for x in inputs]
    exact = gradients(naive(*exact_inputs, target, 0.1)[0], *exact_inputs)
    assert all(not grad.any() for grad in gradients(loss(*inputs, target)[0] * 1e-9, *inputs))
    scaled = gradients(loss(*inputs, target)[0] * 1e-9 * 2**15, *inputs)
    for grad, expected in zip(scaled, exact, strict=True):
        torch.testing.assert_close(grad.double() / 2**15, expected * 1e-9, rtol=0.05, atol=1e-10)


@pytest.mark.parametrize("kept_logits", [0, 300])
def test_no_tensor_is_as_large_as_tokens_times_symbols(small_slices, kept_logits):
    *inputs, target = example(tokens=60, symbols=SYMBOLS)
    with Largest() as largest:
        loss(*inputs, target, kept_logits=kept_logits)[0].backward()
    assert largest.elements == 60 * DIM, "the features"
    with Largest() as largest:
        naive(*inputs, target, 0.1)[0].backward()
    assert largest.elements == 60 * SYMBOLS


def test_kept_logits_bound_what_is_kept(small_slices):
    """Only the inputs, one number a token, and as many logits as may be kept wait for the backward pass."""
    *inputs, target = example()
    for kept_logits, expected in [(0, 0), (130, 130), (188, 130), (10**6, TOKENS * SYMBOLS)]:
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, saved=saved: saved.append(x) or x, lambda x: x):
            linear_cross_entropy(*inputs, target, ignore_index=PAD, kept_logits=kept_logits)
        logits = [x for x in saved if x.dim() == 2 and x.size(0) == TOKENS and x.size(1) != DIM]
        assert sum(x.numel() for x in logits) == expected


def test_padding_alone_costs_nothing():
    *inputs, _ = example()
    smoothed, nll = loss(*inputs, torch.full((TOKENS,), PAD))
    assert (smoothed.item(), nll.item()) == (0, 0)
    assert all(not grad.any() for grad in gradients(smoothed, *inputs))


def test_autocast(small_slices):
    """Gradients are float32, the products bfloat16, as when fairseq's loss runs under autocast."""
    *inputs, target = example(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = loss(*inputs, target)[0], naive(*inputs, target, 0.1)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    for grad, expected in zip(gradients(ours, *inputs), gradients(theirs, *inputs), strict=True):
        assert grad.dtype == torch.float32
        torch.testing.assert_close(grad, expected, rtol=0.02, atol=0.02)


def test_argmax_is_the_first_of_the_likeliest(small_slices):
    features, weight, bias, _ = example()
    with torch.no_grad():
        expected = F.linear(features, weight, bias).argmax(-1)
        assert len(expected.unique()) > 4
        assert linear_argmax(features, weight, bias).tolist() == expected.tolist()
        weight[[5, 30]], bias[[5, 30]] = 0.0, 100.0  # as likely, in another slice
        assert linear_argmax(features, weight, bias).tolist() == [5] * TOKENS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": torch.zeros(2, 3, DIM)}, r"features must be \(N, C\) and target \(N,\)"),
        ({"target": torch.zeros(3, dtype=torch.long)}, r"target \(N,\), got .* \(3,\)"),
        ({"weight": torch.zeros(SYMBOLS, DIM + 1)}, r"weight must be \(V, 8\)"),
        ({"bias": torch.zeros(1)}, r"bias must be \(37,\), got \(1,\)"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), got 1.0"),
        ({"kept_logits": -1}, "kept_logits must be 0 or more, got -1"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    names = ("features", "weight", "bias", "target")
    arguments = dict(zip(names, example(), strict=True)) | changes
    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(**arguments)

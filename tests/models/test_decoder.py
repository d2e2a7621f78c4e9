"""The decoder in beam search: finished sentences leave the batch, and the others' sources stay their own."""

from functools import partial

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_poolingformer.attention import Masks
from fairseq_poolingformer.attention.backends import sdpa
from fairseq_poolingformer.models.decoder import CrossAttention, right_padded
from tests.dropped import assert_dropped, identity
from tests.models.test_bart import EOS, PAD, sentences, shifted
from tests.models.tiny_bart import SIZES, build

LENGTHS = [21, 5, 33, 12, 17, 9]


def build_telling(folder, *flags, noise=0.4):
    """A task, and a model whose hypotheses depend on the source and end after different numbers of tokens."""
    window = ("--window-size", "4", "--pooled-window-size", "8", "--pooled-layers", "1-2")
    task, model = build(folder, *SIZES, *window, *flags)
    model.double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                parameter += noise * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        end_of_sentence = model.decoder.output_projection.weight[EOS]
        end_of_sentence *= 2 / end_of_sentence.norm()  # else it is too unlikely, and all go on to the limit
    return task, model


@pytest.fixture(scope="module")
def search(folder):
    task, model = build_telling(folder)
    return lambda beam: SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_a=0, max_len_b=24)


def hypotheses(search, source):
    rows = search.generate([], {"net_input": {"src_tokens": source, "src_lengths": (source != PAD).sum(1)}})
    return [[(hypothesis["tokens"].tolist(), float(hypothesis["score"])) for hypothesis in row] for row in rows]


@pytest.mark.parametrize("beam", [1, 3])
def test_dropping_finished_sentences_changes_no_hypothesis(search, beam, monkeypatch):
    """A sentence that is alone is never dropped from its batch: its hypotheses are the same among others."""
    sizes, reorder = [], CrossAttention.reorder_incremental_state

    def spy(self, incremental_state, new_order):
        result = reorder(self, incremental_state, new_order)
        saved = self._get_input_buffer(incremental_state)
        if saved:
            sizes.append(saved["keys"].size(1))
            assert saved["keys"].size(1) == saved["values"].size(1) == new_order.numel() // beam
        return result

    masks_of_layers, forward = [], CrossAttention.forward

    def spy_on_masks(self, **named):
        masks_of_layers.append(named["key_padding_mask"])
        return forward(self, **named)

    monkeypatch.setattr(CrossAttention, "reorder_incremental_state", spy)
    monkeypatch.setattr(CrossAttention, "forward", spy_on_masks)
    this_search, _ = search(beam), search(4 - beam)  # the number of beams is the search's, not the model's
    together = hypotheses(this_search, sentences(LENGTHS))
    dropped_at = [step for step in range(1, len(sizes)) if sizes[step] < sizes[step - 1]]
    assert len(set(dropped_at)) >= 2, f"sentences leave the batch at different steps, not {sizes}"
    batches = {id(masks): masks.padding.size(0) for masks in masks_of_layers}
    assert list(batches.values()) == sorted(set(sizes), reverse=True), "one for all layers, made where a sentence left"
    for length, row in zip(LENGTHS, together, strict=True):
        (alone,) = hypotheses(search(beam), sentences([length]))
        assert [tokens for tokens, _ in row] == [tokens for tokens, _ in alone]
        assert [score for _, score in row] == pytest.approx([score for _, score in alone], abs=1e-6)
    assert len({tuple(row[0][0]) for row in together}) == len(LENGTHS), "each sentence has hypotheses of its own"


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """A function that makes decoders compute as on a GPU, in every dtype; it lists whether each call is causal."""

    def start():
        calls, attend = [], sdpa.attend
        spy = lambda *args, **named: calls.append(any(args[4:])) or attend(*args, **named)  # noqa: E731
        monkeypatch.setattr(sdpa, "takes", lambda x: True)
        monkeypatch.setattr(sdpa, "attend", spy)
        return calls

    return start


def test_padding_is_on_the_right_where_no_real_token_follows_it():
    padding = torch.arange(5) >= torch.tensor([0, 5, 3])[:, None]
    assert right_padded(Masks())
    assert right_padded(Masks(None, padding))
    padding[1, 2] = True
    assert not right_padded(Masks(None, padding))


def left_padded(rows):
    return torch.stack([row.roll(int((row == PAD).sum())) for row in rows])


@pytest.mark.parametrize(
    ("flags", "move", "causal"),
    [
        ((), lambda rows: rows, True),
        ((), left_padded, False),
        ((), lambda rows: rows[:1], True),  # without padding
        (("--checkpoint-activations",), lambda rows: rows, True),
        (("--attention-backend", "block"), lambda rows: rows, False),
    ],
)
def test_on_a_gpu_whole_targets_are_pytorchs(folder, as_on_a_gpu, monkeypatch, flags, move, causal):
    """Logits and gradients are the operator's; only causal calls with padding on the left remain its own."""
    _, model = build_telling(folder, "--dropout", "0", "--attention-dropout", "0", *flags)
    source, target = sentences([50, 31, 7]), move(shifted(sentences([12, 9, 5])))
    source, real = source[: len(target)], target != PAD

    def computed():
        model.float().double().train().zero_grad()  # the same numbers in both precisions
        logits = model(source, None, target)[0][real]
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        return [model.float()(source, None, target)[0][real].detach(), logits.detach(), *gradients]

    expected, calls, masks, make = computed(), as_on_a_gpu(), [], sdpa._mask
    monkeypatch.setattr(sdpa, "_mask", lambda *args: masks.append(args) or make(*args))
    actual = computed()
    layers = 0 if "block" in flags else 6 if "--checkpoint-activations" in flags else 4  # of two passes, or three
    batches = 2 * (len(target) > 1 and "block" not in flags)
    assert (calls.count(True), calls.count(False), len(masks)) == (causal * layers, layers, batches)
    for ours, theirs, atol in zip(actual, expected, [1e-5] + [1e-10] * (len(actual) - 1), strict=True):
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=atol)


@torch.no_grad()
def test_on_a_gpu_padding_reaches_no_output(folder, as_on_a_gpu):
    """Padding of targets and of the source, whatever it holds, changes no output at a token."""
    _, model = build_telling(folder)
    as_on_a_gpu()
    layer, x, source = model.decoder.layers[0], torch.randn(5, 2, 32).double(), torch.randn(9, 2, 32).double()
    padding = torch.arange(5) >= torch.tensor([5, 3])[:, None]
    moved = x.masked_fill(padding.t()[..., None], 1e4)
    outputs = [layer.self_attn(y, y, y, padding, attn_mask=Masks(None, padding))[0] for y in (x, moved)]
    torch.testing.assert_close(*(out.transpose(0, 1)[~padding] for out in outputs), atol=0, rtol=0)
    masks = Masks(None, torch.arange(9) >= torch.tensor([9, 4])[:, None])
    expected, _ = layer.encoder_attn(x, source, source, masks)
    source[4:, 1] = 1e4
    assert torch.equal(layer.encoder_attn(x, source, source, masks)[0], expected)
    assert all(stride % 8 == 0 for stride in masks.derived(sdpa._mask, x.dtype).stride()[:3]), "PyTorch would copy it"
    no_keys = Masks(None, torch.ones(1, 3, dtype=torch.bool))
    assert not no_keys.derived(sdpa._mask, x.dtype).any(), "a softmax without keys is NaN in some kernels"


def test_on_a_gpu_beams_have_the_same_hypotheses(search, as_on_a_gpu):
    generate = partial(hypotheses, search(5), sentences(LENGTHS))
    expected, calls = generate(), as_on_a_gpu()
    actual = generate()
    assert len(calls) > 2 * 8
    assert not any(calls), "of each token there is one query"
    assert len({len(row[0][0]) for row in expected}) > 1, "sentences leave the batch at different steps"
    for ours, theirs in zip(actual, expected, strict=True):
        assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-6)


@pytest.mark.parametrize("on_a_gpu", [False, True])
@pytest.mark.parametrize("kind", ["self", "cross"])
@torch.no_grad()
def test_attention_drops_its_weights_in_training(folder, as_on_a_gpu, kind, on_a_gpu):
    """As --attention-dropout says; the values are the rows of an identity, so that the output is the weights."""
    flags = ("--dropout", "0", "--attention-dropout", "0.25", "--decoder-attention-heads", "1")
    _, model = build(folder, *SIZES, *flags)
    calls = as_on_a_gpu() if on_a_gpu else None
    layer = model.decoder.layers[0]
    attention, size = (layer.self_attn if kind == "self" else layer.encoder_attn), 32
    identity(attention.v_proj, attention.out_proj)
    x = torch.eye(size)[:, None]
    scores = 100 * attention.q_proj(x)[:, 0] @ attention.k_proj(x)[:, 0].t() / size**0.5
    attention.q_proj.weight.mul_(100)  # else all weights are alike
    attention.q_proj.bias.mul_(100)
    arguments = {}
    if kind == "self":
        arguments = {"attn_mask": Masks()}
        scores = scores.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), -torch.inf)
    whole = scores.softmax(-1)
    torch.testing.assert_close(attention.eval()(x, x, x, **arguments)[0][:, 0], whole)
    attention.train()
    assert_dropped(lambda: attention(x, x, x, **arguments)[0][:, 0], whole, 0.25)
    assert bool(calls) == on_a_gpu


@torch.no_grad()
def test_the_weights_on_the_source_are_those_of_the_output(folder):
    _, model = build(folder, *SIZES)
    attention = model.double().eval().decoder.layers[0].encoder_attn
    attention.q_proj.weight.mul_(100)  # else all weights are alike
    query, source = torch.randn(5, 2, 32).double(), torch.randn(9, 2, 32).double()
    padding = torch.arange(9) >= torch.tensor([9, 4])[:, None]
    weights = attention.weights(query, source, Masks(None, padding))
    assert (weights.shape[0], weights.shape[2:]) == (2, (5, 9))
    assert not weights[1, ..., 4:].any()
    assert weights.max() > 0.5
    values = attention.v_proj(source).unflatten(-1, (attention.num_heads, -1)).permute(1, 2, 0, 3)
    expected = attention.out_proj((weights.double() @ values).permute(2, 0, 1, 3).flatten(2))
    torch.testing.assert_close(
        attention(query, source, source, Masks(None, padding))[0], expected, atol=1e-5, rtol=1e-5
    )

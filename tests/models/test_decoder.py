"""The decoder in beam search: finished sentences leave the batch, and the others' sources stay their own."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_poolingformer.models.decoder import CrossAttention
from tests.dropped import assert_dropped, identity
from tests.models.test_bart import EOS, PAD, sentences
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
            assert saved["padding"] is None or saved["padding"].size(0) == saved["keys"].size(1)
        return result

    monkeypatch.setattr(CrossAttention, "reorder_incremental_state", spy)
    together = hypotheses(search(beam), sentences(LENGTHS))
    dropped_at = [step for step in range(1, len(sizes)) if sizes[step] < sizes[step - 1]]
    assert len(set(dropped_at)) >= 2, f"sentences leave the batch at different steps, not {sizes}"
    for length, row in zip(LENGTHS, together, strict=True):
        (alone,) = hypotheses(search(beam), sentences([length]))
        assert [tokens for tokens, _ in row] == [tokens for tokens, _ in alone]
        assert [score for _, score in row] == pytest.approx([score for _, score in alone], abs=1e-6)
    assert len({tuple(row[0][0]) for row in together}) == len(LENGTHS), "each sentence has hypotheses of its own"


@pytest.mark.parametrize("kind", ["self", "cross"])
@torch.no_grad()
def test_attention_drops_its_weights_in_training(folder, kind):
    """As --attention-dropout says; the values are the rows of an identity, so that the output is the weights."""
    flags = ("--dropout", "0", "--attention-dropout", "0.25", "--decoder-attention-heads", "1")
    _, model = build(folder, *SIZES, *flags)
    layer = model.decoder.layers[0]
    attention, size = (layer.self_attn if kind == "self" else layer.encoder_attn), 32
    identity(attention.v_proj, attention.out_proj)
    x = torch.eye(size)[:, None]
    scores = 100 * attention.q_proj(x)[:, 0] @ attention.k_proj(x)[:, 0].t() / size**0.5
    attention.q_proj.weight.mul_(100)  # else all weights are alike
    attention.q_proj.bias.mul_(100)
    arguments = {}
    if kind == "self":
        arguments = {"attn_mask": torch.ones(size, size).triu(1)}
        scores = scores.masked_fill(arguments["attn_mask"].bool(), -torch.inf)
    whole = scores.softmax(-1)
    torch.testing.assert_close(attention.eval()(x, x, x, **arguments)[0][:, 0], whole)
    attention.train()
    assert_dropped(lambda: attention(x, x, x, **arguments)[0][:, 0], whole, 0.25)


@torch.no_grad()
def test_the_weights_on_the_source_are_those_of_the_output(folder):
    _, model = build(folder, *SIZES)
    attention = model.double().eval().decoder.layers[0].encoder_attn
    attention.q_proj.weight.mul_(100)  # else all weights are alike
    query, source = torch.randn(5, 2, 32).double(), torch.randn(9, 2, 32).double()
    padding = torch.arange(9) >= torch.tensor([9, 4])[:, None]
    weights = attention.weights(query, source, padding)
    assert (weights.shape[0], weights.shape[2:]) == (2, (5, 9))
    assert not weights[1, ..., 4:].any()
    assert weights.max() > 0.5
    values = attention.v_proj(source).unflatten(-1, (attention.num_heads, -1)).permute(1, 2, 0, 3)
    expected = attention.out_proj((weights.double() @ values).permute(2, 0, 1, 3).flatten(2))
    torch.testing.assert_close(attention(query, source, source, padding)[0], expected, atol=1e-5, rtol=1e-5)

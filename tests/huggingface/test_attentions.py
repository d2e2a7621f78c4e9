"""``output_attentions=True``: both levels' weights, against those of fairseq's model and a dense computation."""

import torch

from fairseq_poolingformer.attention import recorded_weights
from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerRobertaForMaskedLM,
)
from tests.attention.test_weights import dense, expected_weights
from tests.huggingface.test_bart import LEVELS, outputs
from tests.models import tiny_huggingface
from tests.weights.test_roberta import batch


@torch.no_grad()
def test_attentions_of_a_bart_are_those_of_each_layer():
    model = PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart"), **LEVELS)
    source, target = tiny_huggingface.batch(length=38)
    inputs = {"attention_mask": source.ne(1).long(), "decoder_input_ids": target}
    output = model(source, **inputs, output_attentions=True, output_hidden_states=True)
    assert torch.equal(output.logits, model(source, **inputs).logits)
    assert model(source, **inputs).encoder_attentions is None
    attentions, states = output.encoder_attentions, output.encoder_hidden_states
    assert [weights.level_two is None for weights in attentions] == [True, False, False]
    global_mask, padding = torch.zeros_like(source, dtype=torch.bool), source.eq(1)
    global_mask[:, 0] = True
    for layer, weights, x in zip(model.model.encoder.layers, attentions, states, strict=False):
        attention = layer.self_attn
        q, k = attention._split(attention.q_proj(x)), attention._split(attention.k_proj(x))
        masks = {"global_mask": global_mask, "key_padding_mask": padding}
        expected = expected_weights(q, k, window=attention.window, **masks)
        torch.testing.assert_close(dense(weights.level_one), expected, rtol=0, atol=1e-6)
        assert weights.level_one.band.shape == (3, 4, 38, 7)
    assert attentions[1].level_two.band.size(3) < 6


@torch.no_grad()
def test_positions_count_a_rows_real_tokens_whatever_the_side_of_the_padding():
    model = PoolingformerRobertaForMaskedLM.from_short(tiny_huggingface.model("roberta"), **LEVELS)
    tokens = batch()
    left = torch.stack([row.roll(-int(n)) for row, n in zip(tokens, tokens.ne(1).sum(1), strict=True)])
    right, moved = (model(t, attention_mask=t.ne(1).long(), output_attentions=True).attentions for t in (tokens, left))
    assert len(right) == 3
    for one, other in zip(right, moved, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@torch.no_grad()
def test_recorded_weights_are_the_same():
    model = PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart"), **LEVELS)
    source, target = tiny_huggingface.batch(length=38)
    with recorded_weights(model) as found:
        outputs(model, source, target)
    expected = model(source, attention_mask=source.ne(1).long(), decoder_input_ids=target, output_attentions=True)
    assert list(found) == [f"model.encoder.layers.{layer}.self_attn" for layer in range(3)]
    torch.testing.assert_close(tuple(found.values()), expected.encoder_attentions, rtol=0, atol=0)

"""``output_attentions=True``: both levels' weights, against those of fairseq's model and a dense computation."""

import torch

from fairseq_poolingformer.attention import recorded_weights
from fairseq_poolingformer.huggingface import (
    PoolingformerBartConfig,
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartModel,
    PoolingformerRobertaConfig,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaModel,
)
from tests.attention.test_probabilities import dense, expected_weights
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


def test_every_layer_has_the_dropout_of_its_configuration():
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 8}
    dropout = {"attention_probs_dropout_prob": 0.3, "hidden_dropout_prob": 0.2}
    config = PoolingformerRobertaConfig(vocab_size=9, pooled_layers="1", relative_attention="c2p", **sizes, **dropout)
    for layer in PoolingformerRobertaModel(config).encoder.layer:
        attention = layer.attention.self
        assert (attention.dropout, attention.relative_projections.dropout.p) == (0.3, 0.2)
    sizes = {"d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8}
    layers = {"encoder_layers": 2, "decoder_layers": 1, "decoder_ffn_dim": 8, "pooled_layers": "1"}
    config = PoolingformerBartConfig(vocab_size=9, attention_dropout=0.4, **sizes, **layers)
    assert [layer.self_attn.dropout for layer in PoolingformerBartModel(config).encoder.layers] == [0.4, 0.4]

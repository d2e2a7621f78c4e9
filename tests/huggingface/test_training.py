"""Trainer's demands on a model: accumulated gradients, a configuration's wishes."""

import pytest
import torch
from transformers import Trainer
from transformers.models.bart.modeling_bart import BartDecoder, BartEncoder
from transformers.models.modernbert.modeling_modernbert import ModernBertEmbeddings
from transformers.models.roberta.modeling_roberta import RobertaEncoder

from fairseq_poolingformer.huggingface import (
    PoolingformerBartConfig,
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartModel,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerModernBertForMaskedLM,
    PoolingformerModernBertForSequenceClassification,
    PoolingformerRobertaConfig,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForQuestionAnswering,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaModel,
)
from tests.huggingface.tiny_models import trainer_arguments

ROWS, LENGTH, WORDS = 4, 24, 30
BART = {
    **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in (("layers", 2), ("ffn_dim", 24))},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 2, "d_model": 16, "dropout": 0.0},
}
ROBERTA = {
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24},
    **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
MODERNBERT = {
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24},
    **{"layer_types": ["sliding_attention", "full_attention"], "pad_token_id": 1},
}
LEVELS = {"vocab_size": WORDS, "window_size": "3", "pooled_window_size": "8", "pooled_layers": "1"}
MODELS = (
    PoolingformerBartForConditionalGeneration,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaForQuestionAnswering,
    PoolingformerModernBertForMaskedLM,
    PoolingformerModernBertForSequenceClassification,
)


def make(model_class, **settings):
    """A random model without dropout."""
    torch.manual_seed(1)
    kinds = (("Roberta", ROBERTA), ("ModernBert", MODERNBERT), ("", BART))
    sizes = next(sizes for kind, sizes in kinds if kind in model_class.__name__)
    return model_class(model_class.config_class(**sizes, **LEVELS, **settings))


def rows(model_class):
    """Examples with different numbers of labels; one for the masked language model has none."""
    torch.manual_seed(2)
    examples = []
    for row in range(ROWS):
        tokens = torch.randint(3, WORDS, (LENGTH,))
        example = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if model_class is PoolingformerRobertaForQuestionAnswering:
            example |= {"start_positions": tokens[0] % LENGTH, "end_positions": tokens[1] % LENGTH}
        elif model_class.__name__.endswith("ForSequenceClassification"):
            example["labels"] = tokens[0] % 2
        else:
            labels = tokens.clone()
            masked_lm = model_class.__name__.endswith("ForMaskedLM")
            labels[(3 * row if masked_lm else 3 * row + 2) :] = -100
            example["labels"] = labels
        examples.append(example)
    return examples


def one_update(model, tmp_path, batch_size):
    """Train on all examples in one update, whatever the batch size; return the gradients, and the loss that is logged.

    The first are the update itself, of plain gradient descent with the rate 1.
    """
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    sizes = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": ROWS // batch_size}
    arguments = trainer_arguments(tmp_path, **sizes, max_steps=1)
    descent = torch.optim.SGD(model.parameters(), lr=1.0), None
    trainer = Trainer(model, arguments, train_dataset=rows(type(model)), optimizers=descent)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {name: before[name] - value.detach() for name, value in model.named_parameters()}, losses[0]


@pytest.mark.parametrize("model_class", MODELS)
def test_accumulated_gradients_are_those_of_one_large_batch(tmp_path, model_class):
    pytest.importorskip("accelerate")
    at_once, loss = one_update(make(model_class), tmp_path, ROWS)
    accumulated, same = one_update(make(model_class), tmp_path, 1)
    assert same == pytest.approx(loss, rel=1e-4)
    assert max(gradient.abs().max().item() for gradient in at_once.values()) > 1e-3
    for name, gradient in at_once.items():
        torch.testing.assert_close(accumulated[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


@torch.no_grad()
def test_trainer_may_keep_the_labels_and_still_give_their_number():
    """It does where it smooths them."""
    for model_class in MODELS[:4]:
        inputs = {name: value[None] for name, value in rows(model_class)[1].items() if name != "labels"}
        inputs |= {"decoder_input_ids": inputs["input_ids"]} if model_class in MODELS[:2] else {}
        assert make(model_class)(**inputs, num_items_in_batch=7).loss is None


@pytest.mark.parametrize("model_class", MODELS)
def test_a_configuration_asks_for_gradient_checkpointing(model_class):
    model = make(model_class, gradient_checkpointing=True)
    layers = [module for module in model.modules() if type(module).__name__.endswith("Layer")]
    flags = [module.gradient_checkpointing for module in layers if hasattr(module, "gradient_checkpointing")]
    assert len(flags) >= 2
    assert all(flags)
    assert not any(getattr(module, "gradient_checkpointing", False) for module in make(model_class).modules())


@pytest.mark.parametrize("model_class", MODELS)
@torch.no_grad()
def test_a_configuration_asks_for_attentions(model_class):
    tokens = rows(model_class)[0]["input_ids"][None]
    key = "encoder_attentions" if model_class in MODELS[:2] else "attentions"
    model = make(model_class, output_attentions=True).eval()
    (first, second), expected = model(tokens)[key], make(model_class).eval()(tokens, output_attentions=True)[key]
    assert torch.equal(first.level_one.band, expected[0].level_one.band)
    assert torch.equal(second.level_two.band, expected[1].level_two.band)
    assert model(tokens, output_attentions=False).get(key) is None


@pytest.mark.parametrize(
    ("model_class", "parts"),
    [
        (MODELS[0], (BartEncoder, BartDecoder)),
        (MODELS[2], (RobertaEncoder,)),
        *((model_class, (ModernBertEmbeddings,)) for model_class in MODELS[5:]),
    ],
)
def test_every_part_is_built_once(monkeypatch, model_class, parts):
    """In memory: transformers' own, which it takes the place of, is on the meta device."""
    built = []
    for part in parts:
        plain = part.__init__
        count = lambda self, *a, _i=plain, _p=part: (torch.empty(0).is_meta or built.append(_p), _i(self, *a))[1]  # noqa: E731
        monkeypatch.setattr(part, "__init__", count)
    make(model_class)
    assert sorted(built, key=str) == sorted(parts, key=str)


@pytest.mark.parametrize("model_class", MODELS[:2])
def test_generation_beyond_the_positions_is_refused(model_class):
    model = make(model_class, max_decoder_position_embeddings=10, decoder_start_token_id=2).eval()
    tokens = rows(model_class)[0]["input_ids"][None]
    assert model.generate(tokens, max_length=11, min_length=11, num_beams=2).size(1) == 11
    for use_cache in (True, False):
        with pytest.raises(ValueError, match=r"11 tokens for the decoder, which takes 10 .* smaller max_length"):
            model.generate(tokens, max_length=12, min_length=12, use_cache=use_cache)
    for name in ("past_key_values", "cache"):  # as transformers calls it, since 5.24
        cache = model.model(tokens, decoder_input_ids=tokens[:, :6], use_cache=True).past_key_values
        with pytest.raises(ValueError, match="11 tokens for the decoder"):
            model.model.decoder(tokens[:, :5], encoder_hidden_states=torch.ones(1, 3, 16), **{name: cache})


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

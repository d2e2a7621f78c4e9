"""Poolingformer-RoBERTa and the DeBERTa fusion in transformers: fairseq's models with the same weights, both ways."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM

from fairseq_poolingformer.huggingface import (
    PoolingformerRobertaConfig,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaModel,
)
from tests.huggingface.tiny_models import LEVELS, converted, converted_back, without_dropout
from tests.models import tiny_huggingface
from tests.weights.encoders import assert_agree, batch, globals_at, load

FUSION = {
    **{"window_size": "3", "pooled_window_size": "8", "pooled_layers": "1-2", "global_tokens": 1},
    **{"max_relative_positions": 5, "global_relative_positions": 3, "layer_norm_eps": 1e-7},
}


def fusion(path, **settings):
    """fairseq's fusion with random weights in double precision, and the folder that it converts to."""
    absolute = settings.get("no_token_positional_embeddings") is False
    settings, parts = {**FUSION, **settings}, (".pooled_", "global_")
    model, folder = converted(path, "deberta", load, settings, parts, position_biased_input=absolute)
    return model.double(), folder


@pytest.fixture(scope="module")
def fused(tmp_path_factory):
    return fusion(tmp_path_factory.mktemp("deberta"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """fairseq's model with random weights in double precision, and the folder that it converts to."""
    path, arguments = tmp_path_factory.mktemp("roberta"), ("--arch", "poolingformer_roberta_base")
    model, folder = converted(path, "roberta", load, LEVELS, arguments=arguments)
    return model.double(), folder


@pytest.mark.parametrize("relative_attention", ["none", "c2p,p2c"])
def test_logits_are_fairseqs(relative_attention, request):
    model, folder = request.getfixturevalue("made" if relative_attention == "none" else "fused")
    theirs, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(theirs) is PoolingformerRobertaForMaskedLM
    assert not any(info.values())
    assert theirs.config.relative_attention == relative_attention
    absolute = [name for name in theirs.state_dict() if name.endswith("embeddings.position_embeddings.weight")]
    assert len(absolute) == (relative_attention == "none")
    for tokens in (batch(), batch((46, 1, 31))):
        assert_agree(model, theirs.eval(), tokens)
        assert_agree(model, theirs, tokens, globals_at(tokens, [0, 3], [0], [0, 1, 4]))


def test_weights_go_to_transformers_and_back_bit_for_bit(made, tmp_path):
    model, folder = made
    converted_back(folder, model, tmp_path)


def test_from_short_makes_a_classifier_as_wide_as_asked(tmp_path):
    tiny_huggingface.folder(tmp_path, "roberta")
    cls = PoolingformerRobertaForSequenceClassification
    long = cls.from_short(tmp_path, num_labels=5)
    assert (long.config.num_labels, long.classifier.out_proj.out_features) == (5, 5)
    named = cls.from_short(tmp_path, id2label={0: "no", 1: "yes", 2: "both"}, label2id={"no": 0, "yes": 1, "both": 2})
    assert (named.config.id2label[2], named.classifier.out_proj.out_features) == ("both", 3)
    short = cls.short_classes["roberta"].from_pretrained(tmp_path, num_labels=3)
    assert cls.from_short(short, num_labels=3).config.num_labels == 3
    with pytest.raises(ValueError, match="num_labels is 3, not 5: load it with num_labels=5"):
        cls.from_short(short, num_labels=5)
    with pytest.raises(
        ValueError, match=r"the short model lacks classifier\.dense\.weight, .*: give one of the same kind"
    ):
        cls.from_short(tiny_huggingface.model("roberta"))


def test_a_second_level_that_a_folder_lacks_is_initialized(made, tmp_path):
    """Loading builds models without memory first, where the values of the constructor are lost."""
    _, folder = made
    AutoModelForMaskedLM.from_pretrained(folder, pooled_layers="none").save_pretrained(tmp_path)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path, pooled_layers="1-2", ldconv_heads=2)
    attention = model.roberta.encoder.layer[2].attention.self
    for weight in (attention.pooled_k_pool_weight, attention.pooled_v_pool_weight, attention.pooled_q_proj.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert not attention.pooled_k_proj.bias.any()


def test_gradients_reach_the_shared_tables_and_are_fairseqs(fused):
    model, folder = fused
    theirs, tokens = AutoModelForMaskedLM.from_pretrained(folder).double(), batch()
    theirs.gradient_checkpointing_enable()
    without_dropout(theirs.train())
    labels = tokens.masked_fill(tokens.eq(1), -100)
    model.zero_grad()
    F.cross_entropy(model(tokens)[0].flatten(0, 1), labels.flatten()).backward()
    theirs(tokens, attention_mask=tokens.ne(1).long(), labels=labels).loss.backward()
    parameters, encoder = dict(model.named_parameters()), theirs.roberta.encoder
    for name in ("relative_positions", "global_relative_positions"):
        table = getattr(encoder, name).weight
        torch.testing.assert_close(table.grad, parameters[f"encoder.sentence_encoder.{name}.weight"].grad)
        assert table.grad.any()
    for name, parameter in encoder.layer[1].attention.self.relative_projections.named_parameters():
        expected = parameters[f"encoder.sentence_encoder.layers.1.relative_projections.{name}"].grad
        torch.testing.assert_close(parameter.grad, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"global_tokens": 0, "global_relative_positions": 0, "pool_type": "mean"},
        {"no_token_positional_embeddings": False, "pool_stride": 3},
    ],
)
def test_a_fusion_goes_to_transformers_and_back_bit_for_bit(tmp_path, changes):
    model, folder = fusion(tmp_path, **changes)
    settings, checkpoint = converted_back(folder, model, tmp_path)
    assert {name: settings[name] for name in FUSION} == {**FUSION, **{k: v for k, v in changes.items() if k in FUSION}}
    flags = checkpoint.with_name("flags.txt").read_text()
    assert "--relative-attention c2p,p2c" in flags
    assert ("--no-absolute-positions" in flags) == ("no_token_positional_embeddings" not in changes)
    assert "--layer-norm-eps 1e-07" in flags
    assert ("--pool-type mean" in flags) == ("pool_type" in changes)
    assert ("--pool-stride 3" in flags) == ("pool_stride" in changes)
    again = load(checkpoint)
    tokens = batch()
    torch.testing.assert_close(again(tokens)[0][tokens.ne(1)], model(tokens)[0][tokens.ne(1)], rtol=0, atol=1e-10)


def test_a_roberta_becomes_a_fusion_with_new_relative_positions():
    short = tiny_huggingface.model("roberta")
    long = PoolingformerRobertaForMaskedLM.from_short(
        short, relative_attention="c2p", max_position_embeddings=60, window_size="4", max_relative_positions=6
    )
    layer = long.roberta.encoder.layer[0].attention.self
    assert layer.relative_projections.k_proj.weight.any()
    assert layer.scale == pytest.approx((2 * 6) ** -0.5)
    assert torch.equal(layer.query.weight, short.roberta.encoder.layer[0].attention.self.query.weight)
    assert long(batch()).logits.isfinite().all()


def test_a_fusion_that_a_folder_lacks_is_initialized(tmp_path):
    """Loading builds models without memory first, where the values of the constructor are lost."""
    tiny_huggingface.model("roberta").save_pretrained(tmp_path)
    settings = {"relative_attention": "c2p,p2c", "window_size": "4", "max_relative_positions": 6}
    long = PoolingformerRobertaForMaskedLM.from_short(tmp_path, pooled_layers="none")
    long.save_pretrained(tmp_path / "long")
    model = PoolingformerRobertaForMaskedLM.from_pretrained(tmp_path / "long", **settings)
    encoder = model.roberta.encoder
    assert encoder.global_relative_positions.tokens_per_row.item() == 4096 / 64
    assert encoder.relative_positions.weight.std().item() == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"absolute_positions": False}, "absolute_positions=False without relative_attention"),
        (
            {"absolute_positions": False, "relative_attention": "c2p", "random_position_offsets": True},
            "random_position_offsets=True is about learned positions, .* give absolute_positions=True",
        ),
        ({"is_decoder": True}, "every token sees both sides"),
        ({"add_cross_attention": True}, "every token sees both sides"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PoolingformerRobertaModel(PoolingformerRobertaConfig(pooled_layers="0", num_hidden_layers=1, **settings))

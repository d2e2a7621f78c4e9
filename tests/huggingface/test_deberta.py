"""The DeBERTa fusion in transformers: fairseq's model with the same weights, both ways."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM

from fairseq_poolingformer.huggingface import PoolingformerRobertaConfig, PoolingformerRobertaForMaskedLM
from tests.huggingface.tiny_models import converted, converted_back, without_dropout
from tests.models import tiny_huggingface
from tests.weights.encoders import assert_agree, batch, globals_at, load

LEVELS = {
    "window_size": "3",
    "pooled_window_size": "8",
    "pooled_layers": "1-2",
    "global_tokens": 1,
    "max_relative_positions": 5,
    "global_relative_positions": 3,
    "layer_norm_eps": 1e-7,
}


def make(path, **settings):
    """fairseq's fusion with random weights in double precision, its checkpoint, and the folder that it converts to."""
    absolute = settings.get("no_token_positional_embeddings") is False
    settings, parts = {**LEVELS, **settings}, (".pooled_", "global_")
    model, folder = converted(path, "deberta", load, settings, parts, position_biased_input=absolute)
    return model.double(), folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("deberta"))


def test_logits_are_fairseqs(made):
    model, folder = made
    theirs, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(theirs) is PoolingformerRobertaForMaskedLM
    assert not any(info.values())
    assert not any("position_embeddings" in name for name in theirs.state_dict())
    assert theirs.config.relative_attention == "c2p,p2c"
    for tokens in (batch(), batch((46, 1, 31))):
        assert_agree(model, theirs.eval(), tokens)
        assert_agree(model, theirs, tokens, globals_at(tokens, [0, 3], [0], [0, 1, 4]))


def test_gradients_reach_the_shared_tables_and_are_fairseqs(made):
    model, folder = made
    theirs, tokens = AutoModelForMaskedLM.from_pretrained(folder).double(), batch()
    theirs.gradient_checkpointing_enable()
    without_dropout(theirs.train())
    labels = tokens.masked_fill(tokens.eq(1), -100)
    model.zero_grad()
    F.cross_entropy(model(tokens)[0].flatten(0, 1), labels.flatten()).backward()
    theirs(tokens, attention_mask=tokens.ne(1).long(), labels=labels).loss.backward()
    own, encoder = dict(model.named_parameters()), theirs.roberta.encoder
    for name in ("relative_positions", "global_relative_positions"):
        table = getattr(encoder, name).weight
        torch.testing.assert_close(table.grad, own[f"encoder.sentence_encoder.{name}.weight"].grad)
        assert table.grad.any()
    for name, parameter in encoder.layer[1].attention.self.relative_projections.named_parameters():
        expected = own[f"encoder.sentence_encoder.layers.1.relative_projections.{name}"].grad
        torch.testing.assert_close(parameter.grad, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"global_tokens": 0, "global_relative_positions": 0, "pool_type": "mean"},
        {"no_token_positional_embeddings": False, "pool_stride": 3},
    ],
)
def test_weights_go_to_transformers_and_back_bit_for_bit(tmp_path, changes):
    model, folder = make(tmp_path, **changes)
    settings, checkpoint = converted_back(folder, model, tmp_path)
    assert {name: settings[name] for name in LEVELS} == {**LEVELS, **{k: v for k, v in changes.items() if k in LEVELS}}
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


def test_a_model_without_any_positions_is_refused():
    config = PoolingformerRobertaConfig(absolute_positions=False, pooled_layers="0", num_hidden_layers=1)
    with pytest.raises(ValueError, match="absolute_positions=False without relative_attention"):
        PoolingformerRobertaForMaskedLM(config)

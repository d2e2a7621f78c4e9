"""The converter of RoBERTa and Longformer: refusals, and parts that it leaves out only on demand."""

import pytest
import torch

from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead
from fairseq_poolingformer.weights import ConversionError, files
from fairseq_poolingformer.weights.convert import to_fairseq
from tests.models import tiny_huggingface
from tests.weights.conftest import run
from tests.weights.test_roberta import ROWS, assert_agree, batch, globals_at, load, poolingformer


def test_level_two_and_heads_are_left_out_only_on_demand(tmp_path, capsys):
    path, settings, model = poolingformer(tmp_path, window_size="4", pooled_window_size="8", pooled_layers="1-2")
    model.register_head("question_answering", QuestionAnsweringHead(model.args.encoder_embed_dim))
    files.write_checkpoint(path, settings, model.state_dict())
    assert run("to-huggingface", path, tmp_path / "back", "--model-type", "longformer") == 1
    assert "--drop-pooled" in capsys.readouterr().err
    assert run("to-huggingface", path, tmp_path / "back", "--drop-pooled") == 1
    error = capsys.readouterr().err
    assert "question_answering_head." in error
    assert "--drop-heads" in error
    assert not (tmp_path / "back").exists()
    assert run("to-huggingface", path, tmp_path / "back", "--drop-pooled", "--drop-heads") == 0
    kept = {name: tensor for name, tensor in model.state_dict().items() if ".pooled_" not in name}
    files.write_checkpoint(path, {**settings, "pooled_layers": "none"}, kept)
    back = tiny_huggingface.MODELS["longformer"].from_pretrained(tmp_path / "back").eval()
    tokens = batch()
    assert_agree(load(path), back, tokens, globals_at(tokens, [0], [0], [0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; fairseq's RoBERTa needs 'gelu'"),
        ({"layer_norm_eps": 1e-12}, "layer_norm_eps is 1e-12"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"pad_token_id": 0}, "pad_token_id is 0"),
        ({"max_position_embeddings": 60}, r"embed_positions\.weight is \(48, 24\) .* asks for \(60, 24\)"),
        ({"is_decoder": True}, "is_decoder is True"),
    ],
)
def test_what_fairseq_cannot_express_is_refused(change, message):
    model = tiny_huggingface.model("roberta")
    with pytest.raises(ConversionError, match=message):
        to_fairseq({**model.config.to_dict(), **change}, dict(model.state_dict()))


def test_parameters_that_are_missing_or_untied_are_named():
    model = tiny_huggingface.model("roberta")
    config = model.config.to_dict()
    state = dict(model.state_dict())
    del state["lm_head.dense.bias"], state["roberta.encoder.layer.2.output.dense.bias"]
    with pytest.raises(
        ConversionError, match=r"missing: encoder\.layer\.2\.output\.dense\.bias, lm_head\.dense\.bias;"
    ):
        to_fairseq(config, state)
    untied = {**model.state_dict(), "lm_head.decoder.weight": torch.ones(ROWS, 24)}
    with pytest.raises(ConversionError, match=r"word_embeddings\.weight and lm_head\.decoder\.weight differ"):
        to_fairseq(config, untied)
    with pytest.raises(ConversionError, match="poolingformer_bart_base cannot hold a roberta"):
        to_fairseq(config, dict(model.state_dict()), arch="poolingformer_bart_base")


def test_a_tokenizer_without_mask(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta", vocab_size=ROWS - 1)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 1
    assert f"makes {ROWS} symbols with <mask>, the embedding has {ROWS - 1} rows" in capsys.readouterr().err
    assert not (tmp_path / "fairseq").exists()


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"window_size": "4,1,4"}, (), "window_size 4,1,4: Hugging Face needs at least 2"),
        ({"separate_global_projections": True}, ("--model-type", "roberta"), "--model-type longformer"),
        ({"encoder_normalize_before": True}, (), "encoder_normalize_before is True"),
        ({"arch": "transformer_lm"}, (), "architecture is transformer_lm"),
        ({}, (), "no window_size"),
        ({"window_size": "4"}, ("--model-type", "led"), "settings lack"),
    ],
)
def test_what_hugging_face_cannot_express_is_refused(tmp_path, capsys, settings, options, message):
    path, stored, model = poolingformer(tmp_path, pooled_layers="none")
    files.write_checkpoint(path, {**stored, **settings}, model.state_dict())
    assert run("to-huggingface", path, tmp_path / "back", *options) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "back").exists()

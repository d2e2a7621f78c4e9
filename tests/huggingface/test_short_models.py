"""What loading a model takes: folders with sizes within reason, or weights without a folder."""

import json

import pytest
from transformers import AutoModelForSeq2SeqLM

from fairseq_poolingformer.huggingface import PoolingformerBartConfig, PoolingformerBartForConditionalGeneration

SMALL = {"vocab_size": 20, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SMALL |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "pooled_layers": "0"}
SMALL |= {"max_position_embeddings": 16, "max_decoder_position_embeddings": 16}


def test_auto_classes_bound_sizes_before_the_model_is_made(tmp_path):
    PoolingformerBartForConditionalGeneration(PoolingformerBartConfig(**SMALL)).save_pretrained(tmp_path)
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "decoder_layers": 10**9}))
    with pytest.raises(ValueError, match=r"its setting decoder_layers is 1000000000, and must be a whole number up to"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


def test_weights_need_no_folder():
    model = PoolingformerBartForConditionalGeneration(PoolingformerBartConfig(**SMALL))
    again = type(model).from_pretrained(None, config=model.config, state_dict=model.state_dict())
    assert all(value.equal(again.state_dict()[name]) for name, value in model.state_dict().items())

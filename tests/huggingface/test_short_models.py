"""Sizes beyond reason in the configuration that ``AutoModel…`` gives."""

import json

import pytest
from transformers import AutoModelForSeq2SeqLM

from fairseq_poolingformer.huggingface import PoolingformerBartConfig, PoolingformerBartForConditionalGeneration


def test_auto_classes_bound_sizes_before_the_model_is_made(tmp_path):
    small = {"vocab_size": 20, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    small |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "pooled_layers": "0"}
    small |= {"max_position_embeddings": 16, "max_decoder_position_embeddings": 16}
    PoolingformerBartForConditionalGeneration(PoolingformerBartConfig(**small)).save_pretrained(tmp_path)
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "decoder_layers": 10**9}))
    with pytest.raises(ValueError, match=r"its setting decoder_layers is 1000000000, and must be a whole number up to"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)

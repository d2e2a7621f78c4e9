"""Conversion and back, of models whose sizes hypothesis chooses: every number returns, bit for bit."""

import contextlib
import io
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import load_file

from fairseq_poolingformer.cli import convert
from tests.models import tiny_huggingface

POSITIONS = "roberta.embeddings.position_embeddings.weight"
TYPES = "roberta.embeddings.token_type_embeddings.weight"


@st.composite
def sizes(draw, model_type):
    """Changes of a configuration."""
    heads, width = draw(st.integers(1, 3)), draw(st.sampled_from([2, 4, 8]))
    layers, inner = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    if model_type == "roberta":
        changes = {"hidden_size": heads * width, "num_attention_heads": heads, "num_hidden_layers": layers}
        return {**changes, "intermediate_size": inner, "max_position_embeddings": draw(st.integers(6, 50))}
    changes = {"d_model": heads * width, "encoder_attention_heads": heads, "encoder_layers": layers}
    changes |= {"encoder_ffn_dim": inner, "decoder_ffn_dim": draw(st.integers(1, 40))}
    changes |= {"decoder_layers": draw(st.integers(1, 3)), "decoder_attention_heads": heads}
    return {**changes, "max_position_embeddings": draw(st.integers(6, 50))}


@pytest.mark.full
@pytest.mark.parametrize("model_type", ["bart", "roberta"])
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_every_number_returns(model_type, data):
    changes = data.draw(sizes(model_type))
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        tiny_huggingface.folder(folder / "first", model_type, **changes)
        assert convert.main(["to-fairseq", str(folder / "first"), str(folder / "fairseq")]) == 0
        assert convert.main(["to-huggingface", str(folder / "fairseq" / "model.pt"), str(folder / "back")]) == 0
        first, back = (load_file(folder / side / "model.safetensors") for side in ("first", "back"))
    if model_type == "bart":
        assert not first.pop("final_logits_bias").any()  # which fairseq does not have
    else:
        # fairseq has no token types: positions take over the only one
        assert not back.pop(TYPES).any()
        first[POSITIONS][2:] += first.pop(TYPES)[0]
    assert first.keys() == back.keys()
    for key, tensor in first.items():
        rows = len(back[key])
        assert torch.equal(tensor[:rows], back[key]), key
        # fairseq's dictionary has no <mask> for summarization
        assert rows == len(tensor) or (model_type == "bart" and rows == len(tensor) - 1)

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

from tests.weights.conftest import converted, run

POSITIONS = "roberta.embeddings.position_embeddings.weight"
TYPES = "roberta.embeddings.token_type_embeddings.weight"


@st.composite
def sizes(draw, model_type):
    heads, width = draw(st.integers(1, 3)), draw(st.sampled_from([2, 4, 8]))
    layers, inner, positions = draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(6, 50))
    changes = {"num_attention_heads": heads, "num_hidden_layers": layers, "intermediate_size": inner}
    if model_type == "bart":
        changes = {"encoder_attention_heads": heads, "encoder_layers": layers, "encoder_ffn_dim": inner}
        changes |= {"decoder_attention_heads": heads, "decoder_layers": draw(st.integers(1, 3))}
        changes["decoder_ffn_dim"] = draw(st.integers(1, 40))
    name = "d_model" if model_type == "bart" else "hidden_size"
    return {**changes, name: heads * width, "max_position_embeddings": positions}


@pytest.mark.full
@pytest.mark.parametrize("model_type", ["bart", "roberta"])
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_every_number_returns(model_type, data):
    changes = data.draw(sizes(model_type))
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        _, path = converted(folder, model_type, **changes)
        assert run("to-huggingface", path, folder / "back") == 0
        weights, back = (load_file(folder / side / "model.safetensors") for side in ("hf", "back"))
    if model_type == "bart":
        assert not weights.pop("final_logits_bias").any()  # which fairseq does not have
    else:
        # fairseq has no token types: positions take over the only one
        assert not back.pop(TYPES).any()
        weights[POSITIONS][2:] += weights.pop(TYPES)[0]
    assert weights.keys() == back.keys()
    for key, tensor in weights.items():
        rows = len(back[key])
        assert torch.equal(tensor[:rows], back[key]), key
        # fairseq's dictionary has no <mask> for summarization
        assert rows == len(tensor) or (model_type == "bart" and rows == len(tensor) - 1)

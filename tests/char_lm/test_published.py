"""Evaluation of transformer_xl_lm and adaptive_span_lm as their published code does it, against the naive model."""

import json
import math

import numpy as np
import pytest
import torch

from fairseq_poolingformer.cli import eval_lm
from fairseq_poolingformer.text.dictionary import EOS, FIRST_BYTE
from preprocess.char_lm import make_folder
from tests.char_lm import naive_char_lm

pytestmark = pytest.mark.full
SIZES = ("--decoder-layers", "2")


def evaluated(tmp_path, text, held_out, path, *flags):
    (tmp_path / "text").write_bytes(text)
    make_folder([str(tmp_path / "text")], tmp_path / "data", held_out=held_out)
    output = tmp_path / "result.json"
    command = [tmp_path / "data", "--path", path, "--device", "cpu", *flags, "--output", output]
    assert eval_lm.main([str(word) for word in command]) == 0
    return json.loads(output.read_text())


def bits(model, text, **settings):
    """The naive model's bits of each byte, the first one after </s>."""
    parameters = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    targets = torch.tensor([FIRST_BYTE + byte for byte in text])
    inputs = torch.tensor([EOS, *targets[:-1]])
    log_probabilities = naive_char_lm.logits(parameters, inputs, heads=4, **settings).log_softmax(-1)
    return -log_probabilities[torch.arange(len(text)), targets].mean().item() / math.log(2)


@pytest.mark.parametrize("tied", [True, False])
def test_transformer_xl(tmp_path, char_lm_checkpoint, tied):
    """Every byte sees ``memory`` bytes, itself the last; distances end at ``clamp``; newlines are left out."""
    text = np.frombuffer(b"ba\nc d", np.uint8)[np.random.default_rng(0).integers(0, 6, 400)].tobytes()
    share = () if tied else ("--no-share-decoder-input-output-embed",)
    settings = ("--memory-length", "7", "--eval-context", "14", *share)
    path, model = char_lm_checkpoint("transformer_xl_lm", *SIZES, *settings)
    flags = ("--memory-length", 9, "--same-length", "--clamp-distances", 5, "--skip-newlines")
    result = evaluated(tmp_path, text, 60, path, *flags)
    read = text[-60:].replace(b"\n", b"")
    assert result["scored"] == len(read) < 60
    expected = bits(model, read, sees=lambda layer, head, distance: distance < 9, farthest=5)
    assert result["bpc"] == pytest.approx(expected, abs=1e-5)


def test_adaptive_span(tmp_path, char_lm_checkpoint):
    """A byte sees those before it, of which there are zeros before the text."""
    text = np.random.default_rng(0).integers(0, 256, 300, dtype=np.uint8).tobytes()
    spans = ("--max-span", "20", "--span-ramp", "6")
    path, model = char_lm_checkpoint("adaptive_span_lm", *SIZES, *spans, "--eval-context", "20")
    result = evaluated(tmp_path, text, 40, path)
    expected = bits(model, text[-40:], longest=20, ramp=6, nearest=1, zeros=True, scale=False)
    assert result["bpc"] == pytest.approx(expected, abs=1e-5)

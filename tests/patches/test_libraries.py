"""fairseq on current Python, torch and numpy, and beside an apex without kernels."""

from types import SimpleNamespace

import numpy
import pytest
from fairseq import options, tasks
from fairseq.data import LanguagePairDataset, encoders

from tests.lab import run_code
from tests.patches.helpers import EXAMPLES, TRANSLATION, parse

CHECK = """
import importlib, torch
from fairseq.modules import layer_norm
torch.cuda.is_available = lambda: True
importlib.reload(layer_norm)
import fairseq_poolingformer
fairseq_poolingformer.register()
print(type(layer_norm.LayerNorm(8)).__name__)
"""


FUSED = """
import importlib, torch
class FusedLayerNorm(torch.nn.LayerNorm):
    def __init__(self, *arguments):
        importlib.import_module("fused_layer_norm_cuda")
        super().__init__(*arguments)
"""


@pytest.mark.parametrize(("kernels", "expected"), [(False, "LayerNorm"), (True, "FusedLayerNorm")])
def test_apex_is_used_when_its_kernels_are_there(kernels, expected, tmp_path):
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").touch()
    (tmp_path / "apex" / "normalization.py").write_text(FUSED)
    if kernels:
        (tmp_path / "fused_layer_norm_cuda.py").touch()
    output = run_code(CHECK, tmp_path)
    assert output.split()[-1] == expected
    assert ("apex is installed without its CUDA kernels" in output) == (not kernels)


def setup_task(*arguments):
    return tasks.setup_task(parse(options.get_training_parser(), arguments).task)


def _masked_lm(text, *extra):
    arguments = [text, "--task", "masked_lm", "--arch", "roberta_base", "--batch-size", 4, "--tokens-per-sample", 16]
    task = setup_task(*arguments, "--criterion", "masked_lm", *extra)
    task.load_dataset("train")
    return task


def test_sample_break_mode_eos(text):
    assert len(_masked_lm(text, "--sample-break-mode", "eos").dataset("train")) == EXAMPLES["train"]


def test_mask_whole_words_masks_words(text, monkeypatch):
    """Every second token begins a word."""
    bpe = SimpleNamespace(is_beginning_of_word=lambda token: int(token[1:]) % 2 == 0)
    names = []
    monkeypatch.setattr(encoders, "build_bpe", lambda cfg: names.append(cfg._name) or bpe)
    task = _masked_lm(text, "--mask-whole-words", "--bpe", "subword_nmt", "--mask-prob", 0.5)
    assert names == ["subword_nmt"]
    assert (task.dataset("train")[0]["target"] != task.source_dictionary.pad()).any()


def test_mask_whole_words_without_a_bpe(text):
    with pytest.raises(ValueError, match="give --bpe"):
        _masked_lm(text, "--mask-whole-words")


def test_batch_buckets(corpus):
    flags = ["--arch", "transformer", "--num-batch-buckets", 2, "--max-tokens", 64]
    task = setup_task(corpus, *TRANSLATION, *flags)
    task.load_dataset("train")
    dataset = task.dataset("train")
    assert isinstance(dataset, LanguagePairDataset)
    batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=64, required_batch_size_multiple=1)
    assert sorted(numpy.concatenate(batches).tolist()) == list(range(EXAMPLES["train"]))

"""What fairseq expects of torch, numpy, apex and the C library."""

import inspect
import subprocess
import sys

import numpy
import pytest
import torch
from fairseq.data import LanguagePairDataset, TokenBlockDataset, data_utils, language_pair_dataset, token_block_dataset
from fairseq.tasks.masked_lm import MaskedLMTask

from fairseq_poolingformer.patches.fixes import libraries
from tests.patches.helpers import EXAMPLES, TRANSLATION, parse

CHECK = """
import torch
torch.cuda.is_available = lambda: True
import fairseq.modules.layer_norm as layer_norm
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
    check = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{CHECK}"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.split()[-1] == expected
    assert ("apex is installed without its CUDA kernels" in result.stderr) == (not kernels)


@pytest.mark.parametrize("has_gpu", [False, True])
def test_freed_memory_is_kept_without_a_gpu(monkeypatch, has_gpu):
    calls = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(libraries, "keep_freed_memory", lambda: calls.append("kept"))
    libraries.keep_freed_memory_without_a_gpu()
    assert calls == ([] if has_gpu else ["kept"])


SIZES = numpy.array([3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 3, 4, 5], dtype=numpy.int64)


def _masked_lm(text, *extra):
    from fairseq import options, tasks

    arguments = [text, "--task", "masked_lm", "--arch", "roberta_base", "--batch-size", 4, "--tokens-per-sample", 16]
    cfg = parse(options.get_training_parser(), [*arguments, "--criterion", "masked_lm", *extra])
    return tasks.setup_task(cfg.task)


def test_sample_break_mode_eos(text):
    task = _masked_lm(text, "--sample-break-mode", "eos")
    task.load_dataset("train")
    assert len(task.dataset("train")) == EXAMPLES["train"]


def test_mask_whole_words(text, monkeypatch):
    task = _masked_lm(text, "--mask-whole-words", "--bpe", "bert")
    assert task.args._name == "bert"
    monkeypatch.delattr(MaskedLMTask, "args")
    with pytest.raises(AttributeError, match="args"):
        task.load_dataset("train")


def test_mask_whole_words_masks_words(text, monkeypatch):
    from fairseq.data import encoders

    class EverySecondTokenBeginsAWord:
        def is_beginning_of_word(self, token):
            return int(token[1:]) % 2 == 0

    seen = []
    monkeypatch.setattr(encoders, "build_bpe", lambda cfg: seen.append(cfg._name) or EverySecondTokenBeginsAWord())
    task = _masked_lm(text, "--mask-whole-words", "--bpe", "subword_nmt", "--mask-prob", 0.5)
    task.load_dataset("train")
    assert seen == ["subword_nmt"]
    item = task.dataset("train")[0]
    assert (item["target"] != task.source_dictionary.pad()).any()


def test_mask_whole_words_without_a_bpe(text):
    with pytest.raises(ValueError, match="give --bpe"):
        _masked_lm(text, "--mask-whole-words").load_dataset("train")


def test_no_args_without_whole_words(text):
    assert not hasattr(_masked_lm(text), "args")


def test_the_property_is_the_plugins_own():
    assert MaskedLMTask.args.fget is libraries._whole_word_bpe


# numpy


def test_former_numpy_names():
    shim = token_block_dataset.np
    assert shim.compat.long is int
    assert shim.arange is numpy.arange
    assert shim.percentile([1, 2, 3, 4], 50, interpolation="lower") == 2
    assert shim.percentile([1, 2, 3, 4], 50) == 2.5
    assert not hasattr(numpy, "compat") or numpy.compat is not shim.compat


def test_batch_buckets(corpus):
    from fairseq import options, tasks

    arguments = [corpus, *TRANSLATION, "--arch", "transformer", "--num-batch-buckets", 2, "--max-tokens", 64]
    task = tasks.setup_task(parse(options.get_training_parser(), arguments).task)
    task.load_dataset("train")
    dataset = task.dataset("train")
    assert isinstance(dataset, LanguagePairDataset)
    batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=64, required_batch_size_multiple=8)
    assert sorted(numpy.concatenate(batches).tolist()) == list(range(EXAMPLES["train"]))


@pytest.mark.skipif(hasattr(numpy, "compat"), reason="this numpy has the former name")
def test_numpy_alone_has_no_compat(monkeypatch):
    monkeypatch.setattr(token_block_dataset, "np", numpy)
    with pytest.raises(AttributeError, match="compat"):
        TokenBlockDataset([[1, 2], [3]], [2, 1], None, pad=1, eos=2, break_mode="eos")


@pytest.mark.skipif("interpolation" in inspect.signature(numpy.percentile).parameters, reason="this numpy has it")
def test_numpy_alone_has_no_interpolation(monkeypatch):
    monkeypatch.setattr(data_utils, "np", numpy)
    with pytest.raises(TypeError, match="interpolation"):
        data_utils.get_buckets(SIZES, 2)


def test_shims_are_put_in_once():
    before = language_pair_dataset.np
    libraries.restore_names_of_numpy()
    assert language_pair_dataset.np is before

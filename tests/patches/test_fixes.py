"""Fixes of what fairseq computes wrongly, or cannot do on current libraries, or without a GPU."""

import gc
import math
import multiprocessing
import random
import subprocess
import sys
import time
import weakref
from types import SimpleNamespace

import numpy
import pytest
import torch
from fairseq import options, tasks, utils
from fairseq.data import LanguagePairDataset, encoders
from fairseq.data.iterators import CountingIterator
from fairseq.models.ema import EMA
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.trainer import Trainer
from torch import nn

from fairseq_poolingformer.patches import fixes
from tests.patches.helpers import EXAMPLES, TRANSLATION, parse, train

# ----- libraries

CHECK = """
import sys, torch
sys.path.insert(0, sys.argv[1])
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
    result = subprocess.run([sys.executable, "-c", CHECK, tmp_path], capture_output=True, text=True, check=True)
    assert result.stdout.split()[-1] == expected
    assert ("apex is installed without its CUDA kernels" in result.stderr) == (not kernels)


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


# ----- command options


ALL = ("--arch", "poolingformer_bart_base", "--criterion", "linear_cross_entropy", "--optimizer", "fused_adamw")
HELP = [  # flags, exit status, parts of what is printed, and whether the architecture's flags are among it
    (
        (*ALL, "--task=long_summarization"),
        0,
        ("--eval-rouge", "--label-smoothing", "--adam-betas", "--max-update"),
        True,
    ),
    (("--task", "long_summarization"), 0, ("--max-update",), False),  # fairseq's own
    (("--arch", "no_such"), 2, ("invalid choice: 'no_such' (choose from",), False),
]


@pytest.mark.parametrize(("flags", "status", "parts", "has_flags_of_architecture"), HELP)
def test_help_shows_the_flags_of_all_that_is_named(capsys, flags, status, parts, has_flags_of_architecture):
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), ["--help", *flags])
    assert ended.value.code == status
    printed = capsys.readouterr()
    assert all(part in (printed.err if status else printed.out) for part in parts)
    assert ("  --pooled-window-size" in printed.out) == has_flags_of_architecture
    assert status or printed.out.count("usage:") == 1


def test_a_task_without_a_folder_is_parsed():
    """As fairseq's own tests of its dummy tasks do."""
    words = ["--task", "dummy_lm", "--arch", "transformer_lm_gpt", "--tokens-per-sample", "8", "--save-dir", None]
    assert options.parse_args_and_arch(options.get_training_parser(), words).task == "dummy_lm"


# ----- processes that read batches

EPOCHS = 4


@pytest.fixture
def counts(monkeypatch):
    numbers = []

    def counting(original):
        def begin_epoch(self, epoch):
            numbers.append(len(multiprocessing.active_children()))
            return original(self, epoch)

        return begin_epoch

    monkeypatch.setattr(Trainer, "begin_epoch", counting(Trainer.begin_epoch))
    return numbers


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize(("reused", "buffer"), [(True, 10), (False, 10), (False, 0)])
def test_workers_end_with_their_epoch(reused, buffer, counts, corpus, tmp_path, monkeypatch):
    """Epochs of one update, each with a validation; of datasets whose batches change and of others."""
    monkeypatch.setattr(LanguagePairDataset, "can_reuse_epoch_itr_across_epochs", reused)
    monkeypatch.setattr(gc, "collect", lambda *generation: 0)
    gc.disable()
    try:
        options = ["--max-epoch", EPOCHS, "--batch-size", 24, "--data-buffer-size", buffer, "--no-epoch-checkpoints"]
        before = len(multiprocessing.active_children())
        train(corpus, tmp_path, *options, "--num-workers", 1)
        assert len(counts) == EPOCHS
        # a thread ends the last epoch's and validation's
        assert max(counts) - before <= 2
        assert wait_for(lambda: len(multiprocessing.active_children()) == before)
    finally:
        gc.enable()


def test_the_last_item_lets_go_of_the_others():
    source = (number for number in (1, 2, 3, 4))
    iterator, alive = CountingIterator(source, start=0, total=3), weakref.ref(source)
    del source
    assert [next(iterator), next(iterator)] == [1, 2]
    assert alive() is not None
    assert next(iterator) == 3
    assert alive() is None
    assert (iterator.n, iterator.has_next(), list(iterator)) == (3, False, [])


# ----- computation

PAD = 1


def banned_by_hand(tokens, size):
    have = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    prefix = tuple(tokens[len(tokens) - size + 1 :])
    return {ngram[-1] for ngram in have if ngram[:-1] == prefix} - {tokens[0]}


def block(tokens, size, step, words=9):
    blocker = NGramRepeatBlock(size, use_extension=False)
    return blocker(tokens, torch.zeros(tokens.size(0), words), tokens.size(0), 1, step)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bans_what_would_repeat_whatever_the_buffer_holds_beyond(size):
    rng, banned = random.Random(0), 0
    for step in range(0, 30, 3):
        tokens = torch.full((4, 40), PAD)
        rows = [[2, *(rng.randint(3, 5) for _ in range(step))] for _ in range(4)]
        tokens[:, : step + 1] = torch.tensor(rows)
        lprobs = block(tokens, size, step)
        for row, hypothesis in enumerate(rows):
            expected = banned_by_hand(hypothesis, size) if len(hypothesis) >= size else set()
            assert set((lprobs[row] == -math.inf).nonzero().flatten().tolist()) == expected
            banned += len(expected)
    assert banned


CONFIG = {"ema_decay": 0.75, "ema_seed_model": None, "ema_update_freq": 1, "ema_start_update": 0}


def counting_model(weight, count):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    model.register_buffer("count", torch.tensor(count))
    return model


@pytest.mark.parametrize("fp32", [False, True])
def test_integers_are_taken_over(fp32):
    average = EMA(counting_model(4.0, 3), SimpleNamespace(**CONFIG, ema_fp32=fp32))
    average.step(counting_model(8.0, 5), updates=1)
    assert average.get_model().weight.item() == 0.75 * 4 + 0.25 * 8
    assert (average.get_model().count.item(), average.get_model().count.dtype) == (5, torch.int64)


def test_gradients_are_clipped_where_they_are():
    """The device that has no memory stands for the one beside the GPU on which fairseq computes the norm."""
    weight = nn.Parameter(torch.empty(2, device="meta"))
    weight.grad = torch.empty(2, device="meta")

    def norm_elsewhere(params, max_norm, aggregate):
        return params, max_norm, aggregate(torch.tensor(3.0))

    params, max_norm, norm = fixes.clip_where_the_gradients_are(norm_elsewhere, weight, 0.5, lambda norm: norm + 1)
    assert (params, max_norm, norm.device.type) == ([weight], 0.5, "meta")


@pytest.mark.parametrize("aggregate", [None, lambda norm: 2 * norm])
def test_clipping_is_fairseqs(aggregate):
    results = []
    for clip in (utils.clip_grad_norm_, utils.clip_grad_norm_.__wrapped__):
        weights = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
        weights[0].grad, weights[2].grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
        results.append((clip(iter(weights), 1.0, aggregate), weights[0].grad, weights[2].grad))
    assert all(map(torch.equal, *results))
    assert utils.clip_grad_norm_([], 1.0) == 0.0

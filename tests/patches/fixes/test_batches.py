"""No example is lost to batching, and numpy's former names work."""

import inspect

import numpy
import pytest
from fairseq.data import LanguagePairDataset, TokenBlockDataset, data_utils, language_pair_dataset, token_block_dataset
from fairseq.tasks.masked_lm import MaskedLMTask

from fairseq_poolingformer.patches.fixes import batches as data
from fairseq_poolingformer.patches.fixes import numpy_names as numpy_shims
from tests.patches.helpers import EXAMPLES, TRANSLATION, generate, parse, train, unpatched

SIZES = numpy.array([3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 3, 4, 5], dtype=numpy.int64)
DROPS = "[:-1]" in inspect.getsource(data_utils.batch_by_size.__wrapped__)  # 0.12.2 does not


def _size(index):
    return SIZES[index]


def batches_of(count, **options):
    return data_utils.batch_by_size(numpy.arange(count), _size, **options)


@pytest.mark.parametrize("vector", [True, False], ids=["sizes-as-vector", "sizes-as-function"])
@pytest.mark.parametrize("multiple", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [{"max_sentences": 4}, {"max_tokens": 24}, {"max_sentences": 100}])
@pytest.mark.parametrize("count", [1, 4, 12, 13])
def test_every_index_is_in_one_batch(vector, multiple, limit, count):
    sizes = SIZES[:count] if vector else None
    batches = batches_of(count, num_tokens_vec=sizes, required_batch_size_multiple=multiple, **limit)
    assert numpy.concatenate(batches).tolist() == list(range(count))
    for batch in batches:
        assert len(batch) <= limit.get("max_sentences", 100)
        assert len(batch) * SIZES[batch].max() <= limit.get("max_tokens", 1000)


def test_every_index_is_in_one_batch_of_fixed_shapes():
    batches = batches_of(13, fixed_shapes=[(4, 4), (2, 8)], required_batch_size_multiple=8)
    assert numpy.concatenate(batches).tolist() == list(range(13))


@pytest.mark.parametrize("kind", [list, iter, numpy.array], ids=["list", "iterator", "array"])
def test_indices_of_any_kind(kind):
    batches = data_utils.batch_by_size(kind(list(range(5))), _size, max_sentences=4, required_batch_size_multiple=4)
    assert [list(batch) for batch in batches] == [[0, 1, 2, 3], [4]]


def test_no_index_gives_no_batch():
    assert batches_of(0, num_tokens_vec=SIZES[:0], max_sentences=4, required_batch_size_multiple=8) == []


@pytest.mark.skipif(not DROPS, reason="this fairseq drops no batch")
def test_fairseq_alone_drops_the_last_batch(monkeypatch):
    unpatched(monkeypatch, data_utils, "batch_by_size")
    assert sum(map(len, batches_of(12, max_sentences=8, required_batch_size_multiple=8))) == 8


def test_as_many_hypotheses_as_inputs(corpus, tmp_path, monkeypatch):
    train(corpus, tmp_path, "--max-update", 1)
    checkpoint = tmp_path / "checkpoint_last.pt"
    for size in (5, 8, 12, 100):  # the required multiple is fairseq's default, 8
        assert len(generate(corpus, checkpoint, "--batch-size", size)) == EXAMPLES["test"], size
    assert len(generate(corpus, checkpoint, "--max-tokens", 50)) == EXAMPLES["test"]

    unpatched(monkeypatch, data_utils, "batch_by_size")
    assert (len(generate(corpus, checkpoint, "--batch-size", 12)) < EXAMPLES["test"]) == DROPS


def test_an_epoch_has_every_example(corpus, tmp_path, monkeypatch):
    """24 sentences are batches of 10, 10 and 4."""
    arguments = ["--max-epoch", 1, "--batch-size", 10, "--required-batch-size-multiple", 5]
    assert train(corpus, tmp_path / "patched", *arguments)["optimizer_history"][-1]["num_updates"] == 3
    unpatched(monkeypatch, data_utils, "batch_by_size")
    assert train(corpus, tmp_path / "alone", *arguments)["optimizer_history"][-1]["num_updates"] == (2 if DROPS else 3)


# masked_lm


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
    assert MaskedLMTask.args.fget is data.whole_word_bpe


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
    numpy_shims.apply()
    assert language_pair_dataset.np is before

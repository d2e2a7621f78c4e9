"""The task: memory carried from block to block, dropped where it must be, saved and resumed; bits by hand."""

import logging
import math

import numpy as np
import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics

from fairseq_poolingformer.text.dictionary import PAD
from preprocess.char_lm import make_folder
from tests.lab import ROOT
from tests.recurrent_lm import build

SIZES = (207, 61, 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    text = bytes(np.random.default_rng(1).integers(0, 256, sum(SIZES), dtype=np.uint8))
    (folder / "text").write_bytes(text)
    make_folder([str(folder / "text")], folder, sizes=SIZES)
    return folder


def parsed(folder, *flags):
    """fairseq's own options."""
    arguments = [
        *(str(folder), "--user-dir", str(ROOT / "tests" / "recurrent_lm"), "--arch", "recurrent_lm", "--cpu"),
        *("--task", "char_lm", "--criterion", "char_lm", "--tokens-per-sample", "10", *flags),
    ]
    return options.parse_args_and_arch(options.get_training_parser(), arguments)


def setup(folder, *flags):
    """``(task, criterion)``."""
    args = parsed(folder, *flags)
    task = tasks.setup_task(args)
    return task, task.build_criterion(args)


def batches(task, split, rows=3, workers=1, worker=0):
    task.load_dataset(split)
    settings = {"max_sentences": rows, "num_shards": workers, "shard_id": worker, "seed": 1}
    return list(task.get_batch_iterator(task.dataset(split), **settings).next_epoch_itr(shuffle=True))


def test_only_the_text_of_training_is_rotated(folder):
    """With --rotate-text, training begins at another byte in every epoch, and validation always at the first."""
    task, _ = setup(folder, "--rotate-text", "--train-subset", "train")
    begins = {}
    for split in ("train", "valid"):
        task.load_dataset(split)
        begins[split] = set()
        for epoch in range(1, 6):
            iterator = task.get_batch_iterator(task.dataset(split), max_sentences=1, epoch=epoch)
            begins[split].add(tuple(iterator.first_batch["target"][0].tolist()))
    assert len(begins["train"]) > 2
    assert begins["valid"] == {tuple(task.dataset("valid").read(0, 10)[1].tolist())}


def row_nll(model, task, split, rows, row):
    """Cross entropy of a row that is read as one."""
    text, n = task.dataset(split), len(task.dataset(split))
    inputs, targets = text.read(row * n // rows, (row + 1) * n // rows)
    logits, _ = model(inputs[None])
    return torch.nn.functional.cross_entropy(logits[0], targets, reduction="sum")


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_with_carried_memory_are_one_long_forward(folder, workers):
    model, total, expected = build(), 0.0, 0.0
    for worker in range(workers):
        task, criterion = setup(folder)
        for batch in batches(task, "train", 2, workers, worker):
            total += criterion(model, batch)[0].item()
    for row in range(2 * workers):
        expected += row_nll(model, task, "train", 2 * workers, row).item()
    assert total == pytest.approx(expected, rel=1e-5)


def test_without_carrying_each_block_has_an_empty_memory(folder):
    model = build()
    task, criterion = setup(folder, "--no-carry-memory")
    read = batches(task, "train", 2)
    alone = [float(criterion(model, batch)[0]) for batch in read]
    assert [float(criterion(model, batch)[0]) for batch in reversed(read)] == pytest.approx(alone[::-1])
    task, criterion = setup(folder)
    carried = [float(criterion(model, batch)[0]) for batch in read]
    assert carried[0] == pytest.approx(alone[0])
    assert all(abs(a - b) > 1e-3 for a, b in zip(carried[1:], alone[1:], strict=True))


def test_train_and_valid_have_memories_of_their_own_and_an_epoch_begins_with_none(folder):
    model, (task, criterion) = build(), setup(folder)
    train, valid = batches(task, "train"), batches(task, "valid", rows=2)

    def losses(read, training):
        criterion.train(training)
        return [float(criterion(model, batch)[0]) for batch in read]

    undisturbed = losses(train, True)
    interrupted = losses(train[:4], True)
    first_valid = losses(valid, False)
    interrupted += losses(train[4:], True)
    assert interrupted == undisturbed
    assert losses(valid, False) == first_valid
    assert losses(train, True) == undisturbed, "the next epoch"


def test_gradients_end_where_the_block_begins(folder):
    model, (task, criterion) = build(), setup(folder)
    read = batches(task, "train")
    for batch in read[:2]:
        criterion(model, batch)
    kept = task.train_memory.before(read[2])
    assert not any(tensor.requires_grad for tensor in kept)
    criterion(model, read[2])[0].backward()  # of one block: the graph of the others is gone


def test_memory_that_does_not_precede_a_block_is_not_used(folder, caplog):
    model, (task, criterion) = build(), setup(folder)
    read = batches(task, "train")
    criterion(model, read[0])
    with caplog.at_level(logging.WARNING):
        assert task.train_memory.before(read[2]) is None
    assert "no saved memory fits byte 20 (another position or batch size): starting with an empty one" in caplog.text
    assert task.train_memory.before(read[1]) is not None
    assert task.train_memory.before(batches(task, "train", rows=4)[1]) is None
    assert task.train_memory.before(read[0]) is None
    shorter, _ = setup(folder, "--tokens-per-sample", "5")
    assert task.train_memory.before(batches(shorter, "train")[1]) is None, "byte 5, not byte 10"
    assert task.train_memory.before(batches(shorter, "train")[2]) is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_saved_memory_goes_on(folder, workers, monkeypatch):
    model, (task, criterion) = build(), setup(folder)
    read = batches(task, "train")
    for batch in read[:3]:
        criterion(model, batch)
    task.gather_checkpoint_state()
    state = task.get_checkpoint_dict()["CharLMTask"]
    resumed, resumed_criterion = setup(folder)
    state["memories"] *= workers
    resumed.set_checkpoint_dict(state)
    expected = criterion(model, read[3])[0]
    assert (resumed_criterion(model, read[3])[0] == expected) == (workers == 1), "of another number of workers: unused"


class Reporting(torch.nn.Module):
    """Even odds for all symbols, and spans."""

    def forward(self, src_tokens):
        logits = torch.zeros(*src_tokens.shape, 260, requires_grad=True)
        spans = torch.tensor([[10.0, 30.0], [50.0, 70.0]])
        return logits, {"span_loss": torch.tensor(0.25, requires_grad=True), "average_span": 40.0, "spans": spans}


def test_bits_and_spans_by_hand(folder):
    task, criterion = setup(folder)
    logs, counted = [], 0
    for batch in batches(task, "train"):
        loss, size, log = criterion(Reporting(), batch)
        assert size == int((batch["target"] != PAD).sum())
        assert float(loss) == pytest.approx(size * (math.log(260) + 0.25), rel=1e-6)
        counted += size
        logs.append(log)
    assert counted == SIZES[0]
    with metrics.aggregate() as aggregate:
        criterion.reduce_metrics(logs)
    values = aggregate.get_smoothed_values()
    assert values["bpc"] == pytest.approx(math.log2(260), abs=1e-4)
    assert values["loss"] == pytest.approx(math.log2(260) + 0.25 / math.log(2), abs=1e-4)
    assert values["average_span"] == 40
    assert (values["span_layer_0"], values["span_layer_1"]) == (20, 60)
    assert all(log["span_layer_0"].dim() == 0 for log in logs), "scalars, which fairseq sums over workers at once"


def test_max_tokens_gives_rows(folder):
    task, _ = setup(folder)
    task.load_dataset("train")
    iterator = task.get_batch_iterator(task.dataset("train"), max_tokens=45, max_sentences=None)
    assert iterator.first_batch["target"].shape == (4, 10)
    with pytest.raises(ValueError, match="give --batch-size"):
        task.get_batch_iterator(task.dataset("train"), max_tokens=5)


def test_mistakes_are_explained(folder, tmp_path):
    task, _ = setup(folder)
    with pytest.raises(FileNotFoundError, match="poolingformer-preprocess char_lm"):
        task.load_dataset("tset")
    (tmp_path / "dict.txt").write_text("the 1\n")
    for suffix in (".bin", ".idx"):
        (tmp_path / f"train{suffix}").write_bytes(b"")
    with pytest.raises(ValueError, match="not the dictionary of bytes"):
        setup(tmp_path)[0].load_dataset("train")
    with pytest.raises(ValueError, match="--tokens-per-sample must be"):
        setup(folder, "--tokens-per-sample", "0")
    with pytest.raises(ValueError, match="give one of the two"):
        setup(folder, "--require-memory", "--no-carry-memory")


def with_model(folder, *flags):
    """The task after it has built the model, as in training."""
    args = parsed(folder, *flags)
    task = tasks.setup_task(args)
    task.build_model(convert_namespace_to_omegaconf(args).model)
    return task


def test_models_with_memory_carry_it_unless_told_not_to(folder):
    assert with_model(folder).train_memory is not None
    assert with_model(folder, "--require-memory").valid_memory is not None
    assert with_model(folder, "--no-carry-memory").train_memory is None
    assert with_model(folder, "--forgetful").train_memory is None
    with pytest.raises(ValueError, match="the model has no memory"):
        with_model(folder, "--forgetful", "--require-memory")


@pytest.mark.full
def test_amp_would_read_a_batch_twice(folder):
    with pytest.raises(ValueError, match="--amp-batch-retries 0"):
        with_model(folder, "--amp")
    for flags in (["--amp-batch-retries", "0"], ["--no-carry-memory"], ["--forgetful"]):
        with_model(folder, "--amp", *flags)

"""The task: memory carried from block to block, dropped where it must be, saved and resumed; bits by hand."""

import math

import pytest
import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics

from fairseq_poolingformer.char_lm.data import ARRANGEMENT
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.text.dictionary import PAD
from tests.char_lm.conftest import parsed, write_text
from tests.recurrent_lm import build

SIZES = (207, 61, 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("data"), SIZES, seed=1)


BLOCKS = ("--tokens-per-sample", "10")


def setup(folder, *flags):
    args = parsed(folder, *BLOCKS, *flags)
    task = tasks.setup_task(args)
    return task, task.build_criterion(args)


def batches(task, split, rows=3, workers=1, worker=0):
    task.load_dataset(split)
    settings = {"max_sentences": rows, "num_shards": workers, "shard_id": worker, "seed": 1}
    return list(task.get_batch_iterator(task.dataset(split), **settings).next_epoch_itr(shuffle=True))


def test_only_the_text_of_training_is_rotated(folder):
    task, _ = setup(folder, "--rotate-text", "--train-subset", "train")

    def begins(split):
        task.load_dataset(split)
        iterators = (task.get_batch_iterator(task.dataset(split), max_sentences=1, epoch=n) for n in range(1, 6))
        return {tuple(iterator.first_batch["target"][0].tolist()) for iterator in iterators}

    assert len(begins("train")) > 2
    assert begins("valid") == {tuple(task.dataset("valid").read(0, 10)[1].tolist())}


def row_nll(model, task, split, rows, row):
    text, n = task.dataset(split), len(task.dataset(split))
    inputs, targets = text.read(row * n // rows, (row + 1) * n // rows)
    return torch.nn.functional.cross_entropy(model(inputs[None])[0][0], targets, reduction="sum").item()


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_with_carried_memory_are_one_long_forward(folder, workers):
    model, total = build(), 0.0
    for worker in range(workers):
        task, criterion = setup(folder)
        total += sum(criterion(model, batch)[0].item() for batch in batches(task, "train", 2, workers, worker))
    expected = sum(row_nll(model, task, "train", 2 * workers, row) for row in range(2 * workers))
    assert total == pytest.approx(expected, rel=1e-5)


def test_without_carrying_each_block_has_an_empty_memory(folder):
    model = build()
    task, criterion = setup(folder, "--no-carry-memory")
    read = batches(task, "train", 2)
    alone = [criterion(model, batch)[0].item() for batch in read]
    assert [criterion(model, batch)[0].item() for batch in reversed(read)] == pytest.approx(alone[::-1])
    task, criterion = setup(folder)
    carried = [criterion(model, batch)[0].item() for batch in read]
    assert carried[0] == pytest.approx(alone[0])
    assert all(abs(a - b) > 1e-3 for a, b in zip(carried[1:], alone[1:], strict=True))


def test_train_and_valid_have_memories_of_their_own_and_an_epoch_begins_with_none(folder):
    model, (task, criterion) = build(), setup(folder)
    train, valid = batches(task, "train"), batches(task, "valid", rows=2)

    def losses(read, training):
        criterion.train(training)
        return [criterion(model, batch)[0].item() for batch in read]

    undisturbed, interrupted = losses(train, True), losses(train[:4], True)
    first_valid = losses(valid, False)
    interrupted += losses(train[4:], True)
    assert (interrupted, losses(valid, False)) == (undisturbed, first_valid)
    assert losses(train, True) == undisturbed, "the next epoch"


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
        assert loss.item() == pytest.approx(size * (math.log(260) + 0.25), rel=1e-6)
        counted += size
        logs.append(log)
    assert counted == SIZES[0]
    with metrics.aggregate() as aggregate:
        criterion.reduce_metrics(logs)
    values = aggregate.get_smoothed_values()
    assert {name for name in values if not name.startswith("span_layer")} == {*criterion.logged}
    assert values["bpc"] == pytest.approx(math.log2(260), abs=1e-4)
    assert values["loss"] == pytest.approx(math.log2(260) + 0.25 / math.log(2), abs=1e-4)
    assert [values[name] for name in ("average_span", "span_layer_0", "span_layer_1")] == [40, 20, 60]
    assert all(log["span_layer_0"].dim() == 0 for log in logs), "scalars, which fairseq sums over workers at once"


OTHERWISE = {
    "rows": {"max_sentences": 2},
    "blocks": {"tokens": 11},
    "processes": {"num_shards": 3, "max_sentences": 1},
    "first byte": {"first": 5},
}


@pytest.mark.parametrize("change", OTHERWISE)
def test_an_epoch_continues_in_the_same_rows_and_blocks_alone(folder, change):
    """207 bytes in three rows are seven blocks of 10, and of 11."""

    def iterator(tokens=10, first=0, **settings):
        task = tasks.setup_task(parsed(folder, "--tokens-per-sample", f"{tokens}"))
        task.load_dataset("train")
        batches = task.get_batch_iterator(task.dataset("train"), **{"max_sentences": 3, "seed": 1, **settings})
        batches.dataset.rotation = first
        return batches

    saved, resumed, other = iterator(), iterator(), iterator(**OTHERWISE[change])
    epoch = saved.next_epoch_itr()
    for _ in range(4):
        next(epoch)
    state = saved.state_dict()
    resumed.load_state_dict(state)
    rest = [batch["id"].tolist() for batch in resumed.next_epoch_itr()]
    with pytest.raises(UsageError, match=rf"within epoch 1, which read the text with {change}\b.*--reset-dataloader"):
        other.load_state_dict(state)
    assert rest == [batch["id"].tolist() for batch in epoch]
    iterator().load_state_dict({**state, ARRANGEMENT: None})  # of a training before it was kept
    other.load_state_dict(saved.state_dict())  # the epoch is over
    assert other.next_epoch_idx == 2


def test_max_tokens_gives_rows(folder):
    task, _ = setup(folder)
    task.load_dataset("train")
    iterator = task.get_batch_iterator(task.dataset("train"), max_tokens=45, max_sentences=None)
    assert iterator.first_batch["target"].shape == (4, 10)
    with pytest.raises(ValueError, match="give --batch-size"):
        task.get_batch_iterator(task.dataset("train"), max_tokens=5)


@pytest.mark.parametrize(
    ("flags", "split", "message"),
    [
        ((), "tset", "poolingformer preprocess char_lm"),
        ((), "train", "not the dictionary of bytes"),
        (("--tokens-per-sample", "0"), None, "--tokens-per-sample must be"),
        (("--require-memory", "--no-carry-memory"), None, "give one of the two"),
        (("--forgetful", "--require-memory"), None, "the model has no memory"),
    ],
)
def test_mistakes_are_explained(folder, tmp_path, flags, split, message):
    if split == "train":
        folder = tmp_path
        (folder / "dict.txt").write_text("the 1\n")
        for suffix in (".bin", ".idx"):
            (folder / f"train{suffix}").write_bytes(b"")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        setup(folder)[0].load_dataset(split) if split else with_model(folder, *flags)


def with_model(folder, *flags):
    args = parsed(folder, *BLOCKS, *flags)
    task = tasks.setup_task(args)
    task.build_model(convert_namespace_to_omegaconf(args).model)
    return task


def test_models_with_memory_carry_it_unless_told_not_to(folder):
    assert with_model(folder).train_memory is not None
    assert with_model(folder, "--require-memory").valid_memory is not None
    assert with_model(folder, "--no-carry-memory").train_memory is None
    assert with_model(folder, "--forgetful").train_memory is None


@pytest.mark.full
def test_amp_would_read_a_batch_twice(folder):
    with pytest.raises(ValueError, match="--amp-batch-retries 0"):
        with_model(folder, "--amp")
    for flags in (["--amp-batch-retries", "0"], ["--no-carry-memory"], ["--forgetful"]):
        with_model(folder, "--amp", *flags)

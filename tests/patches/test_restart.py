"""--restore-file and --reset-… act once in a save directory, and a value that is new is obeyed."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_poolingformer import checkpoints
from fairseq_poolingformer.checkpoints import CheckpointError
from fairseq_poolingformer.patches import restart
from fairseq_poolingformer.patches.restart import RESETS, used_options
from tests.patches.helpers import num_updates, train, train_on_documents

NONE = dict.fromkeys(RESETS, False)
ALL = dict.fromkeys(RESETS, True)


def save(path, updates=0, **options):
    """A checkpoint with what a start was given."""
    path.parent.mkdir(exist_ok=True)
    history = [{"num_updates": updates}]
    torch.save({"cfg": {"checkpoint": {**NONE, **options}}, "optimizer_history": history, "model": {}}, path)
    return path


class Options(dict):
    __getattr__ = dict.__getitem__


def used(folder, restore_file="checkpoint_last.pt", suffix="", **options):
    cfg = Options(save_dir=str(folder), restore_file=str(restore_file), **{**NONE, **options})
    return used_options(cfg, suffix)


@pytest.fixture
def start(tmp_path):
    return save(tmp_path / "pretrained" / "x.pt", 8)


@pytest.fixture
def run(tmp_path, start):
    """A folder that was begun with a checkpoint and all resets, and has more updates."""
    folder = tmp_path / "run"
    save(folder / "checkpoint_last.pt", 12, restore_file=str(start), **ALL)
    return folder


def test_recorded_options_were_used(run, start, caplog, monkeypatch):
    assert used(run, start, **ALL) == ["restore_file", *RESETS]
    (message,) = caplog.messages
    assert "was begun with --restore-file, --reset-optimizer, " in message
    assert "continues after 12 updates without them. To use them again, move " in message
    monkeypatch.chdir(run.parent)
    start.unlink()  # by now it may be gone
    assert used("run", "pretrained/x.pt", reset_meters=True) == ["restore_file", "reset_meters"]


def test_resets_alone_are_done_once(run, caplog):
    assert used(run, reset_optimizer=True) == ["reset_optimizer"]
    assert "To use them again, save a checkpoint without them first" in caplog.text


def test_what_is_not_recorded_is_new(run, start):
    save(run / "checkpoint_last.pt", 12, restore_file=str(start), reset_meters=True)
    assert used(run, start, **ALL) == ["restore_file", "reset_meters"]
    assert used(run, reset_optimizer=True) == []
    assert used(run, save(run / "checkpoint_1.pt", 3), **ALL) == []  # back to an earlier one of the folder
    assert used(run, save(run.parent / "stage" / "x.pt", 12), reset_meters=True) == []


def test_another_checkpoint_with_fewer_updates_is_refused(run):
    other = save(run.parent / "other" / "x.pt", 11)
    message = r"other/x\.pt has 11 updates, and .*checkpoint_last\.pt, which it would replace, has 12: leave the option"
    with pytest.raises(CheckpointError, match=message):
        used(run, other)
    (run / "checkpoint_last.pt").unlink()
    assert used(run, other) == []


def test_a_missing_or_unreadable_checkpoint_is_left_to_the_load_that_says_so(run):
    (run / "empty.txt").touch()
    for name in ("absent.pt", "empty.txt"):
        assert used(run, run.parent / name) == []


def test_of_a_damaged_last_checkpoint_the_newest_readable_one_says_what_was_used(run, start):
    last = run / "checkpoint_last.pt"
    save(run / "checkpoint3.pt", 10, restore_file=str(start))
    last.write_bytes(last.read_bytes()[:50])
    assert used(run, start, reset_meters=True) == ["restore_file"]
    (run / "checkpoint3.pt").unlink()
    assert used(run, start, reset_meters=True) == ["restore_file", *RESETS]  # and the default refuses to begin anew


def test_parts_of_a_checkpoint_have_their_suffix(run, start):
    save(run / "checkpoint_last-shard0.pt", 5, restore_file=str(start))
    assert used(run, start, suffix="-shard0", **ALL) == ["restore_file"]


def test_tensors_stay_on_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    torch.save({"model": {"x": torch.ones(1000)}, "cfg": {"a": 1}}, path)
    data = path.read_bytes()
    path.write_bytes(data.replace(torch.ones(1000).numpy().tobytes(), bytes(4000)))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoints.read(path)
    state = checkpoints.read(path, has_tensors=False)
    assert (state["cfg"], state["model"]["x"].device.type) == ({"a": 1}, "meta")


def test_the_first_process_decides_for_all(monkeypatch):
    sent = []

    def broadcast(decision, **named):
        sent.append(decision)
        return sent[0]

    monkeypatch.setattr("fairseq.distributed.utils.broadcast_object", broadcast)

    def decide(rank, decision):
        settings = {"data_parallel_process_group": None, "data_parallel_world_size": 2, "device": "cpu"}
        return restart.by_the_first_process(SimpleNamespace(data_parallel_rank=rank, **settings), decision)

    for rank in range(2):
        assert decide(rank, lambda rank=rank: ["restore_file"] if rank == 0 else pytest.fail("not the first")) == [
            "restore_file"
        ]
    sent.clear()

    def refuse():
        raise CheckpointError("fewer updates")

    for rank in range(2):
        with pytest.raises(CheckpointError, match="fewer updates"):
            decide(rank, refuse)


def test_the_same_command_continues(documents, tmp_path, caplog):
    quick = ["--disable-validation", "--no-epoch-checkpoints"]
    train_on_documents(documents, tmp_path / "pretrained", *quick, "--max-update", 2)
    start = ["--restore-file", tmp_path / "pretrained" / "checkpoint_last.pt"]
    start += [f"--{name.replace('_', '-')}" for name in RESETS]
    states = [
        train_on_documents(documents, tmp_path / "run", *quick, *start, "--max-update", updates) for updates in (3, 5)
    ]
    assert list(map(num_updates, states)) == [3, 5]
    assert [len(state["optimizer_history"]) for state in states] == [2, 3]
    assert states[1]["cfg"]["checkpoint"]["reset_optimizer"], "what is saved has the options, and so the next start"
    assert "continues after 3 updates" in caplog.text
    third = train_on_documents(documents, tmp_path / "run", *quick, *start, "--max-update", 7)
    assert num_updates(third) == 7
    back = ["--restore-file", tmp_path / "run" / "checkpoint_last.pt", "--reset-optimizer", "--reset-dataloader"]
    again = train_on_documents(documents, tmp_path / "run", *quick, *back, "--max-update", 1)
    assert num_updates(again) == 1


def test_a_stock_training_obeys_at_every_start(corpus, tmp_path):
    for updates in (3, 2):
        state = train(corpus, tmp_path, "--disable-validation", "--reset-optimizer", "--max-update", updates)
        assert num_updates(state) == updates

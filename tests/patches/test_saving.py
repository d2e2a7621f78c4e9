"""Checkpoints that are written, linked and replaced as a whole, with what lies beside them."""

import errno
import logging
import os
import re
import resource
import shutil
import signal
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.file_io import PathManager

import fairseq_poolingformer
from fairseq_poolingformer import checkpoints as checkpoint_files
from fairseq_poolingformer.checkpoints import damage, load
from fairseq_poolingformer.cli import convert, summarize
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.patches import CheckpointError, saving, table
from fairseq_poolingformer.patches.saving import replace_damaged, replace_missing, resume_from_newest_whole
from fairseq_poolingformer.text import atomic_write
from tests.models import tiny_bart
from tests.patches.helpers import num_updates, parse, train
from tests.tasks.masked_lm import mlm_folder

# ----- writing and replacing

table.apply()


@pytest.fixture
def full_disk():
    """Files may grow to 64 KiB only."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def save(path, value, size=1):
    checkpoint_utils.torch_persistent_save({"model": {"w": torch.full((size,), value)}}, str(path))
    return path


def value(path):
    return torch.load(path)["model"]["w"][0].item()


def test_a_full_disk_leaves_the_former_checkpoint(tmp_path, full_disk):
    path = save(tmp_path / "checkpoint_last.pt", 1.0)
    with pytest.raises(OSError, match="could not be written"):
        save(path, 2.0, size=2**16)
    assert (value(path), os.listdir(tmp_path)) == (1.0, ["checkpoint_last.pt"])


def test_a_copy_is_a_further_name_of_the_same_file(tmp_path):
    best = save(tmp_path / "checkpoint1.pt", 1.0)
    last = save(tmp_path / "checkpoint_last.pt", 0.0)
    PathManager.copy(str(best), str(last), overwrite=True)
    assert last.samefile(best)
    save(best, 2.0)  # replaces one name
    assert (value(best), value(last)) == (2.0, 1.0)


def test_copies_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError))
    source, last = save(tmp_path / "checkpoint1.pt", 1.0), tmp_path / "checkpoint_last.pt"
    PathManager.copy(str(source), str(last), overwrite=True)
    assert value(last) == 1.0
    assert not last.samefile(source)


@pytest.mark.parametrize("fault", ["empty", "cut", "text", "flipped"])
def test_a_damaged_last_checkpoint_is_replaced_by_the_newest_good_one(tmp_path, fault, caplog):
    """Never by an average."""
    for number, name in enumerate(("1", "_1_50", "_average", "3")):
        os.utime(save(tmp_path / f"checkpoint{name}.pt", float(number), size=99), (number, number))
    (tmp_path / "checkpoint3.pt").write_bytes(b"PK damaged as well")
    last = save(tmp_path / "checkpoint_last.pt", 4.0, size=99)
    whole = last.read_bytes()
    position = whole.index(torch.full((9,), 4.0).numpy().tobytes()) + 5
    flipped = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
    last.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"not found", "flipped": flipped}[fault])
    assert damage(last)
    replace_damaged(last, "THE FAULT")
    assert value(last) == 1.0
    assert (tmp_path / "checkpoint_last.pt.damaged").exists()
    assert "RESUMING FROM checkpoint_1_50.pt INSTEAD. THE FAULT" in caplog.text


def test_without_any_good_one_the_file_is_named(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    path.touch()
    with pytest.raises(CheckpointError, match=r"last\.pt is damaged, and its folder has no other .* it is empty"):
        replace_damaged(path, "it is empty")
    assert path.exists()


def test_there_is_a_last_checkpoint_even_if_replacing_it_fails(tmp_path, monkeypatch):
    save(tmp_path / "checkpoint1.pt", 1.0)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"PK half")
    monkeypatch.setattr(atomic_write, "_flush", mock.Mock(side_effect=OSError(errno.ENOSPC, "no space")))
    with pytest.raises(OSError, match="could not be written"):
        replace_damaged(last, "damaged")
    assert last.exists()


@pytest.mark.parametrize("suffix", ["-shard0", "-model_part-0", ""])
def test_a_part_of_a_checkpoint_is_not_replaced_by_that_of_another_update(tmp_path, suffix):
    save(tmp_path / f"checkpoint1{suffix}.pt", 1.0)
    last = tmp_path / f"checkpoint_last{suffix}.pt"
    last.touch()
    resumed = resume(tmp_path, suffix=suffix)
    assert isinstance(resumed, CheckpointError) == bool(suffix)
    assert (last.stat().st_size == 0) == bool(suffix)


def resume(folder, restore_file="checkpoint_last.pt", suffix=""):
    """The result of the patched function, or the error that it raises; fairseq's own reads the last checkpoint."""
    cfg = {"restore_file": restore_file, "save_dir": str(folder), "finetune_from_model": None}
    cfg = SimpleNamespace(**cfg, load_checkpoint_on_all_dp_ranks=False, no_last_checkpoints=False)
    trainer = SimpleNamespace(checkpoint_suffix=suffix, data_parallel_rank=0)
    name = restore_file.replace(".pt", f"{suffix}.pt")
    try:
        return resume_from_newest_whole(lambda *arguments: checkpoint_files.load(folder / name), cfg, trainer)
    except CheckpointError as error:
        return error


@pytest.mark.parametrize("fault", ["IS DAMAGED", "IS MISSING"])
def test_a_training_continues_from_the_newest_good_one(corpus, tmp_path, caplog, fault):
    flags = ["--save-interval-updates", 1, "--no-epoch-checkpoints", "--disable-validation"]
    train(corpus, tmp_path, "--max-update", 3, *flags)
    last = tmp_path / "checkpoint_last.pt"
    half = last.read_bytes()[:5000]
    last.unlink()
    (tmp_path / "checkpoint_1_3.pt").unlink()
    if fault == "IS DAMAGED":
        last.write_bytes(half)
    state = train(corpus, tmp_path, "--max-update", 4, *flags)
    assert f"checkpoint_last.pt {fault}" in caplog.text
    assert re.search(r"RESUMING FROM checkpoint_1_2\.pt INSTEAD", caplog.text)
    assert num_updates(state) == 4
    assert len(state["optimizer_history"]) == 2  # of one start and the next, which continues it
    if fault == "IS DAMAGED":
        assert (tmp_path / "checkpoint_last.pt.damaged").read_bytes() == half


def test_a_missing_one_is_replaced_by_the_newest_whole_one(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    replace_missing(tmp_path / "none" / "checkpoint_last.pt")
    replace_missing(last)
    pretrained = save(tmp_path / "checkpoint_best.pt", 9.0)
    replace_missing(last, str(pretrained))
    assert not last.exists()
    for number in (1, 2):
        os.utime(save(tmp_path / f"checkpoint{number}.pt", float(number)), (number, number))
    (tmp_path / "checkpoint3.pt").write_bytes(b"PK damaged")
    with pytest.raises(CheckpointError, match=r"has other checkpoints\. Give the one to continue from"):
        replace_missing(last, str(pretrained), is_wanted=False)
    replace_missing(last, str(pretrained))
    assert value(last) == 2.0


def test_without_a_whole_one_nothing_begins_anew(tmp_path):
    (tmp_path / "checkpoint1.pt").write_bytes(b"PK damaged")
    assert "all checkpoints of its folder are damaged" in str(resume(tmp_path))
    save(tmp_path / "checkpoint1-shard0.pt", 1.0)
    assert "has other checkpoints" in str(resume(tmp_path, suffix="-shard0"))


def test_no_flipped_bit_of_the_archive_escapes(tmp_path):
    """Each kind of error that zipfile has for a bit of its headers, zlib's and encryption's among them, is a damage."""
    path = save(tmp_path / "x.pt", 1.0)
    data = path.read_bytes()
    for position in range(data.index(b"PK\1\2"), len(data)):
        for bit in (1, 8, 32):
            path.write_bytes(data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :])
            assert damage(path) is None or isinstance(damage(path), str)


# ----- state of all workers


@pytest.mark.parametrize("no_save", [False, True])
def test_a_worker_that_writes_nothing_is_asked(no_save):
    """fairseq's save_checkpoint as a worker calls it that writes nothing."""
    task = mock.Mock()
    rank = {"data_parallel_rank": 1, "should_save_checkpoint_on_current_rank": False}
    trainer = SimpleNamespace(task=task, consolidate_optimizer=lambda: None, **rank)
    trainer.always_call_state_dict_during_save_checkpoint = False
    assert checkpoint_utils.save_checkpoint(CheckpointConfig(no_save=no_save), trainer, None, None) is None
    assert task.gather_checkpoint_state.call_count == (not no_save)


# ----- dictionary and tokenizer

fairseq_poolingformer.register()


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A training with a relative data folder, moved elsewhere when the data folder is gone."""
    from fairseq_cli.train import main

    folder = tmp_path_factory.mktemp("training")
    tokenizer = mlm_folder.write_folder(folder / "data", {})
    examples = [(tokenizer.encode("the thing in there").tolist(), tokenizer.encode("that thing").tolist())] * 2
    (folder / "data" / "dict.txt").unlink()
    tiny_bart.write_data_folder(folder / "data", splits={"train": examples})
    for language in ("source", "target"):
        tokenizer.write_dictionary(folder / "data" / f"dict.{language}.txt")
    flags = ["--user-dir", tiny_bart.USER_DIR, "--task", "long_summarization", "--arch", "poolingformer_bart_tiny"]
    flags += ["--criterion", "linear_cross_entropy", "--optimizer", "adam", "--batch-size", 2, "--max-update", 1]
    flags += ["--cpu", "--num-workers", 0, "--disable-validation", "--save-dir", folder / "run", *tiny_bart.SIZES]
    before = os.getcwd()
    os.chdir(folder)
    try:
        main(parse(options.get_training_parser(), ["data", *flags]))
    finally:
        os.chdir(before)
    shutil.move(folder / "data", folder / "data-elsewhere")
    shutil.move(folder / "run", folder / "moved")
    return folder / "moved" / "checkpoint_last.pt"


def test_it_summarizes(moved, tmp_path, capsys):
    (tmp_path / "x.txt").write_text("the thing in there")
    assert summarize.main(["--checkpoint", str(moved), "--max-len-b", "5", str(tmp_path / "x.txt")]) == 0
    assert capsys.readouterr().err == ""
    assert PoolingformerBART.from_pretrained(str(moved.parent), moved.name).encode("the thing").numel() > 2
    assert os.path.isabs(load(moved)["cfg"]["task"]["data"])


def test_it_converts(moved, tmp_path):
    assert convert.main(["to-huggingface", str(moved), str(tmp_path / "hf"), "--drop-pooled"]) == 0


def test_parameters_that_are_not_finite_are_refused(moved, tmp_path, capsys):
    folder = shutil.copytree(moved.parent, tmp_path / "nan")
    state, name = checkpoint_files.read(moved), "encoder.layers.1.fc1.weight"
    state["model"][name][0, :3] = float("nan")
    torch.save(state, folder / moved.name)
    with pytest.raises(CheckpointError, match=rf"3 of .* numbers of {re.escape(name)} are NaN or infinite"):
        PoolingformerBART.from_pretrained(str(folder), moved.name)
    assert convert.main(["to-huggingface", str(folder / moved.name), str(tmp_path / "hf"), "--drop-pooled"]) == 1
    assert f"numbers of {name} are NaN or infinite" in capsys.readouterr().err


def test_files_are_copied_once_and_a_data_folder_is_left_alone(tmp_path):
    source, target = tmp_path / "data", tmp_path / "run"
    mlm_folder.write_folder(source, {})
    target.mkdir()
    saving.copy_data_files(source, target)
    dictionary = target / "dict.txt"
    written = dictionary.stat().st_mtime_ns
    saving.copy_data_files(source, target)
    assert dictionary.stat().st_mtime_ns == written
    for text in ("other 1\n", "third 1\n"):
        (source / "dict.txt").write_text(text)
        saving.copy_data_files(source, target)
        assert dictionary.read_text() == "other 1\n"
        (target / "corpus.json").touch()


def test_what_the_tokenizer_needs_is_copied_and_no_other_folders_file(tmp_path, caplog):
    source, target = tmp_path / "data", tmp_path / "run"
    mlm_folder.write_folder(source, {})
    target.mkdir()
    (tmp_path / "private").write_text("secret")
    (source / "tokenizer" / "notes.txt").write_text("more")
    (source / "dict.source.txt").symlink_to("dict.txt")
    (source / "dict.target.txt").symlink_to(tmp_path / "private")
    (source / "tokenizer" / "vocab.bpe").unlink()
    (source / "tokenizer" / "vocab.bpe").symlink_to(tmp_path / "private")
    saving.copy_data_files(source, target)
    assert sorted(path.name for path in target.iterdir()) == ["dict.source.txt", "dict.txt", "tokenizer"]
    assert sorted(path.name for path in (target / "tokenizer").iterdir()) == ["config.json", "dict.txt", "encoder.json"]
    assert caplog.text.count("is a link to a file of another folder") == 2


def copy_beside(tmp_path, saved, rank):
    mlm_folder.write_folder(tmp_path / "data", {})
    trainer = SimpleNamespace(task=SimpleNamespace(data_folder=tmp_path / "data"), data_parallel_rank=rank)
    cfg = SimpleNamespace(save_dir=str(tmp_path / "run"))
    saving.copy_dictionary_and_tokenizer(lambda *arguments: saved, cfg, trainer, None, None)


@pytest.mark.parametrize(("rank", "saved"), [(1, "x.pt"), (0, None)])
def test_one_process_copies_what_was_saved(tmp_path, rank, saved):
    (tmp_path / "run").mkdir()
    copy_beside(tmp_path, saved, rank)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_training_goes_on_where_they_cannot_be_copied(tmp_path, caplog):
    (tmp_path / "run").write_text("a file")
    with caplog.at_level(logging.WARNING):
        copy_beside(tmp_path, "x.pt", 0)
    assert "dictionary and tokenizer could not be copied there" in caplog.text

"""A checkpoint whose folder has been moved, and whose data folder is gone."""

import logging
import os
import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq import options

import fairseq_poolingformer
from fairseq_poolingformer import checkpoints as checkpoint_files
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import convert, summarize
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.patches import CheckpointError
from fairseq_poolingformer.patches.long_jobs import companions
from tests.models import tiny_bart
from tests.patches.helpers import parse
from tests.tasks.masked_lm import mlm_folder

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
    assert summarize.main(["--checkpoint", str(moved), "--max-length", "5", str(tmp_path / "x.txt")]) == 0
    assert capsys.readouterr().err == ""
    assert PoolingformerBART.from_pretrained(str(moved.parent), moved.name).encode("the thing").numel() > 2
    assert os.path.isabs(load(moved)["cfg"]["task"]["data"])


def test_it_converts(moved, tmp_path):
    assert convert.main(["to-huggingface", str(moved), str(tmp_path / "hf"), "--drop-pooled"]) == 0


def test_parameters_that_are_not_finite_are_refused(moved, tmp_path, capsys):
    folder = shutil.copytree(moved.parent, tmp_path / "nan")
    state = checkpoint_files.read(moved)
    name = "encoder.layers.1.fc1.weight"
    state["model"][name][0, :3] = float("nan")
    torch.save(state, folder / moved.name)
    with pytest.raises(
        CheckpointError, match=r"3 of .* numbers of encoder\.layers\.1\.fc1\.weight are NaN or infinite"
    ):
        PoolingformerBART.from_pretrained(str(folder), moved.name)
    assert convert.main(["to-huggingface", str(folder / moved.name), str(tmp_path / "hf"), "--drop-pooled"]) == 1
    assert f"numbers of {name} are NaN or infinite" in capsys.readouterr().err


def test_files_are_copied_once_and_a_data_folder_is_left_alone(tmp_path):
    source, target = tmp_path / "data", tmp_path / "run"
    mlm_folder.write_folder(source, {})
    target.mkdir()
    companions.copy(source, target)
    written = (target / "dict.txt").stat().st_mtime_ns
    companions.copy(source, target)
    assert (target / "dict.txt").stat().st_mtime_ns == written
    (source / "dict.txt").write_text("other 1\n")
    companions.copy(source, target)
    assert (target / "dict.txt").read_text() == "other 1\n"
    (target / "corpus.json").touch()
    (source / "dict.txt").write_text("third 1\n")
    companions.copy(source, target)
    assert (target / "dict.txt").read_text() == "other 1\n"


@pytest.mark.parametrize(("rank", "saved"), [(1, "x.pt"), (0, None)])
def test_one_process_copies_what_was_saved(tmp_path, rank, saved):
    mlm_folder.write_folder(tmp_path / "data", {})
    (tmp_path / "run").mkdir()
    trainer = SimpleNamespace(task=SimpleNamespace(data_folder=tmp_path / "data"), data_parallel_rank=rank)
    cfg = SimpleNamespace(save_dir=str(tmp_path / "run"))
    companions.copy_dictionary_and_tokenizer(lambda *arguments: saved, cfg, trainer, None, None)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_training_goes_on_where_they_cannot_be_copied(tmp_path, caplog):
    mlm_folder.write_folder(tmp_path / "data", {})
    trainer = SimpleNamespace(task=SimpleNamespace(data_folder=tmp_path / "data"), data_parallel_rank=0)
    (tmp_path / "run").write_text("a file")
    with caplog.at_level(logging.WARNING):
        companions.copy_dictionary_and_tokenizer(
            lambda *arguments: "x.pt", SimpleNamespace(save_dir=str(tmp_path / "run")), trainer, None, None
        )
    assert "dictionary and tokenizer could not be copied there" in caplog.text

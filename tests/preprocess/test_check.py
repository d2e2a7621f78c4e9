import contextlib
import json
import random

import pytest
from fairseq import tasks

from fairseq_poolingformer import register
from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess.__main__ import main
from tests.preprocess.conftest import contents


@pytest.fixture
def folder(command, release, tmp_path):
    assert command(tmp_path / "data", "--input-folder", release) == 0
    return DataFolder(tmp_path / "data", PAIRS)


def read_all(folder):
    """Opens everything as training and prediction do."""
    folder.corpus()
    folder.dictionary()
    load_tokenizer(folder.path)
    for split in ("train", "valid", "test"):
        for array in PAIRS.ids:
            folder.sequences(split, array)
        for text in PAIRS.texts:
            folder.text(split, text)


@pytest.mark.full
def test_every_flipped_byte_is_noticed(folder, capsys):
    read_all(folder)
    assert main(["check", str(folder.path)]) == 0
    assert "24 files as they were written" in capsys.readouterr().out
    rng = random.Random(0)
    names = [name for name, data in contents(folder.path).items() if data and name != "dict.target.txt"]
    for number in range(200):
        path = folder.path / names[number % len(names)]
        good = path.read_bytes()
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        if path.name == "corpus.json":
            with contextlib.suppress(ValueError):
                if json.loads(data) == json.loads(good):
                    continue  # white space between values
        with pytest.raises(ValueError, match=rf"{path.name}: "):
            read_all(folder)
        assert main(["check", str(folder.path)]) == 1
        assert f"{path.name}: " in capsys.readouterr().err
        path.write_bytes(good)
    read_all(folder)


def test_missing_files_and_folders_are_named(folder, tmp_path, capsys):
    (folder.path / "train.id.txt").unlink()
    (folder.path / "dict.target.txt").write_text("a 1\n")
    assert main(["check", str(folder.path)]) == 1
    errors = capsys.readouterr().err
    assert "train.id.txt: not found; preprocess again" in errors
    assert "dict.target.txt: not the file that preprocessing wrote" in errors
    assert main(["check", str(tmp_path)]) == 1
    assert "corpus.json: not found; is" in capsys.readouterr().err
    (tmp_path / "corpus.json").write_text("{}")
    assert main(["check", str(tmp_path)]) == 1
    assert "without digests" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dict.source.txt", "dict.target.txt"])
def test_a_permuted_dictionary_does_not_train(folder, name):
    register()
    path = folder.path / name
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")
    config = tasks.TASK_DATACLASS_REGISTRY["long_summarization"](data=str(folder.path))
    with pytest.raises(ValueError, match=rf"{name}: not the file that preprocessing wrote"):
        tasks.TASK_REGISTRY["long_summarization"].setup_task(config)

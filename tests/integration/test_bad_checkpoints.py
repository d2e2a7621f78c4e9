"""Every command that reads a checkpoint ends in one sentence on a file that is none, and runs nothing of it."""

import io
from pathlib import Path

import pytest
import torch

from fairseq_poolingformer.cli import average_checkpoints, convert, eval_lm, predict, summarize
from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from fairseq_poolingformer.patches import CheckpointError
from tests import lab


class Touches:
    """Makes a file "ran" in the current folder when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("ran"),)


def saved(value):
    file = io.BytesIO()
    torch.save({"model": {"w": torch.ones(99)}, "x": value}, file)
    return file.getvalue()


CONTENTS = {
    "empty": b"",
    "text": b"no checkpoint\n" * 20,
    "cut": saved(1)[:900],
    "flipped": saved(1).replace(torch.ones(99).numpy().tobytes(), torch.ones(98).numpy().tobytes() + b"\0\0\1?"),
    "code": saved(Touches()),
}


COMMANDS = {
    "summarize": lambda path, out: summarize.main(
        ["--checkpoint", path, "--data-folder", str(lab.summaries()), str(lab.characters() / "text")]
    ),
    "convert": lambda path, out: convert.main(["to-huggingface", path, out]),
    "average-checkpoints": lambda path, out: average_checkpoints.main(["--inputs", path, path, "--output", out]),
    "predict": lambda path, out: predict.main([str(lab.questions()), "--path", path, "--output", out]),
    "eval-lm": lambda path, out: eval_lm.main([str(lab.characters()), "--path", path]),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_our_commands(tmp_path, capsys, monkeypatch, command, content):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(CONTENTS[content])
    assert COMMANDS[command](str(path), str(tmp_path / "out")) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"poolingformer {command}")
    assert f"{path} {'was not loaded: ' if content == 'code' else 'is '}" in lines[0]
    assert list(tmp_path.iterdir()) == [path]  # and not what the code makes


@pytest.mark.parametrize(("model", "data"), [(PoolingformerBART, lab.summaries), (PoolingformerRoberta, lab.questions)])
def test_the_hub(tmp_path, model, data):
    (tmp_path / "model.pt").write_bytes(CONTENTS["text"])
    with pytest.raises(CheckpointError, match=r"model\.pt is not a checkpoint"):
        model.from_pretrained(str(tmp_path), "model.pt", str(data()))

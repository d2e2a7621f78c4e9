"""Every command that reads a checkpoint ends in one sentence on a file that is none."""

import pytest

from fairseq_poolingformer.cli import average_checkpoints, convert, eval_lm, predict, sample_lm, summarize
from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from fairseq_poolingformer.patches import CheckpointError
from tests.lab import ROOT, run
from tests.models import tiny_bart
from tests.tasks.question_answering import folders

CONTENTS = {"empty": b"", "text": b"no checkpoint\n" * 20, "cut": b"PK\x03\x04" + bytes(500)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder that has what every command looks at before it reads the checkpoint."""
    folder = tmp_path_factory.mktemp("data")
    tiny_bart.write_data_folder(folder, splits={split: [([5, 6, 7], [5])] for split in ("train", "valid", "test")})
    folders.write_folder(folder / "questions", {"valid": [folders.Example([5], [6, 7])]})
    for made in (folder, folder / "questions"):
        (made / "tokenizer").mkdir()
        (made / "tokenizer" / "config.json").write_text("{}")
    (folder / "text").write_text("a text")
    return folder


COMMANDS = {
    "summarize": lambda path, data: summarize.main(
        ["--checkpoint", path, "--data-folder", str(data), str(data / "text")]
    ),
    "convert": lambda path, data: convert.main(["to-huggingface", path, str(data / "out")]),
    "average": lambda path, data: average_checkpoints.main(["--inputs", path, path, "--output", str(data / "out.pt")]),
    "predict": lambda path, data: predict.main(
        [str(data / "questions"), "--path", path, "--output", str(data / "out.json")]
    ),
    "eval-lm": lambda path, data: eval_lm.main([str(data), "--path", path]),
    "sample-lm": lambda path, data: sample_lm.main(["--path", path]),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_our_commands(tmp_path, data, capsys, command, content):
    path = tmp_path / "model.pt"
    path.write_bytes(CONTENTS[content])
    assert COMMANDS[command](str(path), data) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"poolingformer-{command}" if command != "average" else "poolingformer-average-")
    assert f"{path} is " in lines[0]
    assert sorted(file.name for file in data.glob("out*")) == []


@pytest.mark.parametrize(("model", "folder"), [(PoolingformerBART, "."), (PoolingformerRoberta, "questions")])
def test_the_hub(tmp_path, data, model, folder):
    (tmp_path / "model.pt").write_bytes(CONTENTS["text"])
    with pytest.raises(CheckpointError, match=r"model\.pt is not a checkpoint"):
        model.from_pretrained(str(tmp_path), "model.pt", str(data / folder))


TRAIN = [
    *("--task", "long_summarization", "--arch", "poolingformer_bart_tiny", "--cpu", "--batch-size", 1, "--num-workers"),
    *(0, "--optimizer", "adam", "--max-update", 1, "--no-save"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "option", "flags"),
    [
        ("train", "--restore-file", TRAIN),
        ("train", "--finetune-from-model", TRAIN),
        ("generate", "--path", ["--task", "long_summarization", "--cpu"]),
    ],
)
def test_fairseqs_commands(tmp_path, data, command, option, flags):
    path = tmp_path / "model.pt"
    path.write_bytes(CONTENTS["empty"])
    flags = [*flags, "--user-dir", ROOT / "fairseq_poolingformer", option, path]
    printed = run(f"fairseq_cli.{command}", data, *flags, cwd=tmp_path, status=1)
    assert "Traceback" not in printed
    assert printed.splitlines()[-1].startswith(f"error: {path} is empty: ")

"""``poolingformer finetune``: its arguments, and the folders that it takes. Whole jobs are in tests/integration."""

import json

import pytest

from fairseq_poolingformer.cli.finetune import command
from fairseq_poolingformer.command import UsageError


def test_model_and_data_come_first(capsys):
    """Or else ``--patience 3 MODEL DATA`` would take 3 for the model."""
    with pytest.raises(SystemExit):
        command.main(["--seed", "3", "model", "data", "--output-folder", "run"])
    assert "give MODEL and DATA first" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        command.main(["model", "--help"])
    assert "--output-folder DIR" in capsys.readouterr().out


def test_options_of_transformers_keep_their_names():
    words = ["--learning_rate", "3e-5", "--bf16", "--eval-steps=7"]
    assert command._training_options(words) == {"learning_rate": 3e-5, "bf16": True, "eval_steps": 7}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resume-from-checkpoint=x"], "the command decides that itself"),
        (["--output_dir", "x"], "the command decides that itself"),
        (["--learning_rate", "fast"], "--learning_rate.*fast"),
        (["--text-colum", "x"], "--text-colum: there is no such option; did you mean --text-column"),
    ],
)
def test_options_that_it_does_not_take(words, message):
    with pytest.raises(UsageError, match=message):
        command._training_options(words)


def test_places_of_an_output(tmp_path):
    with pytest.raises(ValueError, match="a colon divides names of folders"):
        command._check_place(tmp_path / "a:b", "data")
    (tmp_path / "data").mkdir()
    with pytest.raises(ValueError, match="lies in DATA"):
        command._check_place(tmp_path / "data" / "run", str(tmp_path / "data"))
    command._check_place(tmp_path / "run", str(tmp_path / "data"))


def test_a_folder_is_of_one_model_data_and_settings(tmp_path):
    run, settings = tmp_path / "run", {"model": "m", "the data": {"train": [1]}, "learning_rate": 1.0}
    command._claim(run, run / "training", settings)
    command._claim(run, run / "training", settings)
    changed = {"the data": {"train": [2]}, "learning_rate": 2.0, "seed": 0}
    said = r"other settings \(the data, learning_rate, seed\); give the same to go on, or another --output-folder"
    with pytest.raises(ValueError, match=said):
        command._claim(run, run / "training", settings | changed)
    assert json.loads((run / "training" / command.BEGUN).read_text()) == settings


@pytest.mark.parametrize("place", ["thesis", "thesis/notes.txt", "begun"])
def test_what_is_not_its_own_is_left_alone(tmp_path, place):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "notes.txt").touch()
    (tmp_path / "begun" / "training").mkdir(parents=True)
    (tmp_path / "begun" / "notes.txt").touch()
    taken = tmp_path / place
    with pytest.raises(ValueError, match="not of this command"):
        command._claim(taken, taken / "training", {})
    assert (tmp_path / "thesis" / "notes.txt").exists()
    assert (tmp_path / "begun" / "notes.txt").exists()

"""``poolingformer finetune``: its arguments, and the folders that it takes. Whole jobs are in tests/integration."""

import json

import pytest

from fairseq_poolingformer.cli.finetune import command as finetune


def test_model_and_data_come_first(capsys):
    """Or else ``--patience 3 MODEL DATA`` would take 3 for the model."""
    with pytest.raises(SystemExit):
        finetune.main(["--patience", "3", "model", "data", "--output-folder", "run"])
    assert "give MODEL and DATA first" in capsys.readouterr().err


def test_flags_that_it_does_not_know_are_kept():
    args = finetune.make_parser().parse_args(
        ["m", "d", "--patience", "3", "--output-folder", "r", "--text-key", "body"]
    )
    assert args.further == ["--patience", "3", "--text-key", "body"]
    assert args.lr is None


def test_other_arguments_are_refused_once_a_training_was_decided_on(tmp_path):
    run, training = tmp_path / "run", tmp_path / "run" / "training"
    finetune._claim(run, training, {"lr": "1", "epochs": "2"})
    finetune._claim(run, training, {"lr": "3", "epochs": "2"})
    (training / finetune.CHOICES).write_text("{}")
    with pytest.raises(ValueError, match=r"begun with other arguments \(lr was 3, is 4\)"):
        finetune._claim(run, training, {"lr": "4", "epochs": "2"})
    assert json.loads((training / "arguments.json").read_text())["lr"] == "3"
    finetune._claim(run, training, {"lr": "3", "epochs": "2"})


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_not_its_own_is_left_alone(tmp_path, is_file):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    taken = tmp_path / "run" / "thesis.txt" if is_file else tmp_path / "run"
    with pytest.raises(ValueError, match="is there, and not of this command"):
        finetune._claim(taken, taken / "training", {})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_gpu_that_is_not_there_is_refused_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert finetune.main(["m", "d", "--output-folder", str(tmp_path / "run"), "--device", "cuda"]) == 1
    assert "--device cuda: PyTorch finds no GPU" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_flags_that_nobody_has_are_corrected():
    finetune._check_spelling(["--patience", "3", "--max-epoch=2", "--clip-norm", "0.1"])
    with pytest.raises(ValueError, match="--lenght: there is no such option; did you mean --length"):
        finetune._check_spelling(["--patience", "3", "--lenght=512"])

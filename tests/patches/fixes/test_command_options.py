"""Command-line options: the help of fairseq's commands."""

import pytest
from fairseq import options


def printed_help(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), ["--help", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_beside_an_architecture_shows_the_flags_of_all(capsys):
    shown = printed_help(
        capsys,
        *("--arch", "poolingformer_bart_base", "--task=long_summarization"),
        *("--criterion", "linear_cross_entropy", "--optimizer", "fused_adamw"),
    )
    for flag in ("--pooled-window-size", "--eval-rouge", "--label-smoothing", "--adam-betas", "--max-update"):
        assert f"  {flag}" in shown
    assert shown.count("usage:") == 1


def test_help_without_an_architecture_is_fairseqs(capsys):
    shown = printed_help(capsys, "--task", "long_summarization")
    assert "  --max-update" in shown
    assert "--pooled-window-size" not in shown


def test_what_is_wrong_beside_help_is_still_said(capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), ["--help", "--arch", "no_such"])
    assert ended.value.code == 2
    assert "invalid choice: 'no_such' (choose from" in capsys.readouterr().err


def test_a_task_without_a_folder_is_parsed():
    """As fairseq's own tests of its dummy tasks do."""
    words = ["--task", "dummy_lm", "--arch", "transformer_lm_gpt", "--tokens-per-sample", "8", "--save-dir", None]
    assert options.parse_args_and_arch(options.get_training_parser(), words).task == "dummy_lm"

"""Command-line options: the help of fairseq's commands."""

import re

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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--arch", "poolingformer_bart"], r"'poolingformer_bart'; did you mean poolingformer_bart_\w+ or .*\?\n$"),
        (["--arch", "poolingformer_bart_tiny", "--widow-size=3"], "--widow-size=3; did you mean --window-size"),
    ],
)
def test_a_wrong_name_is_answered_by_those_like_it(words, expected, capsys):
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser(), ["data", "--task", "long_summarization", *words])
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert len(error) < 250

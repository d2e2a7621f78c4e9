"""Help and options of fairseq's commands; integration/test_likely_mistakes.py has the last line of a failure."""

import pytest
from fairseq import options

ALL = ("--arch", "poolingformer_bart_base", "--criterion", "linear_cross_entropy", "--optimizer", "fused_adamw")
HELP = [  # flags, exit status, parts of what is printed, and whether the architecture's flags are among it
    (
        (*ALL, "--task=long_summarization"),
        0,
        ("--eval-rouge", "--label-smoothing", "--adam-betas", "--max-update"),
        True,
    ),
    (("--task", "long_summarization"), 0, ("--max-update",), False),  # fairseq's own
    (("--arch", "no_such"), 2, ("invalid choice: 'no_such' (choose from",), False),
]


@pytest.mark.parametrize(("flags", "status", "parts", "has_flags_of_architecture"), HELP)
def test_help_shows_the_flags_of_all_that_is_named(capsys, flags, status, parts, has_flags_of_architecture):
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), ["--help", *flags])
    assert ended.value.code == status
    printed = capsys.readouterr()
    assert all(part in (printed.err if status else printed.out) for part in parts)
    assert ("  --pooled-window-size" in printed.out) == has_flags_of_architecture
    assert status or printed.out.count("usage:") == 1


def test_a_task_without_a_folder_is_parsed():
    """As fairseq's own tests of its dummy tasks do."""
    words = ["--task", "dummy_lm", "--arch", "transformer_lm_gpt", "--tokens-per-sample", "8", "--save-dir", None]
    assert options.parse_args_and_arch(options.get_training_parser(), words).task == "dummy_lm"

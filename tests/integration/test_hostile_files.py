"""Hostile files through every command that reads a checkpoint: nothing of them runs, and each ends in a sentence.

By default a third of the files goes through one command each; ``--thorough`` sends all files through all commands.
"""

import contextlib
import io
from argparse import Namespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate, interactive, train, validate

from fairseq_poolingformer.checkpoint_reader import checkpoints as checkpoint_files
from fairseq_poolingformer.checkpoint_reader.checkpoints import CheckpointError
from fairseq_poolingformer.cli import average_checkpoints, convert, eval_lm, eval_mlm, predict, sample_lm, summarize
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.patches.untrusted_files.checkpoints import WRONG_PARAMETERS
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer
from fairseq_poolingformer.weights.files import write_checkpoint
from tests.hostile_files import HOSTILE
from tests.models import tiny_bart
from tests.tasks.question_answering import folders
from tests.text import tiny_gpt2

TASK = ["--task", "long_summarization", "--user-dir", tiny_bart.USER_DIR, "--cpu", "--num-workers", "0"]
MODEL = ["--arch", "poolingformer_bart_tiny", *tiny_bart.SIZES, "--pooled-layers", "2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with what every command looks at before it reads the checkpoint."""
    folder = tmp_path_factory.mktemp("data")
    tiny_bart.write_data_folder(folder, splits={split: [([5, 6, 7], [5])] for split in ("train", "valid", "test")})
    folders.write_folder(folder / "questions", {"valid": [folders.Example([5], [6, 7])]})
    (folder / "dict.a.txt").write_text("x 1\n")
    (folder / "dict.b.txt").write_text("x 1\n")
    vocabulary = tiny_gpt2.write_vocabulary(folder / "vocabulary")
    tokenizer = GPT2Tokenizer(*(vocabulary / name for name in GPT2Tokenizer.files))
    for made in (folder, folder / "questions"):
        tokenizer.save(made)
    tokenizer.write_dictionary(folder / "dict.source.txt")
    tokenizer.write_dictionary(folder / "dict.target.txt")
    (folder / "text").write_text("a text")
    return folder


@pytest.fixture(scope="module")
def good(data):
    """The state of a checkpoint in which nothing is wrong."""
    args = tiny_bart.parse(data, *MODEL)
    _, model = tiny_bart.build(data, *MODEL)
    write_checkpoint(data / "good.pt", vars(args), model.state_dict())
    return checkpoint_files.load(data / "good.pt")


def parsed(parser, *arguments):
    return options.parse_args_and_arch(parser, [str(argument) for argument in arguments])


def run_train(flag, path, data):
    arguments = ["--optimizer", "adam", "--max-update", 1, "--no-save", "--batch-size", 1, "--disable-validation"]
    arguments += ["--save-dir", data / "run", flag, path]
    train.main(convert_namespace_to_omegaconf(parsed(options.get_training_parser(), data, *TASK, *MODEL, *arguments)))


def run_validate(path, data):
    arguments = ["--path", path, "--valid-subset", "valid", "--batch-size", 1]
    args = parsed(options.get_validation_parser(), data, *TASK, *arguments)
    validate.main(convert_namespace_to_omegaconf(args), override_args=Namespace(data=str(data)))


def run_generate(path, data):
    generate.main(
        parsed(options.get_generation_parser(), data, *TASK, "--path", path, "--max-len-b", 2, "--batch-size", 1)
    )


def run_interactive(path, data):
    parser = options.get_interactive_generation_parser()
    interactive.main(parsed(parser, data, *TASK, "--path", path, "--max-len-b", 2, "--input", data / "text"))


def run_hub(path, data):
    PoolingformerBART.from_pretrained(str(path.parent), path.name, str(data))


COMMANDS = {
    "train": lambda path, data: run_train("--restore-file", path, data),
    "finetune": lambda path, data: run_train("--finetune-from-model", path, data),
    "generate": run_generate,
    "validate": run_validate,
    "interactive": run_interactive,
    "hub": run_hub,
    "summarize": lambda path, data: summarize.main(
        ["--checkpoint", str(path), "--data-folder", str(data), str(data / "text")]
    ),
    "summarize with the checkpoint's data": lambda path, data: summarize.main(
        ["--checkpoint", str(path), str(data / "text")]
    ),
    "convert": lambda path, data: convert.main(["to-huggingface", str(path), str(path.parent / "out")]),
    "average": lambda path, data: average_checkpoints.main(
        ["--inputs", str(path), str(path), "--output", str(path.parent / "out.pt")]
    ),
    "predict": lambda path, data: predict.main(
        [str(data / "questions"), "--path", str(path), "--output", str(path.parent / "out.json")]
    ),
    "eval-lm": lambda path, data: eval_lm.main([str(data), "--path", str(path)]),
    "eval-mlm": lambda path, data: eval_mlm.main([str(data), "--path", str(path)]),
    "sample-lm": lambda path, data: sample_lm.main(["--path", str(path)]),
}


def outcome(command, path, data):
    """The sentence in which a command ends; None where it succeeds, since some files harm only other commands."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
            status = COMMANDS[command](path, data)
    except (CheckpointError, FileNotFoundError) as error:  # fairseq's commands print these as one sentence
        return str(error)
    except Exception as error:  # fairseq raises a plain Exception, which nothing narrower catches
        if type(error) is Exception and str(error).startswith(WRONG_PARAMETERS):
            return str(error)
        raise
    if not status:
        return None
    *warnings, sentence = printed.getvalue().splitlines()
    assert all(line.startswith(("WARNING", "INFO")) for line in warnings), printed.getvalue()
    return sentence


def cases(thorough):
    commands = list(COMMANDS)
    for number, name in enumerate(HOSTILE):
        if thorough:
            yield from ((name, command) for command in commands)
        elif number % 3 == 0:
            yield name, commands[number % len(commands)]


def pytest_generate_tests(metafunc):
    if "hostile" in metafunc.fixturenames:
        metafunc.parametrize(("hostile", "command"), cases(metafunc.config.getoption("--thorough")))


def test_nothing_runs_and_each_is_a_sentence(tmp_path, data, good, hostile, command, capsys):
    path, marker = tmp_path / "hostile.pt", tmp_path / "ran"
    HOSTILE[hostile](path, good, marker)
    sentence = outcome(command, path, data)
    assert not marker.exists()
    if sentence is not None:
        assert "\n" not in sentence
        assert "weights_only" not in sentence
        assert "Traceback" not in sentence
        assert len(sentence) < 2000


@pytest.mark.parametrize("command", ["train", "finetune", "generate", "validate", "hub", "average"])
def test_a_good_file_is_read(tmp_path, data, good, command):
    """Every command takes the whole files from which the hostile ones are made."""
    torch.save(good, tmp_path / "good.pt")
    assert outcome(command, tmp_path / "good.pt", data) is None

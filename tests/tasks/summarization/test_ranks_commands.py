"""fairseq-train, fairseq-generate and poolingformer-summarize with documents that processes share."""

import contextlib
import copy
import io
import os
import re
import socket
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq import options

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import summarize
from fairseq_poolingformer.models import context_parallel
from tests.models.tiny_bart import SIZES, USER_DIR, write_data_folder
from tests.patches.helpers import in_processes, parse
from tests.patches.test_contexts import assert_same, recorded
from tests.tasks.masked_lm.mlm_folder import random_texts
from tests.tasks.masked_lm.mlm_folder import write_folder as write_tokenizer

TASK = ["--user-dir", USER_DIR, "--task", "long_summarization", "--cpu", "--num-workers", 0, "--seed", 3]
TRAINING = [
    *(*SIZES, "--encoder-ffn-embed-dim", 48, "--arch", "poolingformer_bart_tiny", "--dropout", 0, "--batch-size", 2),
    *("--window-size", 3, "--pooled-window-size", 8, "--pooled-layers", "1-2", "--max-source-positions", 64),
    *("--optimizer", "adam", "--adam-eps", 1e-4, "--lr", 2e-3, "--clip-norm", 1, "--label-smoothing", 0.1),
    *("--criterion", "linear_cross_entropy", "--required-batch-size-multiple", 1, "--no-progress-bar"),
    "--no-epoch-checkpoints",
]
ROUGE = ["--eval-rouge", "--eval-rouge-args", '{"beam": 2, "max_len_b": 8}']
GENERATION = ["--batch-size", 2, "--required-batch-size-multiple", 1, "--beam", 3, "--max-len-b", 12]
NUMBER = re.compile(r"-?\d+\.\d+(?:e-\d+)?")
LINES = re.compile(r"^[STHDP]-\d+\t.*", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    tokenizer = write_tokenizer(folder, {})
    texts = [tokenizer.encode(text).tolist() for text in random_texts(37, 30, seed=4)]
    pairs = [(text, text[:7]) for text in texts]
    write_data_folder(folder, splits={"train": pairs[:24], "valid": pairs[24:30], "test": pairs[30:]})
    for side in ("source", "target"):
        tokenizer.write_dictionary(folder / f"dict.{side}.txt")
    return folder


def train(folder, save_dir, updates, size, *flags):
    """Train in processes that share all documents; the records of the first, and the last checkpoint."""
    words = [folder, *TASK, *TRAINING, "--save-dir", save_dir, "--max-update", updates, *flags]
    in_processes(size, recorded(words, save_dir, processes=size, size=size))
    return torch.load(save_dir / "records.pt"), load(save_dir / "checkpoint_last.pt")


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """A training in one process, and its folder."""
    save_dir = tmp_path_factory.mktemp("one")
    return train(folder, save_dir, 20, 1, *ROUGE), save_dir


def test_two_processes_train_as_one_and_checkpoints_cross(folder, trained, tmp_path):
    expected, _ = trained
    assert any(record.get("_rouge_count") for record in expected[0])
    assert_same(expected, train(folder, tmp_path / "two", 20, 2, *ROUGE))
    crossed, flags = tmp_path / "crossed", ["--disable-validation"]
    first, _ = train(folder, crossed, 9, 2, *flags, "--checkpoint-activations")
    then, state = train(folder, crossed, 20, 1, *flags)
    updates = [record for record in expected[0] if record["norm"] != -1]
    assert_same((updates, expected[1]), (first + then, state))


@pytest.fixture(scope="module")
def checkpoint(trained, tmp_path_factory):
    """Of a model whose summaries depend on the documents."""
    state, generator = copy.deepcopy(trained[0][1]), torch.Generator().manual_seed(0)
    for name, parameter in state["model"].items():
        if parameter.dim() == 2 and "embed" not in name and "output" not in name:
            parameter += 0.4 * torch.randn(parameter.shape, generator=generator)
    torch.save(state, path := tmp_path_factory.mktemp("telling") / "checkpoint.pt")
    return path


def under_torchrun(processes, function, *arguments):
    """Call a function in processes with the variables of torchrun; what each prints."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": found.getsockname()[1], "WORLD_SIZE": processes}

    def process(rank, _):
        variables = {**meeting, "RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({name: str(value) for name, value in variables.items()})
        with contextlib.redirect_stdout(io.StringIO()) as out:
            function(*arguments)
        (folder / str(rank)).write_text(out.getvalue())

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        in_processes(processes, process)
        return [(folder / str(rank)).read_text() for rank in range(processes)]


@pytest.mark.parametrize(("processes", "size"), [(2, 2), (4, 2)])
def test_processes_generate_what_one_does_and_the_first_prints(folder, checkpoint, processes, size):
    from fairseq_cli.generate import main

    def generate(*flags):
        arguments = [folder, *TASK, "--path", checkpoint, *GENERATION, *flags]
        main(parse(options.get_generation_parser(), arguments))

    with contextlib.redirect_stdout(io.StringIO()) as out:
        generate()
    expected = LINES.findall(out.getvalue())
    assert len(expected) == 5 * 7
    assert len({line.split("\t")[-1] for line in expected if line.startswith("D-")}) > 4
    first, *others = under_torchrun(processes, generate, "--context-parallel-size", size)
    found = LINES.findall(first)
    assert [re.sub(NUMBER, "", line) for line in found] == [re.sub(NUMBER, "", line) for line in expected]
    for line, wanted in zip(found, expected, strict=True):
        assert [*map(float, NUMBER.findall(line))] == pytest.approx([*map(float, NUMBER.findall(wanted))], abs=2e-4)
    assert first.count("Generate test with beam=3") == 1
    assert not any(others)
    with pytest.raises(ValueError, match="--context-parallel-size 2 divides 1 process into no whole number"):
        generate("--context-parallel-size", 2)


def test_processes_summarize_what_one_does_and_the_first_prints(folder, checkpoint, tmp_path, capsys):
    texts = random_texts(3, 30, seed=9)
    files = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    arguments = ["--checkpoint", checkpoint, "--data-folder", folder, "--device", "cpu", *files, "--batch-size", 2]
    arguments = [str(argument) for argument in (*arguments, "--max-length", 9, "--min-length", 3, "--beam", 3)]
    assert summarize.main(arguments) == 0
    expected = capsys.readouterr().out
    assert len({line.split("\t")[1] for line in expected.splitlines()}) > 1

    def run(given):
        with mock.patch.object(context_parallel, "divide", wraps=context_parallel.divide) as divide:
            assert summarize.main(given) == 0
        assert divide.call_count == 1

    for processes in (2, 3):
        first, *others = under_torchrun(processes, run, arguments)
        assert first == expected
        assert not any(others)

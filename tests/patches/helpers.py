"""Running fairseq's command lines on a tiny model of its own, in this process or in another."""

import inspect
import os
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

import fairseq_poolingformer
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches import table
from tests.forked_python import PYTHON, start
from tests.models import tiny_bart

table.apply()

TORCHRUN = ["torch.distributed.run", "--nproc_per_node=2", "--standalone", "-m"]
PACKAGE = Path(fairseq_poolingformer.__file__).parent
EXAMPLES = {"train": 24, "valid": 12, "test": 12}
TRANSLATION = ["--task", "translation", "--source-lang", "src", "--target-lang", "tgt"]
SHORT = ["--beam", "1", "--max-len-b", "5", "--cpu", "--num-workers", "0", "--required-batch-size-multiple", "1"]
TRAINING = [
    *TRANSLATION,
    *("--arch", "transformer", "--encoder-layers", "1", "--decoder-layers", "1", "--dropout", "0"),
    *("--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--share-all-embeddings"),
    *("--encoder-ffn-embed-dim", "16", "--decoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
    *("--optimizer", "adam", "--lr", "0.01", "--criterion", "cross_entropy", "--batch-size", "4"),
    *("--seed", "7", "--cpu", "--no-progress-bar", "--num-workers", "0", "--required-batch-size-multiple", "1"),
]

DOCUMENTS = [*TRAINING[len(TRANSLATION) :], "--user-dir", tiny_bart.USER_DIR, "--task", "long_summarization"]


def parse(parser: ArgumentParser, arguments: list) -> Any:
    """Parse a fairseq command line in this process."""
    arguments = [str(argument) for argument in arguments]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


def train(corpus: Path, save_dir: Path, *extra: Any) -> dict:
    """Train in this process and return the last checkpoint, as it is in the file."""
    from fairseq_cli.train import main

    arguments = [corpus, *TRAINING, "--save-dir", save_dir, *extra]
    distributed_utils.call_main(parse(options.get_training_parser(), arguments), main)
    return load(save_dir / "checkpoint_last.pt")


def train_on_documents(documents: Path, save_dir: Path, *extra: Any) -> dict:
    """Train a task of the plugin as :func:`train` does: it composes the same batches after a resume."""
    from fairseq_cli.train import main

    arguments = [documents, *DOCUMENTS, "--save-dir", save_dir, *extra]
    distributed_utils.call_main(parse(options.get_training_parser(), arguments), main)
    return load(save_dir / "checkpoint_last.pt")


def end_of_process() -> None:
    """Forget what fairseq keeps of a training in its process."""
    from fairseq_cli.train import should_stop_early

    for name in ("best", "num_runs"):
        vars(should_stop_early).pop(name, None)


def generate(corpus: Path, checkpoint: Path, *extra: Any) -> list[str]:
    """Generate in this process and return the hypotheses, one line each."""
    from fairseq_cli.generate import main

    arguments = [corpus, *TRANSLATION, "--path", checkpoint, "--results-path", checkpoint.parent / "out"]
    main(parse(options.get_generation_parser(), [*arguments, *SHORT, *extra]))
    lines = (checkpoint.parent / "out" / "generate-test.txt").read_text().splitlines()
    return [line for line in lines if line.startswith("H-")]


def run(*command: Any, cwd: Path, status: int | None = 0) -> subprocess.CompletedProcess:
    """Run ``python -m command…`` in a process of its own, with one thread, and check its exit status."""
    start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [PYTHON, "-m", *map(str, command)]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert status in (None, done.returncode), done.stderr
    return done


def unpatched(monkeypatch: Any, owner: Any, name: str) -> None:
    """Put fairseq's own function back for the length of a test."""
    patched = getattr(owner, name)
    original = inspect.unwrap(patched, stop=lambda function: not hasattr(function, "_patched_by"))
    assert original is not patched
    monkeypatch.setattr(owner, name, original)


def assert_same_parameters(*states: dict, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Check that checkpoints have the same parameters, by default to float32's accuracy."""
    models = [  # without a buffer that fairseq 0.12.2 leaves uninitialised
        {name: x.float() for name, x in state["model"].items() if not name.endswith("_float_tensor")}
        for state in states
    ]
    torch.testing.assert_close(*models, rtol=rtol, atol=atol)


def num_updates(state: dict) -> int:
    return state["optimizer_history"][-1]["num_updates"]


def launch(*command: Any, **environment: str) -> subprocess.Popen:
    """Start a Python in a process of its own with one thread; its output, both streams together, is to be read."""
    start()
    return subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

"""Tiny data folders and checkpoints, each made once a session, and the ways to run commands on them.

What a function under ``@once`` returns is shared by all tests: ``copy`` it before you change it.
Commands run in a Python that has torch and fairseq already (``tests/forked_python``), or in this process (``here``).
"""

import atexit
import functools
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from tests.forked_python import PYTHON, start

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fairseq_poolingformer"
SCRIPTS = ROOT / "run_scripts"
SHARED_DATA = ROOT.parent / "shared" / "data"  # real data, where it is at hand
PLUGIN = ("--user-dir", PACKAGE)
SMALL = (  # sizes of an encoder
    *("--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 48, "--encoder-attention-heads", 4),
    *("--encoder-layers", 3),
)
SMALL_BART = (*SMALL, "--decoder-attention-heads", 4, "--decoder-layers", 2, "--max-target-positions", 12)
SUMMARIES = ("--task", "long_summarization", *PLUGIN)
TEXTS = ("--task", "long_masked_lm", "--criterion", "long_masked_lm", *PLUGIN)
BART = ("--arch", "poolingformer_bart_tiny", *SMALL_BART)
ROBERTA = ("--arch", "poolingformer_roberta_tiny", *SMALL, "--max-positions", 64)
UPDATE = (  # flags of a training; any of them given again counts
    *("--optimizer", "adam", "--lr", "1e-3", "--batch-size", 2, "--max-update", 1, "--seed", 1),
    *("--cpu", "--num-workers", 0, "--no-progress-bar"),
)


def call(words: list[object], status: int = 0, cwd: Path = ROOT, **environment: str) -> str:
    """Run a program with one thread; its output, both streams together. An error, where its status is another one."""
    start()
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    assert done.returncode == status, done.stdout[-5000:]
    return done.stdout


def run(module: str, *arguments: object, status: int = 0, cwd: Path = ROOT, **environment: str) -> str:
    """``python -m MODULE …``, as :func:`call`."""
    return call([PYTHON, "-m", module, *arguments], status, cwd, **environment)


def run_script(name: str, *arguments: object, status: int = 0, **environment: str) -> str:
    """A script of ``run_scripts/``, as :func:`call`."""
    return call([PYTHON if name.endswith(".py") else "bash", SCRIPTS / name, *arguments], status, **environment)


HIDE = """
import sys
for name in [*sys.modules, *{0}]:
    if name.partition(".")[0] in {0}:
        sys.modules[name] = None
"""


def run_code(code: str, folder: Path, *arguments: object, hidden: Sequence[str] = (), status: int = 0) -> str:
    """``python FOLDER/code.py …`` with this code, where these libraries are not installed, as :func:`call`."""
    (folder / "code.py").write_text(HIDE.format(list(hidden)) + code, encoding="utf-8")
    return call([PYTHON, folder / "code.py", *arguments], status, folder)


def here(module: str, *arguments: object) -> Any:
    """Result of ``cli_main``, of fairseq's commands, or of ``main`` of a module returns in this process."""
    loaded = importlib.import_module(module)
    with mock.patch.object(sys, "argv", [module, *map(str, arguments)]):
        return (getattr(loaded, "cli_main", None) or loaded.main)()


def train(data: Path, *flags: object, save_dir: Path) -> dict:
    """``fairseq-train`` in this process; what it leaves in ``checkpoint_last.pt``."""
    here("fairseq_cli.train", data, *flags, "--save-dir", save_dir)
    return torch.load(save_dir / "checkpoint_last.pt", weights_only=False)


def task(folder: Path, name: str, arch: str, *flags: object, criterion: str = "document_task") -> tuple[Any, Any]:
    """``(args, task)`` of a data folder, by fairseq's own options."""
    from fairseq import options, tasks

    words = [folder, "--task", name, "--arch", arch, "--criterion", criterion, *PLUGIN, "--cpu", *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), list(map(str, words)))
    return args, tasks.setup_task(args)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="lab-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def once(make: Callable[[Path], Any]) -> Callable[[], Any]:
    """Call a function at its first use with an empty folder; what it returns, or the folder, every time."""

    @functools.cache
    def made() -> Any:
        folder = Path(tempfile.mkdtemp(prefix=f"{make.__name__}-", dir=_folder()))
        result = make(folder)
        return folder if result is None else result

    return functools.wraps(make)(made)


def copy(source: Path, target: Path) -> Path:
    """A file or folder of one's own, to be changed."""
    return Path(shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, target))


@once
def gpt2(folder: Path) -> None:
    """``encoder.json``, ``vocab.bpe`` and ``dict.txt`` of a small vocabulary."""
    from tests.text.tiny_gpt2 import write_vocabulary

    write_vocabulary(folder)


@once
def texts(folder: Path) -> None:
    """A data folder of texts, ``train`` and ``valid``, with dictionary and tokenizer: for ``long_masked_lm``."""
    from tests.tasks.masked_lm import mlm_folder

    splits = {"train": mlm_folder.random_texts(12, 40), "valid": mlm_folder.random_texts(4, 40, seed=1)}
    mlm_folder.write_folder(folder, splits)


@once
def words(folder: Path) -> None:
    """A folder with dictionaries of 30 words alone: what a model of any task is built with."""
    from tests.models import tiny_bart

    tiny_bart.write_data_folder(folder)
    shutil.copy(folder / "dict.source.txt", folder / "dict.txt")


@once
def summaries(folder: Path) -> None:
    """A data folder of documents of 3 to 30 tokens and their first five: for ``long_summarization``."""
    from fairseq_poolingformer.text.tokenizers import load_tokenizer
    from tests.models import tiny_bart

    rng = np.random.default_rng(0)
    documents = [rng.integers(4, 150, size).tolist() for size in (3, 9, 30, 20, 14, 25)]
    examples = [(document, document[:5]) for document in documents]
    tiny_bart.write_data_folder(folder, splits={"train": examples, "valid": examples[:2], "test": examples})
    copy(texts() / "tokenizer", folder / "tokenizer")
    for side in ("source", "target"):
        load_tokenizer(folder).write_dictionary(folder / f"dict.{side}.txt")


@once
def questions(folder: Path) -> None:
    """A data folder of questions with paragraphs and answers: for ``question_answering``."""
    from tests.tasks.question_answering import folders

    folders.write_folder(folder, {"train": folders.random_examples(8), "valid": folders.random_examples(3, seed=1)})
    copy(texts() / "tokenizer", folder / "tokenizer")


@once
def characters(folder: Path) -> None:
    """A data folder of bytes, a sentence over and over: for ``char_lm``."""
    from preprocess.char_lm import make_folder

    (folder / "text").write_bytes(b"all work and no play makes jack a dull boy; " * 60)
    make_folder([str(folder / "text")], folder)


@once
def bart(folder: Path) -> Path:
    """``checkpoint_last.pt`` of a BART of two levels after one update on :func:`summaries`."""
    train(summaries(), *SUMMARIES, *BART, "--criterion", "linear_cross_entropy", *UPDATE, save_dir=folder)
    return folder / "checkpoint_last.pt"


@once
def roberta(folder: Path) -> Path:
    """``checkpoint_last.pt`` of a RoBERTa of two levels after one update on :func:`texts`."""
    train(texts(), *TEXTS, *ROBERTA, *UPDATE, save_dir=folder)
    return folder / "checkpoint_last.pt"

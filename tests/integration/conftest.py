"""A small corpus with multi-byte text, preprocessed by the command line itself."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.forked_python import PYTHON, start

ROOT = Path(__file__).parents[2]
TEXT = "die Größe der Schlüssel wächst linear mit der Länge 長い 文書 を 要約 する naïve café attention window pooled"


def run(*command: object, cwd: Path | None = None, status: int = 0) -> str:
    """Run a command with one thread; its output, both streams together.

    Raises:
        AssertionError: the exit status is another one.
    """
    start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [PYTHON, "-m", *map(str, command)],
        cwd=cwd or ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    assert (done.returncode == 0) == (status == 0), done.stdout[-5000:]
    return done.stdout


def write_corpus(folder: Path, splits: dict[str, int], words: int = 60) -> Path:
    """JSON lines of random sentences; the summary is the document's first words, so there is something to learn."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, rng = TEXT.split(), random.Random(0)
    for split, count in splits.items():
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for number in range(count):
                text = [rng.choice(vocabulary) for _ in range(words + 10 * (number % 7))]
                record = {"article": " ".join(text) + ".", "abstract": " ".join(text[:6]) + "."}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return folder


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory) -> Path:
    """A data folder with sentencepiece: 40 training, 5 validation and 12 test documents."""
    raw = write_corpus(tmp_path_factory.mktemp("raw"), {"train": 40, "valid": 5, "test": 12})
    output = tmp_path_factory.mktemp("data") / "data-bin"
    splits = [argument for name in ("train", "valid", "test") for argument in (f"--{name}", raw / f"{name}.jsonl")]
    run("preprocess.arxiv_pubmed", *splits, "--sentencepiece-train", 314, "--output-folder", output, "--workers", 1)
    return output

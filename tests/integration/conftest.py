"""A small corpus with multi-byte text, preprocessed by the command line itself."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest

from tests.forked_python import PYTHON
from tests.lab import run, run_script

TEXT = "die Größe der Schlüssel wächst linear mit der Länge 長い 文書 を 要約 する naïve café attention window pooled"


def dry_run(script: str, *arguments: object, **environment: str) -> list[list[str]]:
    """The commands of a dry run of a script, each as its words."""
    output = run_script(script, f"python={PYTHON}", "out=/out", "dry_run=1", *arguments, **environment)
    return [shlex.split(line) for line in output.replace("\\\n", " ").splitlines() if "-m " in line]


def module(words: list[str]) -> str:
    """The last part of the name of the module that a command runs; the command of this package's."""
    name, command = next(words[n : n + 2] for n in reversed(range(len(words))) if words[n - 1] == "-m")
    return command if name == "fairseq_poolingformer.cli.main" else name.split(".")[-1]


def options(words: list[str]) -> dict[str, str]:
    """Flags and what follows them."""
    following = [*words[1:], ""]
    return {word: value for word, value in zip(words, following, strict=True) if word.startswith("--")}


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
    run("preprocess", "arxiv_pubmed", *splits, "--sentencepiece-train", 314, "--output-folder", output, "--workers", 1)
    return output

import contextlib
import functools
import json
from pathlib import Path

import pytest

from preprocess import arxiv_pubmed
from tests import lab


@pytest.fixture(scope="session")
def shared_data():
    """Real data to try things with, where it is at hand."""
    if not lab.SHARED_DATA.is_dir():
        pytest.skip("no real data at hand")
    return lab.SHARED_DATA


@pytest.fixture(scope="session")
def release():
    """A tiny corpus in the format of the arXiv/PubMed release."""
    return Path(__file__).parent / "fixtures" / "release"


@pytest.fixture(scope="session")
def gpt2_folder():
    return lab.gpt2()


def convert(corpus, output, *flags, tokenizer=None):
    """Exit status of a preprocessing command in this process, with a small GPT-2 vocabulary unless told otherwise."""
    tokenizer = ["--gpt2-bpe", lab.gpt2()] if tokenizer is None else tokenizer
    return corpus.main([str(word) for word in (*tokenizer, "--output-folder", output, "--workers", 1, *flags)])


def refused(capsys, corpus, output, *flags, **options):
    """Standard error of a preprocessing command that must fail."""
    with contextlib.suppress(SystemExit):  # of its parser
        assert convert(corpus, output, *flags, **options) == 1
    return capsys.readouterr().err


@pytest.fixture
def command():
    """Runs the arxiv_pubmed command line."""
    return functools.partial(convert, arxiv_pubmed)


@pytest.fixture
def write_lines(tmp_path):
    """Writes objects, or raw bytes, as the lines of a file."""

    def write(name, lines):
        raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        path = tmp_path / name
        path.write_bytes(b"".join(line + b"\n" for line in raw))
        return path

    return write


def contents(folder):
    """Every file of a folder by name."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rejects(folder, split="train"):
    """The rejected records of a split, as preprocessing lists them."""
    return [json.loads(line) for line in (folder / f"{split}.rejects.jsonl").read_text(encoding="utf-8").splitlines()]


def page(title, text, ns="<ns>0</ns>"):
    """A page of a dump."""
    return f"<page><title>{title}</title>{ns}<revision><text>{text}</text></revision></page>\n"

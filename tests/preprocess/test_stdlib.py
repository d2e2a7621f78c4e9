"""Documents out of Python sources."""

import pytest

from fairseq_poolingformer.text.sequences import read_sizes
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import stdlib
from preprocess.python_sources import clean_summary, drop_duplicates, find_modules, read_module

CODE = "\n".join(f"value_{k} = compute_something(naïve={k}, other=({k} + 1)) # line {k}" for k in range(60))
SUMMARY = "Compute things about cafés and other places, which takes a while because there are many of them."


def module(summary=SUMMARY, code=CODE):
    body = "\n".join("    " + line for line in code.split("\n"))
    whole = f'# licence\n"""{summary}\n\n>>> doctest()\n"""\nimport os\n{code}\n'
    return whole + f'\n\nclass Thing:\n    """Of a thing, t{summary[1:]}"""\n{body}\n'


def test_documents_of_a_module(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(module(), encoding="utf-8")
    whole, thing = read_module(("pkg.some", path))
    assert (whole.name, whole.summary) == ("pkg.some", SUMMARY)
    assert whole.text.startswith("import os\nvalue_0")
    assert "doctest" not in whole.text
    assert "licence" not in whole.text
    assert thing.name == "pkg.some.Thing"
    assert thing.module == "pkg.some"
    assert thing.text.startswith("class Thing:\n    value_0")
    assert "Of a thing" in whole.text
    assert "Of a thing" not in thing.text


@pytest.mark.parametrize(
    "content", [b"def broken(:\n" * 300, b"x = 0 \0\n" * 300, b"# coding: nonsense\n", b"\xff\xfe" * 300]
)
def test_unreadable_modules_are_none(tmp_path, content):
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    assert read_module(("bad", path)) is None


@pytest.mark.parametrize(
    "text",
    [
        module(summary="Too short."),
        module().replace(SUMMARY, ""),
        f'"""{SUMMARY}"""\nx = 1\n',
        "# Auto-generated. Do not edit.\n" + module(),
    ],
)
def test_poor_documents_are_left_out(tmp_path, text):
    path = tmp_path / "poor.py"
    path.write_text(text, encoding="utf-8")
    assert all(document.name == "poor.Thing" for document in read_module(("poor", path)))


@pytest.mark.parametrize(
    ("docstring", "summary"),
    [
        ("f(a, b) -> c\n\nDo it well.\nReally.\n\nParameters\n----------\na : int", "Do it well. Really."),
        ("Title\n=====\n\nUse :class:`~a.B` and ``c``.\n\n    >>> code()\n\nMore.", "Use a.B and c. More."),
        ("Does it.\n\nArgs:\n    x: y\n\nNever seen.", "Does it."),
        ("Does it.\n\n:param x: y", "Does it."),
        ("Does it.\n\n.. versionadded:: 3.1\n\nNo.", "Does it."),
        ("word " * 300, ("word " * 120).strip()),
    ],
)
def test_summaries_are_prose(docstring, summary):
    assert clean_summary(docstring) == summary


def test_finding_and_dropping(tmp_path):
    for name in ("a/__init__.py", "a/one.py", "a/tests/x.py", "a/test_x.py", "b-c/d.py", "copy.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(module(), encoding="utf-8")
    modules = find_modules(tmp_path)
    assert [name for name, _ in modules] == ["a", "a.one", "copy"]
    documents = [document for entry in modules for document in read_module(entry)]
    assert [document.name for document in drop_duplicates(documents)] == ["a"]


def test_a_module_and_its_classes_are_in_one_split():
    assert {stdlib.split_of(f"m{k}") for k in range(200)} == {"train", "valid", "test"}
    assert 150 < sum(stdlib.split_of(f"m{k}") == "train" for k in range(200)) < 195


@pytest.mark.slow
def test_command_line(tmp_path, capsys):
    argv = ["--no-packages", "--output-folder", tmp_path, "--sentencepiece-train", "1000", "--limit", "50"]
    assert stdlib.main([str(arg) for arg in argv]) == 0
    assert read_sizes(tmp_path / "train.source-target.source").shape == (50,)
    assert read_sizes(tmp_path / "valid.source-target.target").min() > 5
    assert len(load_tokenizer(tmp_path)) == 1000
    assert capsys.readouterr().out.startswith("stdlib")

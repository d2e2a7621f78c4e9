"""Sentences of plain English out of the docstrings of Python sources, which are parsed and never executed."""

import ast
import hashlib
import inspect
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_FILES_OF_PACKAGE = 250
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 6, 40

_UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
_SKIPPED_FOLDERS = {
    "__pycache__", "_vendor", "extern", "idle_test", "idlelib", "lib2to3", "pip", "pkg_resources", "setuptools",
    "site-packages", "dist-packages", "test", "tests", "testing", "turtledemo", "vendor", "vendored",
}  # fmt: skip
_SKIPPED_FILE = re.compile(r"^(test_.*|.*_tests?|conftest|.*_pb2|_sysconfigdata.*|__main__)\.py$")

_END_OF_SENTENCE = re.compile(r"(?<=[a-z)][.?!])\s+(?=[A-Z])")
_SENTENCE = re.compile(r"[A-Z][A-Za-z]*(?:[ ,;:'()-]+[A-Za-z]+)*[.?!]")


def find_modules(root: Path) -> list[tuple[str, Path]]:
    """Find names and files of the modules under a folder, sorted; a large package gives a fixed choice of them."""
    packages: dict[str, list[tuple[str, Path]]] = {}
    for path in root.rglob("*.py"):
        folders = path.relative_to(root).parts[:-1]
        if _SKIPPED_FOLDERS.intersection(folders) or _SKIPPED_FILE.match(path.name):
            continue
        names = [*folders, *([] if path.stem == "__init__" else [path.stem])]
        if names and all(name.isidentifier() for name in names):
            packages.setdefault(names[0], []).append((".".join(names), path))
    chosen = []
    for modules in packages.values():
        modules.sort(key=lambda module: digest(module[0]))
        chosen += modules[:MAX_FILES_OF_PACKAGE]
    return sorted(chosen)


def digest(text: str) -> str:
    """Hash a text; the result is the same on every machine."""
    return hashlib.sha1(text.encode("utf-8", "replace")).hexdigest()


def is_held_out(name: str) -> bool:
    """Whether a source is one of those, one in ten by name, that no model is trained on."""
    return int(digest(name), 16) % 10 == 0


def _read(path: Path) -> str:
    with tokenize.open(path) as file:
        return file.read()


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def read_prose(modules: Iterable[tuple[str, Path]]) -> list[list[str]]:
    """The sentences of every module that has any, in order; none is in the list twice."""
    seen: set[str] = set()
    prose = []
    for _, path in modules:
        sentences = [sentence for sentence in _sentences(path) if sentence not in seen]
        sentences = list(dict.fromkeys(sentences))
        seen.update(sentences)
        if sentences:
            prose.append(sentences)
    return prose


def _sentences(path: Path) -> Iterator[str]:
    for docstring in _docstrings(path):
        for paragraph in re.split(r"\n\s*\n", docstring):
            for sentence in _END_OF_SENTENCE.split(" ".join(paragraph.split())):
                if _SENTENCE.fullmatch(sentence) and MIN_SENTENCE_WORDS <= len(sentence.split()) <= MAX_SENTENCE_WORDS:
                    yield sentence


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = _parse(_read(path))
    except _UNREADABLE:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield inspect.cleandoc(docstring)

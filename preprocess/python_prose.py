"""Sentences of plain English out of the docstrings of the Python installation: real prose on every machine.

Nothing is imported or executed: sources are read and parsed.
"""

import ast
import inspect
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

MIN_WORDS, MAX_WORDS = 6, 40

_END_OF_SENTENCE = re.compile(r"(?<=[a-z)][.?!])\s+(?=[A-Z])")
_SENTENCE = re.compile(r"[A-Z][A-Za-z]*(?:[ ,;:'()-]+[A-Za-z]+)*[.?!]")


def read_prose(modules: Iterable[tuple[str, Path]]) -> list[list[str]]:
    """The sentences of every module that has any, in order; none is in the list twice.

    Args:
        modules: names and files, as :func:`preprocess.python_sources.find_modules` gives them.
    """
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
                if _SENTENCE.fullmatch(sentence) and MIN_WORDS <= len(sentence.split()) <= MAX_WORDS:
                    yield sentence


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield inspect.cleandoc(docstring)

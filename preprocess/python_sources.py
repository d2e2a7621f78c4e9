"""Out of Python sources: documents with human summaries, and sentences of plain English.

A document is code without its docstring, its summary the docstring; the sentences are those of all docstrings.

This module reads and parses sources; it imports and executes none of them.
"""

import ast
import hashlib
import inspect
import re
import tokenize
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MIN_DOCUMENT_WORDS = 250
MAX_DOCUMENT_WORDS = 20_000
MIN_SUMMARY_WORDS = 10
MAX_SUMMARY_WORDS = 120
MAX_FILE_BYTES = 2 * 2**20
MAX_FILES_OF_PACKAGE = 250
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 6, 40

_UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
_SKIPPED_FOLDERS = {
    "__pycache__", "_vendor", "extern", "idle_test", "idlelib", "lib2to3", "pip", "pkg_resources", "setuptools",
    "site-packages", "dist-packages", "test", "tests", "testing", "turtledemo", "vendor", "vendored",
}  # fmt: skip
_SKIPPED_FILE = re.compile(r"^(test_.*|.*_tests?|conftest|.*_pb2|_sysconfigdata.*|__main__)\.py$")
_GENERATED = re.compile(r"\b(auto-?generated|generated (automatically|by)|do not edit)\b", re.IGNORECASE)

_HEADING = re.compile(
    r"^\s*(args|arguments|attributes|examples?|keyword arguments|methods|notes?|other parameters|parameters|params|"
    r"raises|references|returns|see also|usage|warnings?|yields)\s*:?\s*$",
    re.IGNORECASE,
)
_FIELD = re.compile(r"^\s*(:\w+[^:`]*:( |$)|@\w+|\.\. )")
_ROLE = re.compile(r":[\w:]+:`~?([^`<]+?)(?:\s*<[^`]*>)?`")
_UNDERLINE = re.compile(r"^\s*([=\-~^*#_+.])\1{2,}\s*$")
_SIGNATURE = re.compile(r"^[\w.]+\([^)]*\)\s*(->.*)?$")
_END_OF_SENTENCE = re.compile(r"(?<=[a-z)][.?!])\s+(?=[A-Z])")
_SENTENCE = re.compile(r"[A-Z][A-Za-z]*(?:[ ,;:'()-]+[A-Za-z]+)*[.?!]")


@dataclass(frozen=True)
class Document:
    """Code and its summary; ``name`` is the module, or the module and the class or function."""

    module: str
    name: str
    text: str
    summary: str


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


def read_module(module: tuple[str, Path]) -> list[Document] | None:
    """Read the documents of a module: itself, its classes, its long functions; None where it cannot be read."""
    name, path = module
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return None
        source = _read(path)
        if _GENERATED.search(source[:2000]) or len(source.split()) < MIN_DOCUMENT_WORDS:
            return []
        tree = _parse(source)
    except _UNREADABLE:
        return None
    return list(_documents(name, tree, source.split("\n")))


def _read(path: Path) -> str:
    with tokenize.open(path) as file:
        return file.read()


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _documents(module: str, tree: ast.Module, lines: list[str]) -> Iterator[Document]:
    nodes: list[tuple[str, ast.AST, int, int]] = [(module, tree, 1, len(lines))]
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            nodes.append((f"{module}.{node.name}", node, first, node.end_lineno))
    for name, node, first, last in nodes:
        docstring = _docstring(node, lines)
        if docstring is None:
            continue
        text = "\n".join([*lines[first - 1 : docstring.lineno - 1], *lines[docstring.end_lineno : last]])
        text = _strip_leading_comments(text).strip()
        summary = clean_summary(docstring.value.value)
        words = len(text.split())
        if MIN_DOCUMENT_WORDS <= words <= MAX_DOCUMENT_WORDS and len(summary.split()) >= MIN_SUMMARY_WORDS:
            yield Document(module, name, text, summary)


def _docstring(node: ast.AST, lines: list[str]) -> ast.Expr | None:
    """The statement that is a node's docstring, where its lines hold nothing else."""
    first = node.body[0] if node.body else None
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return None
    before = lines[first.lineno - 1].encode()[: first.col_offset]
    after = lines[first.end_lineno - 1].encode()[first.end_col_offset :]
    return first if not before.strip() and not after.split(b"#")[0].strip() else None


def _strip_leading_comments(text: str) -> str:
    lines = text.split("\n")
    start = next((k for k, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "\n".join(lines[start:])


def clean_summary(docstring: str) -> str:
    """Put the first paragraphs of prose of a docstring on one line, about MAX_SUMMARY_WORDS words.

    This leaves out signatures, headings, doctests, markup, and everything from a list of arguments on.
    """
    chosen: list[str] = []
    words = 0
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = paragraph.split("\n")
        if any(_HEADING.match(line) for line in lines[:1]) or _FIELD.match(lines[0]):
            break
        text = " ".join(" ".join(line for line in lines if not _UNDERLINE.match(line)).split())
        text = _ROLE.sub(r"\1", text).replace("``", "").replace("`", "")
        if not _is_prose(text, lines):
            continue
        if chosen and words + len(text.split()) > MAX_SUMMARY_WORDS:
            break
        chosen.append(text)
        words += len(text.split())
    return " ".join(" ".join(chosen).split()[:MAX_SUMMARY_WORDS])


def _is_prose(text: str, lines: list[str]) -> bool:
    if _SIGNATURE.match(text) or lines[0].startswith((" ", "\t", ">>>", "$", "|", "+-")):
        return False
    if len(lines) == 2 and _UNDERLINE.match(lines[1]):
        return False
    letters = sum(char.isalpha() or char == " " for char in text)
    return letters > 0.75 * len(text) and not any(map(_FIELD.match, lines))


def drop_duplicates(documents: Iterable[Document]) -> Iterator[Document]:
    """Leave out documents that repeat the summary, or most of the lines, of an earlier one."""
    summaries: set[str] = set()
    owners: dict[int, int] = {}
    for number, document in enumerate(documents):
        key = re.sub(r"\W+", " ", document.summary.lower()).strip()[:200]
        lines = {zlib.crc32(line.strip().encode()) for line in document.text.split("\n") if len(line.strip()) > 20}
        sketch = sorted(lines)[:16]
        shared = [owners[line] for line in sketch if line in owners]
        if key in summaries or any(2 * shared.count(owner) > len(sketch) for owner in set(shared)):
            continue
        summaries.add(key)
        for line in sketch:
            owners.setdefault(line, number)
        yield document


def read_prose(modules: Iterable[tuple[str, Path]]) -> list[list[str]]:
    """The sentences of every module that has any, in order; none is in the list twice.

    Args:
        modules: names and files, as :func:`find_modules` gives them.
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

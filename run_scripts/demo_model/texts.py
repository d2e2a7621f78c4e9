"""Text that the demo model is trained on beside made documents, and the tasks that are made of it.

The text is the prose of preprocess/facts.py, the functions of the standard library of the Python that runs this, and
Python's documentation where a folder of its sources is given (``*.rst`` or ``*.rst.txt``, as Debian's python3.11-doc
has them in ``html/_sources``). One module and one file in ten is held out.
"""

from __future__ import annotations

import ast
import inspect
import platform
import re
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from fairseq_poolingformer.preprocess.facts import find_modules, read_sentences

from fairseq_poolingformer.preprocess import facts
from fairseq_poolingformer.text.dictionary import UNK
from fairseq_poolingformer.text.tokenizers import Tokenizer

RESTORE = "Restore what is left out."  # each task opens its sources by saying what it is
TITLE = "Give this section its title."
EXPLAIN = "Say what this code does."
GAP = UNK  # stands for what is left out; no text has it
GAPS, GAP_TOKENS = 0.3, 3  # the share of tokens left out, and how many at a time on average
PASSAGE = 100  # tokens that are restored
SECTION_WORDS = (20, 220)  # fewer have no title of their own; more are cut
CODE_LINES = (3, 40)
MAX_SUMMARY_WORDS = 120
COMMON = 3  # a title that more sections have, such as "Examples", says nothing of them

_MARKUP = (  # reStructuredText, and what remains of it
    (re.compile(r":[\w:+-]+:`(?:!|~(?:\w+\.)*)?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{1,2}"), r"\1"),
    (re.compile(r"\[[#\w]*\]_"), ""),
    (re.compile(r"``|`_{0,2}|\*\*|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)|\\(?=\W)"), ""),
    (re.compile(r"::$"), ":"),
    (re.compile(r"\s+"), " "),
)
_UNDERLINE = re.compile(r"([=\-~^*#+\"'.:])\1{2,}\s*")
_DIRECTIVE = re.compile(r"\.\. +[\w:-]+::|\.\. ")
_KEPT = re.compile(r"\.\. +(note|warning|seealso|tip|c?function|method|class|data|attribute|exception)::")
_LIST = re.compile(r"^([*+-]|#\.|\d+\.) +")
_END_OF_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_ARGUMENTS = re.compile(
    r"^\s*(args|arguments|attributes|examples?|keyword arguments|methods|notes?|other parameters|parameters|params|"
    r"raises|references|returns|see also|usage|warnings?|yields)\s*:?\s*$",
    re.IGNORECASE,
)
_FIELD = re.compile(r"^\s*(:\w+[^:`]*:( |$)|@\w+|\.\. )")
_ROLE = re.compile(r":[\w:]+:`~?([^`<]+?)(?:\s*<[^`]*>)?`")
_RULED = re.compile(r"^\s*([=\-~^*#_+.])\1{2,}\s*$")
_SIGNATURE = re.compile(r"^[\w.]+\([^)]*\)\s*(->.*)?$")


@dataclass(frozen=True)
class Texts:
    """The texts of the tasks.

    Attributes:
        prose: for each source its sentences or paragraphs, in order.
        sections: titles and texts.
        functions: first sentences of docstrings, and the code without the docstring.
        description: how much it is and where it is from.
    """

    prose: list[list[str]]
    sections: list[tuple[str, str]]
    functions: list[tuple[str, str]]
    description: str

    @classmethod
    def read(cls, documentation: Path | None, is_held_out: bool) -> Texts:
        """The texts that are held out, or the others."""
        root = Path(sysconfig.get_path("stdlib"))
        modules = [module for module in find_modules(root) if facts.is_held_out(module[0]) == is_held_out]
        prose, sections = [read_sentences(is_held_out)], []
        for name, text in _documents(documentation) if documentation else ():
            if facts.is_held_out(name) == is_held_out:
                found = read_sections(text)
                prose.append([paragraph for _, paragraphs in found for paragraph in paragraphs])
                sections += [(title, " ".join(paragraphs)) for title, paragraphs in found]
        counts = Counter(title for title, _ in sections)
        sections = [
            (title, " ".join(text.split()[: SECTION_WORDS[1]]))
            for title, text in sections
            if counts[title] <= COMMON and len(text.split()) >= SECTION_WORDS[0] and len(title.split()) <= 12
        ]
        functions = [function for _, path in modules for function in read_functions(path)]
        words = sum(len(sentence.split()) for source in prose for sentence in source)
        origin = f"the standard library of Python {platform.python_version()}"
        origin += f" and {documentation}" if documentation else ""
        description = f"{words:,} words of prose, {len(sections):,} sections, {len(functions):,} functions of {origin}"
        return cls([source for source in prose if source], sections, functions, description)

    def tasks(self, shares: dict[str, int]) -> dict[str, int]:
        """The shares of the tasks that there is text for."""
        found = {"restore": self.prose, "title": self.sections, "explain": self.functions}
        return {task: share for task, share in shares.items() if found[task]}


def clean_summary(docstring: str) -> str:
    """Put the first paragraphs of prose of a docstring on one line, about MAX_SUMMARY_WORDS words.

    This leaves out signatures, headings, doctests, markup, and everything from a list of arguments on.
    """
    chosen: list[str] = []
    words = 0
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = paragraph.split("\n")
        if any(_ARGUMENTS.match(line) for line in lines[:1]) or _FIELD.match(lines[0]):
            break
        text = " ".join(" ".join(line for line in lines if not _RULED.match(line)).split())
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
    if len(lines) == 2 and _RULED.match(lines[1]):
        return False
    letters = sum(char.isalpha() or char == " " for char in text)
    return letters > 0.75 * len(text) and not any(map(_FIELD.match, lines))


def _documents(folder: Path) -> Iterator[tuple[str, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.name.endswith((".rst", ".rst.txt")))
    if not paths:
        raise FileNotFoundError(f"{folder}: no *.rst or *.rst.txt; name the folder of the documentation's sources")
    for path in paths:
        yield str(path.relative_to(folder)).removesuffix(".txt"), path.read_text(encoding="utf-8", errors="replace")


def read_sections(text: str) -> list[tuple[str, list[str]]]:
    """The titles and the paragraphs of prose of a file in reStructuredText, without code, tables and directives."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    code = -1  # the indentation of what announced a block of code, which is indented further; -1: there is none
    for block in _blocks(text.splitlines()):
        if isinstance(block, str):
            sections.append((plain(block), []))
            code = -1
            continue
        indent = len(block[0]) - len(block[0].lstrip())
        if 0 <= code < indent:
            continue
        code = -1
        if _DIRECTIVE.match(block[0].lstrip()):
            code = -1 if _KEPT.match(block[0].lstrip()) else indent
            block = [line for line in block[1:] if code < 0 and not line.lstrip().startswith(":")]
        elif block[-1].endswith("::"):
            code = indent
        paragraph = plain(" ".join(_LIST.sub("", line.strip(), count=1) for line in block))
        letters = sum(char.isalpha() or char == " " for char in paragraph)
        if len(paragraph.split()) >= 6 and letters > 0.85 * len(paragraph) and "  " not in block[0].strip():
            sections[-1][1].append(paragraph)
    return [section for section in sections if section[0] and section[1]]


def _blocks(lines: list[str]) -> Iterator[str | list[str]]:
    """Titles, as strings, and what is between blank lines, as lists of lines."""
    block: list[str] = []
    for number, line in enumerate([*lines, ""]):
        after = lines[number + 1] if number + 1 < len(lines) else ""
        is_title = bool(line.strip()) and not line[0].isspace() and _UNDERLINE.fullmatch(after) is not None
        if is_title and not _UNDERLINE.fullmatch(line) and len(after) >= len(line.rstrip()) and not block:
            yield line.strip()
        elif line.strip() and not _UNDERLINE.fullmatch(line):
            block.append(line)
        elif block:
            yield block
            block = []


def plain(text: str) -> str:
    """Text without the marks of reStructuredText."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


def read_functions(path: Path) -> Iterator[tuple[str, str]]:
    """First sentences of docstrings and the code without them, of the functions and methods of a module."""
    try:
        with tokenize.open(path) as file:
            source = file.read()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in ast.walk(tree):
        docstring = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
        if not docstring or node.body[0].lineno == node.lineno:
            continue
        sentence = _END_OF_SENTENCE.split(clean_summary(docstring))[0]
        code = [*lines[node.lineno - 1 : node.body[0].lineno - 1], *lines[node.body[0].end_lineno : node.end_lineno]]
        code = [line for line in code if line.strip()]
        if 4 <= len(sentence.split()) <= 30 and len(code) >= CODE_LINES[0]:
            yield sentence, "\n".join(code[: CODE_LINES[1]])


def instructed(instruction: str, text: str) -> str:
    """The source of a task's example."""
    return f"{instruction}\n{text}"


def draw_passage(prose: Sequence[Sequence[str]], tokenizer: Tokenizer, rng: Random) -> np.ndarray:
    """The tokens of sentences that follow each other, at most ``PASSAGE`` of them."""
    # a source of many sentences is drawn as often as that
    source = prose[rng.choices(range(len(prose)), cum_weights=np.cumsum([len(source) for source in prose]))[0]]
    first, tokens = rng.randrange(len(source)), np.zeros(0, dtype=np.int64)
    wanted = rng.randint(PASSAGE // 4, PASSAGE)
    for sentence in source[first:]:
        tokens = np.append(tokens, tokenizer.encode(sentence))
        if len(tokens) >= wanted:
            break
    return tokens[:wanted]


def leave_out(tokens: np.ndarray, rng: Random) -> tuple[list[int], list[int]]:
    """Tokens with some left out, and for each of the given ones its place among them, else -1.

    As BART's text infilling: a gap, of any length, is one symbol.
    """
    kept = np.ones(len(tokens), dtype=bool)
    while (~kept).mean() < GAPS:
        start = rng.randrange(len(tokens))
        kept[start : start + max(1, round(rng.expovariate(1 / GAP_TOKENS)))] = False
    left, places = [], []
    for token, is_kept in zip(tokens.tolist(), kept.tolist(), strict=True):
        if is_kept:
            places.append(len(left))
            left.append(token)
        else:
            places.append(-1)
            if not left or left[-1] != GAP:
                left.append(GAP)
    return left, places

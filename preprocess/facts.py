"""Made documents as a summarization corpus: five facts scattered in real prose, no download.

A document is a file of papers. Each opens by saying whether it is the register, which is right, or gossip, which is
not; facts are scattered in its prose, sentences of the standard library's docstrings that Python 3.10 to 3.13 share, so
that all make the same documents. Valid and test have other names and prose than train, so that a right summary of
theirs was read and not remembered.
"""

import argparse
import ast
import functools
import hashlib
import json
import logging
import re
import sysconfig
import tokenize
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fairseq_poolingformer.options import natural

from .pipeline import command
from .pipeline.records import Record, pack, unpack
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords

DEFAULT_VOCABULARY = 2000
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 6, 40
PROSE = Path(__file__).with_name("prose.txt")
DIGITS = 8  # of a sentence's digest in prose.txt

logger = logging.getLogger("preprocess")

_LIBRARY = Path(sysconfig.get_path("stdlib"))
_UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
_SKIPPED_FOLDERS = {
    "__pycache__", "_vendor", "extern", "idle_test", "idlelib", "lib2to3", "pip", "pkg_resources", "setuptools",
    "site-packages", "dist-packages", "test", "tests", "testing", "turtledemo", "vendor", "vendored",
}  # fmt: skip
_SKIPPED_FILE = re.compile(r"^(test_.*|.*_tests?|conftest|.*_pb2|_sysconfigdata.*|__main__)\.py$")

_END_OF_SENTENCE = re.compile(r"(?<=[a-z)][.?!])\s+(?=[A-Z])")
_SENTENCE = re.compile(r"[A-Z][A-Za-z]*(?:[ ,;:'()-]+[A-Za-z]+)*[.?!]")

_ONSETS = (
    "B", "Br", "C", "D", "Dr", "F", "G", "Gl", "H", "K", "Kr", "L", "M", "N", "P", "Pl", "R", "S", "St", "T", "Tr", "V",
    "Z",
)  # fmt: skip
_MIDDLES = ("al", "an", "ar", "ed", "el", "en", "er", "il", "in", "ir", "ol", "on", "or", "ul", "un")
_ENDS = (
    "ba", "bra", "da", "do", "ga", "gar", "ka", "kin", "la", "len", "ma", "mon", "na", "nis", "ra", "rik", "sa", "sel",
    "ta", "tov", "va", "vin", "za",
)  # fmt: skip
_TOWNS = (
    "bridge", "bury", "church", "field", "ford", "ham", "haven", "holm", "mouth", "port", "stead", "ton", "well",
    "wick", "wood",
)  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
KINDS = (
    "academy", "archive", "chapel", "clinic", "college", "garden", "harbour", "library", "mill", "museum", "school",
    "theatre",
)  # fmt: skip

WORDINGS = {  # of a fact; {} is its value
    "place": ("The {kind} is in {}.", "It lies in {}.", "You find it in {}.", "The {kind} stands in the town of {}."),
    "leader": ("The {kind} is led by {}.", "{} leads it.", "At its head is {}.", "The {kind} has {} for its head."),
    "builder": ("The {kind} was built by {}.", "{} built it.", "Its walls were built by {}.", "{} paid for the walls."),
    "month": (
        "The {kind} opens in {}.",
        "Its doors open in {}.",
        "It is open to all from {} on.",
        "{} is when it opens.",
    ),
    "rooms": (
        "The {kind} has {} rooms.",
        "It has {} rooms in all.",
        "Its rooms number {}.",
        "There are {} rooms in it.",
    ),
}
SUMMARIES = {
    "place": "It is in {}.",
    "leader": "It is led by {}.",
    "builder": "It was built by {}.",
    "month": "It opens in {}.",
    "rooms": "It has {} rooms.",
}
FIELDS = tuple(WORDINGS)
REGISTER = ("The register says this.", "So it is written in the register.", "This is out of the register.")
GOSSIP = ("The gossip is this.", "So people tell it in the street.", "This is what gossip makes of it.")


@dataclass(frozen=True)
class Shape:
    """The form of the documents."""

    words: tuple[int, int] = (300, 2200)  # the fewest and the most words of prose
    fields: tuple[int, int] = (5, 5)  # how many facts, the fewest and the most
    papers: tuple[int, int] = (6, 14)  # how many papers, the fewest and the most; at least two where there is gossip
    gossip: float = 1.0  # the share of the facts about which there is gossip, too


@dataclass(frozen=True)
class FactDocument:
    """A made document."""

    text: str
    summary: str  # what it says, in one sentence a fact
    facts: dict[str, str]  # the right values by field
    stated: dict[str, str]  # the sentences of the text that state them, by field


def held_out(word: str) -> bool:
    """Whether a name is for documents that no model has been trained on: one in five."""
    return zlib.crc32(word.encode()) % 5 == 0


class DocumentMaker:
    """Makes documents."""

    def __init__(self, sentences: Sequence[str], names_held_out: bool, shape: Shape) -> None:
        self.sentences, self.names_held_out, self.shape = sentences, names_held_out, shape

    def make(self, rng: Random) -> FactDocument:
        """A document; the same one from a generator in the same state."""
        shape = self.shape
        kind, name = rng.choice(KINDS), self._name(rng)
        fields = sorted(rng.sample(FIELDS, rng.randint(*shape.fields)), key=FIELDS.index)
        facts = {field: self._value(field, rng) for field in fields}
        gossip = {field: self._value(field, rng) for field in fields if rng.random() < shape.gossip}
        prose = self._prose(rng.randint(*shape.words), rng)
        stated, told = (
            {field: rng.choice(WORDINGS[field]).format(value, kind=kind) for field, value in values.items()}
            for values in (facts, gossip)
        )
        papers = self._papers(list(stated.values()), list(told.values()), rng)
        cuts = sorted(rng.randint(0, len(prose)) for _ in papers[1:])
        text = [f"These are papers on the {name} {kind}."]
        for (heading, sentences), first, last in zip(papers, [0, *cuts], [*cuts, len(prose)], strict=True):
            text.append(" ".join([heading, *_scatter(sentences, prose[first:last], rng)]))
        summary = [f"The {name} {kind}.", *(SUMMARIES[field].format(value) for field, value in facts.items())]
        return FactDocument("\n".join(text), " ".join(summary), facts, stated)

    def _papers(self, stated: list[str], told: list[str], rng: Random) -> list[tuple[str, list[str]]]:
        """For each paper its heading and its share of what the register states or of what gossip tells."""
        count = rng.randint(*self.shape.papers)
        is_gossip = [bool(told) and rng.random() < 0.5 for _ in range(count)]
        if told:
            is_gossip[:2] = [True, False]
            rng.shuffle(is_gossip)
        papers: list[tuple[str, list[str]]] = [(rng.choice(GOSSIP if false else REGISTER), []) for false in is_gossip]
        for sentences, wanted in ((stated, False), (told, True)):
            chosen = [paper for paper, false in zip(papers, is_gossip, strict=True) if false == wanted]
            for sentence in sentences:
                rng.choice(chosen)[1].append(sentence)
        for _, sentences in papers:
            rng.shuffle(sentences)
        return papers

    def _prose(self, words: int, rng: Random) -> list[str]:
        """Sentences that follow each other in the sources, from a random one on, of about so many words."""
        chosen: list[str] = []
        position = rng.randrange(len(self.sentences))
        while words > 0:
            sentence = self.sentences[position % len(self.sentences)]
            chosen.append(sentence)
            words -= len(sentence.split())
            position += 1 if rng.random() < 0.8 else rng.randrange(len(self.sentences))
        return chosen

    def _value(self, field: str, rng: Random) -> str:
        if field == "place":
            return self._name(rng, _TOWNS)
        if field in ("leader", "builder"):
            return f"{self._name(rng)} {self._name(rng)}"
        return rng.choice(_MONTHS) if field == "month" else f"{rng.choice(_TENS)}-{rng.choice(_ONES)}"

    def _name(self, rng: Random, ends: Sequence[str] = _ENDS) -> str:
        while True:
            name = rng.choice(_ONSETS) + rng.choice(_MIDDLES) + rng.choice(ends)
            if held_out(name) == self.names_held_out:
                return name


def _scatter(stated: list[str], prose: list[str], rng: Random) -> list[str]:
    """The sentences of ``stated`` at random places in the prose, in their order."""
    places = sorted(rng.randint(0, len(prose)) for _ in stated)
    text = list(prose)
    for place, sentence in zip(reversed(places), reversed(stated), strict=True):
        text.insert(place, sentence)
    return text


def make_corpus(args: argparse.Namespace) -> Corpus:
    """The corpus that the command line asks for."""
    shape = Shape(words=_range("--words", args.words, 0), papers=_range("--papers", args.papers, 2))
    counts = {"train": args.train, "valid": args.valid, "test": args.test}
    prose = {is_held_out: read_sentences(is_held_out) for is_held_out in (False, True)}
    splits = {}
    for split, count in counts.items():
        is_held_out = split != "train"
        maker = DocumentMaker(prose[is_held_out], is_held_out, shape)
        records = list(make_records(maker, split, count, args.seed))
        splits[split] = SplitRecords.of_records(records)
    papers = {} if shape.papers == Shape.papers else {"papers": args.papers}  # folders from before the flag stay whole
    return Corpus(
        name="facts",
        splits=splits,
        parse=unpack,
        settings={"counts": counts, "words": args.words, "seed": args.seed} | papers,
        inputs={"prose": digest(json.dumps(list(prose.values())))},
    )


def _range(flag: str, numbers: list[int], least: int) -> tuple[int, int]:
    """The fewest and the most; raises ValueError where they are not in order."""
    fewest, most = numbers
    if not least <= fewest <= most:
        raise ValueError(f"{flag} {fewest} {most}: MIN must be {least} or more, and MAX no less than MIN")
    return fewest, most


def make_records(maker: DocumentMaker, split: str, count: int, seed: int) -> Iterator[Record]:
    """``count`` documents, each from a random generator of its own."""
    for number in range(count):
        name = f"{split}-{number}"
        document = maker.make(Random(f"{seed} {name}"))
        yield pack(name, document.text, document.summary)


def read_sentences(from_held_out: bool) -> list[str]:
    """The sentences of prose.txt in its order: those of docstrings that the libraries of Python 3.10 to 3.13 share.

    Where this Python lacks some, the next that it has stands in, so that other documents stay as they are.
    """
    digests = PROSE.read_text(encoding="ascii").split("\n\n")[from_held_out].split()
    library = _library()
    missing = sum(name not in library for name in digests)
    if 2 * missing > len(digests):
        raise ValueError(f"{_LIBRARY} has too few sources with docstrings to take prose from")
    if missing:
        lacking = "%s of the %s sentences of prose are not in %s, and other sentences stand in for them"
        logger.warning(lacking, missing, len(digests), _LIBRARY)
    sentences, following = [], next(library[name] for name in digests if name in library)  # also follows the last
    for name in reversed(digests):
        following = library.get(name, following)
        sentences.append(following)
    return sentences[::-1]


@functools.cache
def _library() -> dict[str, str]:
    """The sentences of the standard library's docstrings by their digests in prose.txt."""
    sentences = (sentence for _, path in find_modules(_LIBRARY) for sentence in read_prose(path))
    return {digest(sentence)[:DIGITS]: sentence for sentence in sentences}


def find_modules(root: Path) -> list[tuple[str, Path]]:
    """Find names and files of the modules under a folder, sorted."""
    modules = []
    for path in root.rglob("*.py"):
        folders = path.relative_to(root).parts[:-1]
        if _SKIPPED_FOLDERS.intersection(folders) or _SKIPPED_FILE.match(path.name):
            continue
        names = [*folders, *([] if path.stem == "__init__" else [path.stem])]
        if names and all(name.isidentifier() for name in names):
            modules.append((".".join(names), path))
    return sorted(modules)


def digest(text: str) -> str:
    """Hash a text; the result is the same on every machine."""
    return hashlib.sha1(text.encode("utf-8", "replace")).hexdigest()


def is_held_out(name: str) -> bool:
    """Whether a source is one of those, one in ten by name, that no model is trained on."""
    return int(digest(name), 16) % 10 == 0


def read_prose(path: Path) -> Iterator[str]:
    """The sentences of a module's docstrings."""
    for docstring in _docstrings(path):
        for paragraph in re.split(r"\n\s*\n", docstring):
            for sentence in _END_OF_SENTENCE.split(" ".join(paragraph.split())):
                if _SENTENCE.fullmatch(sentence) and MIN_SENTENCE_WORDS <= len(sentence.split()) <= MAX_SENTENCE_WORDS:
                    yield sentence


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read())
    except _UNREADABLE:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("facts", __doc__, DEFAULT_VOCABULARY)
    made = parser.add_argument_group("documents")
    for split, count in (("train", 2000), ("valid", 100), ("test", 200)):
        command.add_number(made, f"--{split}", count, "how many", kind=natural)
    text = "words of prose of a document, the fewest and the most (default: 300 2000)"
    made.add_argument("--words", metavar=("MIN", "MAX"), nargs=2, type=int, default=[300, 2000], help=text)
    text = "papers of a document; fewer are longer, and their facts farther from what says whether they are right "
    text += "(default: 6 14)"
    made.add_argument("--papers", metavar=("MIN", "MAX"), nargs=2, type=int, default=list(Shape.papers), help=text)
    command.add_number(made, "--seed", 1, "another seed, other documents", kind=int)
    return parser


main = command.main_of(__name__, make_parser, make_corpus)

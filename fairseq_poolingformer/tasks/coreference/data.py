"""OntoNotes' coreference: the column format of CoNLL-2012 (``*_gold_conll``), and its documents cut into segments.

A file holds documents, and a long document is cut into parts that are annotated each for itself; a part counts as a
document everywhere here. Each line between ``#begin document (bc/cctv/00/cctv_0000); part 000`` and ``#end document``
is a word, and a blank line ends a sentence. The columns: document, part, number of the word in its sentence, word, part
of speech, parse, lemma, frame, sense, speaker, named entity, any number of predicates' arguments; the last one has the
mentions: ``(5`` begins one of the entity 5, ``5)`` ends it, ``(5)`` is one word, and ``|`` separates several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import WordExamples, WordSplit
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import refuse

Mention = tuple[int, int]  # half-open, in words of the document

WORD_COLUMN, SPEAKER_COLUMN = 3, 9
RELEASED_COLUMNS = 12  # at least, in a released file: documents without predicates have no arguments
SCORED_COLUMNS = 2  # at least, in files that are only scored: the official scorer reads nothing but the last one
NO_MENTION = ("-", "_")
_BEGIN = re.compile(r"#\s*begin document (.*)")
_END = re.compile(r"#\s*end document\b")
_NAME = re.compile(r"\((.+)\)(?:; *part (\d+))?;?")
_BRACKET = re.compile(r"\((\d+)\)|\((\d+)|(\d+)\)")
_BRACKETS = re.compile(rf"(?:{_BRACKET.pattern})(?:\|?(?:{_BRACKET.pattern}))*")
_BLANKS = re.compile(r"[ \t]+")  # others, such as no-break spaces, may be in a word


@dataclass(frozen=True)
class RawDocument:
    """The lines of a document that is not parsed yet, without their ends, and the first one's number in its file."""

    lines: list[str]
    first_line: int


@dataclass(frozen=True)
class ConllDocument:
    """A document, or one part of it."""

    name: str  # what follows ``#begin document``, such as ``(bc/cctv/00/cctv_0000); part 000``
    words: tuple[str, ...]  # its words
    speakers: tuple[str, ...]  # who says each word; ``-`` where nobody is named
    sentences: tuple[int, ...]  # words of each sentence
    clusters: tuple[tuple[Mention, ...], ...]  # the mentions of each entity, in the order in which they end


def split_documents(lines: Iterable[str]) -> Iterator[RawDocument]:
    """Cut a file's lines into documents; :func:`parse_document` refuses what lacks an end, or lies in none."""
    lines_read: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        begins = _BEGIN.match(line) is not None
        if lines_read and begins:
            yield RawDocument(lines_read, first)
            lines_read = []
        if lines_read or begins or (line.strip() and not line.startswith("#")):
            first = first if lines_read else number
            lines_read.append(line)
        if lines_read and _END.match(line):
            yield RawDocument(lines_read, first)
            lines_read = []
    if lines_read:
        yield RawDocument(lines_read, first)


def parse_document(raw: RawDocument, columns: int = RELEASED_COLUMNS, annotated: bool = True) -> ConllDocument:
    """Parse a document; of two crossing mentions of an entity, the last to begin ends first, as officially."""
    name = _name(raw)
    words, speakers, sentences = [], [], [0]
    clusters: dict[str, list[Mention]] = {}
    opened: dict[str, list[tuple[int, int]]] = {}  # of each entity: first word and line of mentions not yet ended
    for number, line in enumerate(raw.lines[1:-1], raw.first_line + 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            sentences.append(0)
            continue
        cells = _BLANKS.split(line.strip(" \t"))
        if len(cells) < columns:
            raise BadLine(f"too few columns: line {number} has {len(cells)}, and the format at least {columns}")
        if annotated:
            _read_brackets(cells[-1], len(words), number, clusters, opened)
        words.append(cells[WORD_COLUMN] if len(cells) > WORD_COLUMN + 1 else "-")
        speakers.append(cells[SPEAKER_COLUMN] if len(cells) >= RELEASED_COLUMNS else "-")
        sentences[-1] += 1
    for entity, begun in opened.items():
        if begun:
            raise BadLine(f"unbalanced bracket: ({entity} of line {begun[-1][1]} is never closed")
    if not words:
        raise BadLine(f"empty document: no word after line {raw.first_line}")
    mentions = tuple(tuple(cluster) for cluster in clusters.values() if cluster)
    return ConllDocument(name, tuple(words), tuple(speakers), tuple(filter(None, sentences)), mentions)


def _name(raw: RawDocument) -> str:
    begin = _BEGIN.match(raw.lines[0])
    if begin is None:
        raise BadLine(f"text outside of a document: line {raw.first_line} follows no #begin document")
    if len(raw.lines) == 1 or not _END.match(raw.lines[-1]):
        raise BadLine(f"no end: the document that begins in line {raw.first_line} has no #end document")
    name = begin[1].strip()
    if not _NAME.fullmatch(name):
        raise BadLine(f"no name: line {raw.first_line} must read #begin document (NAME); part NUMBER")
    return name


def _read_brackets(
    cell: str, word: int, line: int, clusters: dict[str, list[Mention]], opened: dict[str, list[tuple[int, int]]]
) -> None:
    """Add what a word's last column begins and ends, in the official scorer's order: whole ones, beginnings, ends."""
    # the order decides which of two mentions with the same words counts
    if cell in NO_MENTION:
        return
    if not _BRACKETS.fullmatch(cell):
        raise BadLine(f"no mentions: the last column of line {line} is {cell!r}, not - or such as (5|(7)|3)")
    brackets = list(_BRACKET.finditer(cell))
    for whole in filter(None, (match[1] for match in brackets)):
        clusters.setdefault(whole, []).append((word, word + 1))
    for begun in filter(None, (match[2] for match in brackets)):
        clusters.setdefault(begun, [])
        opened.setdefault(begun, []).append((word, line))
    for ended in filter(None, (match[3] for match in brackets)):
        if not opened.get(ended):
            raise BadLine(f"unbalanced bracket: {ended}) in line {line} closes nothing")
        clusters[ended].append((opened[ended].pop()[0], word + 1))


def document_and_part(name: str) -> tuple[str, int]:
    """The first two columns of a document's lines: ``bc/cctv/00/cctv_0000`` and 0."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"name must read (NAME); part NUMBER, got {name!r}")
    return match[1], int(match[2] or 0)


def write_document(
    name: str,
    words: Sequence[str],
    sentences: Sequence[int],
    clusters: Sequence[Sequence[Mention]],
    speakers: Sequence[str] | None = None,
) -> Iterator[str]:
    """Make the lines of a document, ``-`` or ``*`` in columns not needed; mentions of an entity must not cross."""
    document, part = document_and_part(name)
    cells = _brackets(len(words), clusters)
    yield f"#begin document {name}"
    word = 0
    for size in sentences:
        for number in range(size):
            speaker = speakers[word] if speakers else "-"
            columns = (document, part, number, words[word], "-", "*", "-", "-", "-", speaker, "*", cells[word])
            yield "\t".join(map(str, columns))
            word += 1
        yield ""
    yield "#end document"


def _brackets(size: int, clusters: Sequence[Sequence[Mention]]) -> list[str]:
    """The last column of every word."""
    ends: list[list[str]] = [[] for _ in range(size)]
    wholes: list[list[str]] = [[] for _ in range(size)]
    starts: list[list[str]] = [[] for _ in range(size)]
    for entity, cluster in enumerate(clusters):
        # the mention that begins first closes last
        for start, end in sorted(cluster, key=lambda mention: (mention[0], -mention[1])):
            if end - start == 1:
                wholes[start].append(f"({entity})")
            else:
                starts[start].append(f"({entity}")
                ends[end - 1].append(f"{entity})")
    return ["|".join((*starts[word], *wholes[word], *ends[word])) or NO_MENTION[0] for word in range(size)]


MENTION_COLUMNS = ("first_word", "end_word", "cluster")
# of OntoNotes: broadcast conversation, broadcast news, magazines, newswire, the Bible, telephone, the web
GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")
_GENRE = re.compile(rf"\(({'|'.join(GENRES)})/")


@dataclass(frozen=True)
class CoreferenceSplit(WordSplit):
    """One split; every field has one sequence for each document."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer preprocess ontonotes",
        ids=("document",),
        numbers=("word", "sentence", "speaker", "mention"),
        texts=("id", "words", "notes"),
    )
    speaker: Sequences  # of each word, numbered in the document from 0
    mention: Sequences  # rows of :data:`MENTION_COLUMNS`, as the corpus has them; clusters count from 1

    def check(self) -> None:
        super().check()
        refuse(self.speaker, self.speaker.sizes != self.word.sizes, "not one speaker for each word")
        refuse(self.mention, self.mention.sizes % len(MENTION_COLUMNS) != 0, "not rows of three numbers")

    def mentions(self, example: int) -> np.ndarray:
        """(M, 3) the mentions of a document."""
        return self.mention[example].reshape(-1, len(MENTION_COLUMNS)).astype(np.int64)


def genre_of(name: str) -> int:
    """The number of a document's genre in :data:`GENRES`, from 1; 0 where its name says none of them."""
    match = _GENRE.match(name)
    return GENRES.index(match[1]) + 1 if match else 0


class CoreferenceExamples(WordExamples):
    """Documents of a split, without mentions outside the stretch read; no token is global (Longformer, appendix D)."""

    def __init__(self, split: CoreferenceSplit, names: Sequence[str], *args: Any, **options: Any) -> None:
        super().__init__(split, *args, **options)
        self.names = names

    def inputs(self, example: int) -> dict[str, int | np.ndarray]:
        """Further arguments of :class:`~fairseq_poolingformer.tasks.coreference.head.CoreferenceHead`."""
        borders = self._stretch(example)
        starts, ends = self._word_borders(example)
        first, end = self._words(example)
        sentences = np.repeat(np.arange(len(self.split.sentence[example])), self.split.sentence[example])
        return {
            "segment_sizes": np.diff(borders),
            "word_starts": np.maximum(starts[first:end] - borders[0], 0),
            "word_ends": np.minimum(ends[first:end], borders[-1]) - borders[0],
            "sentences": sentences[first:end],
            "speakers": self.split.speaker[example][first:end].astype(np.int64),
            "genre": genre_of(self.names[example]),
        }

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        """The mentions, (M, 3): start and end in words, and the entity, from 1."""
        first, end = self._words(example)
        mentions = merge_clusters(self.split.mentions(example))
        mentions = mentions[(mentions[:, 0] >= first) & (mentions[:, 1] <= end)]
        return {"mentions": mentions - [first, first, 0]}

    def _words(self, example: int) -> tuple[int, int]:
        """The words of which this epoch reads a piece at least, half-open."""
        borders = self._stretch(example)
        starts, ends = self._word_borders(example)
        return int(np.searchsorted(ends, borders[0], side="right")), int(np.searchsorted(starts, borders[-1]))


def merge_clusters(mentions: np.ndarray) -> np.ndarray:
    """Make one entity of those that have a mention in common, since a span has one entity in training."""
    joined: dict[int, int] = {}

    def root(entity: int) -> int:
        while joined.setdefault(entity, entity) != entity:
            entity = joined[entity]
        return entity

    entity_of: dict[tuple[int, int], int] = {}
    for start, end, entity in mentions.tolist():
        other = entity_of.setdefault((start, end), entity)
        joined[root(entity)] = root(other)
    numbers: dict[int, int] = {}
    rows = [(*span, numbers.setdefault(root(entity), len(numbers) + 1)) for span, entity in entity_of.items()]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)

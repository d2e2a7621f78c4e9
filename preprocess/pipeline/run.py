"""From raw records to a data folder that fairseq trains on: records -> parts -> data folder -> report.

A corpus gives an iterator of raw records for each split, and a pure function from a record to an example, a reject, or
a skipped record.
"""

import argparse
import importlib.metadata
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.data_folder import DataFolder, Layout

from . import data_folder
from .data_folder import SplitResult
from .encode import encode_texts
from .parts import Encode, Encoding, encode_split, mark_finished
from .records import Parse
from .report import (
    Made,
    Table,
    contradictions,
    labels_alike,
    length_table,
    progress,
    shared_documents,
    shared_files,
    unseen_tokens,
)
from .splits import SplitRecords
from .tokenized import control_characters, tokenized_splits

logger = logging.getLogger("preprocess")

FORMAT = 2  # of the data folder; raise it when its content changes for the same input


@dataclass(frozen=True)
class Corpus:
    """A corpus before it is binarized."""

    name: str  # the corpus's name on the command line and in ``corpus.json``
    splits: Mapping[str, SplitRecords]  # train, valid, test, or some of them
    parse: Parse  # record to example, reject or skipped record; a pure function that can be pickled
    # everything that decides the records and what ``parse`` makes of them, as JSON values
    settings: Mapping[str, object]
    inputs: object  # identifies the input, as JSON values
    layout: Layout = PAIRS  # the files of the data folder
    # example to the layout's arrays and texts, or a reject; a pure function that can be pickled
    encode: Encode = encode_texts
    # further entries of ``corpus.json``; with ``settings`` they decide what ``encode`` does
    entries: Mapping[str, object] = field(default_factory=dict)
    table: Table = length_table  # writes the table of the corpus
    unique_ids: bool = False  # whether an id that a split has had already makes a record a reject


@dataclass(frozen=True)
class TokenizerChoice:
    """How to get the tokenizer."""

    settings: dict[str, object]  # everything that decides what ``make`` makes, as JSON values
    make: Callable[[Path], None]  # puts ``tokenizer/`` into the folder that it is called with


def run(corpus: Corpus, tokenizer: TokenizerChoice, args: argparse.Namespace) -> str:
    """Make the data folder of a corpus."""
    work = Work(corpus, tokenizer, args)
    text = work.table_of_finished()  # also where the folder is read-only
    if not text:
        with data_folder.locked(args.output_folder):
            text = work.table_of_finished() or work.make()
    return text


class Work:
    """The way from a corpus to its data folder."""

    def __init__(self, corpus: Corpus, tokenizer: TokenizerChoice, args: argparse.Namespace) -> None:
        self._corpus, self._tokenizer, self._args = corpus, tokenizer, args
        self._folder = DataFolder(args.output_folder, corpus.layout)
        self._settings = {
            "format": FORMAT,
            "corpus": corpus.name,
            "settings": corpus.settings,
            "inputs": corpus.inputs,
            "tokenizer": tokenizer.settings,
            **corpus.entries,
        }
        self._limit = {"limit": args.limit}

    def table_of_finished(self) -> str | None:
        """The table of a folder that already holds this very corpus; None where it does not."""
        written = data_folder.finished(self._folder, self._settings | self._limit, self._args.overwrite)
        if not written:
            return None
        logger.info("%s is up to date", self._folder.path)
        return "\n".join([self._table(written["rejects"]), *written["warnings"]])

    def open(self) -> str:
        """Open the folder of unfinished work, and make the tokenizer; return its fingerprint."""
        parts_path = self._folder.parts_path
        data_folder.open_parts(parts_path, self._settings)
        for line in shared_files(self._corpus.inputs):
            logger.warning("%s", line)
        return data_folder.made_tokenizer(parts_path, self._tokenizer.make)

    def files(self) -> list[tuple[str, int]]:
        """The split and the number of each file that can be encoded without the others."""
        splits = self._corpus.splits.items()
        return [(split, file) for split, records in splits for file in range(len(records.files) or 1)]

    def encode_file(self, split: str, file: int, fingerprint: str) -> None:
        """Encode a file in the folder of unfinished work, for a later :meth:`make`."""
        encoding, records = self._encoding(split, fingerprint), self._corpus.splits[split]
        count = 0
        for _ in encode_split(split, records, encoding, self._args.workers, lambda size: None, [file]):
            count += 1
        mark_finished(encoding.folder, split, file, count)

    def make(self) -> str:
        """Make the data folder; return its table."""
        corpus, folder, parts_path = self._corpus, self._folder, self._folder.parts_path
        fingerprint = self.open()
        results = {name: self._encode(name, fingerprint) for name in corpus.splits}
        data_folder.remove_old_corpus(folder, set(corpus.splits))
        written = {
            **self._settings,
            **self._limit,
            "examples": {split: result.examples for split, result in results.items()},
            "rejects": {split: len(result.rejects) for split, result in results.items()},
            "skipped": {split: dict(sorted(result.skipped.items())) for split, result in results.items()},
            "dictionary_size": data_folder.write(folder, results),
            "tokenizer_fingerprint": fingerprint,
            "versions": {name: importlib.metadata.version(name) for name in ("numpy", "tiktoken", "sentencepiece")},
        }
        parts = {split: result.parts for split, result in results.items()}
        warnings = [line for name, result in results.items() for line in control_characters(name, result.controls)]
        warnings += [*tokenized_splits(corpus.splits, corpus.parse), *shared_documents(parts)]
        if labels := corpus.entries.get("labels"):
            warnings += [*labels_alike(labels), *contradictions(folder, labels, parts)]
        for line in warnings:
            logger.warning("%s", line)
        text = self._table(written["rejects"])
        folder.write_corpus(written | {"table": text.splitlines(), "warnings": warnings}, corpus.splits)
        shutil.rmtree(parts_path)
        return "\n".join([text, *warnings])

    def _table(self, rejects: Mapping[str, int]) -> str:
        corpus = self._corpus
        made = Made(self._folder, corpus.name, list(corpus.splits), self._args.max_source_length, rejects)
        text = corpus.table(made)
        unseen = ("; ".join(filter(None, lines)) for lines in unseen_tokens(self._folder, corpus.splits))
        return "\n".join([text, *unseen])

    def _encoding(self, name: str, fingerprint: str) -> Encoding:
        corpus = self._corpus
        parse = corpus.splits[name].parse or corpus.parse
        return Encoding(parse, corpus.encode, corpus.layout, self._folder.parts_path, fingerprint)

    def _encode(self, name: str, fingerprint: str) -> SplitResult:
        """Encode a split, write its rejects, and choose its examples."""
        split, encoding = self._corpus.splits[name], self._encoding(name, fingerprint)
        limit = self._args.limit if name == "train" else None
        result = SplitResult(seen=set() if self._corpus.unique_ids else None)
        with progress(name, split.size) as advance:
            parts = encode_split(name, split, encoding, self._args.workers, advance)
            for part, content, reused in parts:
                result.add(part, content, reused, limit)
                if result.examples == limit:
                    break
            parts.close()
        if result.reused:
            logger.info("%s: %d of %d parts were finished already", name, result.reused, len(result.parts))
        if result.skipped:
            logger.info("%s: %d skipped (%s)", name, result.skipped.total(), _counts(result.skipped))
        path, rejects = self._folder.rejects_path(name), result.rejects
        write_lines(path, (json.dumps(reject, ensure_ascii=False) for reject in rejects))
        total, most_rejected = result.examples + len(rejects), self._args.max_reject_fraction
        if not total:
            reason = f"All were skipped: {_counts(result.skipped)}" if result.skipped else "Its files hold none"
            raise ValueError(f"{name}: no good example. {reason}")
        if rejects:
            kinds = _counts(Counter(reject["reason"].split(":")[0] for reject in rejects))
            first = "{file}, line {line}: {reason}".format(**rejects[0])
            message = f"{name}: {len(rejects)} of {total} lines rejected ({kinds}), listed in {path}; first: {first}"
            if not result.examples:
                raise ValueError(f"{name}: no good example. {message}")
            if len(rejects) > most_rejected * total:
                raise ValueError(
                    f"{message}. That is more than --max-reject-fraction {most_rejected:g}. The good examples are "
                    "kept: to use them all the same, run the same command with a higher value"
                )
            logger.warning("%s", message)
        return result


def _counts(kinds: Counter[str]) -> str:
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.most_common())

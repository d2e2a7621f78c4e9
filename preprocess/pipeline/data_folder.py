"""The folder that preprocessing works in: parts of earlier runs and other machines, and the files made of them."""

import contextlib
import hashlib
import itertools
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text import tokenizers
from fairseq_poolingformer.text.atomic_write import atomic_write, lock_folder, write_lines
from fairseq_poolingformer.text.data_folder import DataFolder, tokenizer_path
from fairseq_poolingformer.text.dictionary import smallest_dtype
from fairseq_poolingformer.text.sequences import SequencesWriter

from .parts import PART_BYTES, PART_FORMAT, PART_RECORDS, Part
from .splits import SPLITS

logger = logging.getLogger("preprocess")

TOKENIZER = "tokenizer.sha256"
FINGERPRINT = "fingerprint"  # of the settings and the input of unfinished work


@dataclass
class SplitResult:
    """The parts of a split with the examples to take of them, and the split's rejects."""

    # each part, with (n,) bool which of its n examples to take, and (n,) uint64 digests of their documents
    parts: list[tuple[Part, np.ndarray, np.ndarray]] = field(default_factory=list)
    examples: int = 0  # how many examples are taken
    reused: int = 0  # how many parts an earlier run had finished
    rejects: list[dict] = field(default_factory=list)  # file, line and reason of each rejected record
    # number of skipped records of each kind; of a part that a limit cuts, all are counted
    skipped: Counter[str] = field(default_factory=Counter)
    controls: Counter[str] = field(default_factory=Counter)  # of the texts, as ``skipped``
    seen: set[str] | None = None  # the example ids so far; None where ids may repeat

    def add(self, part: Part, content: dict, reused: bool, limit: int | None) -> None:
        """Add a part's examples, up to the limit."""
        take = np.ones(len(content["places"]), bool)
        rejects = list(content["rejects"])
        if self.seen is not None:
            rejects += self._repeated(content, take)
        total = len(take)
        if limit is not None:
            take &= np.cumsum(take) <= limit - self.examples
            total = int(take.nonzero()[0][-1]) + 1 if self.examples + np.count_nonzero(take) == limit else total
        whole = total == len(take)
        self.rejects += [
            {key: reject[key] for key in ("file", "line", "reason")}
            for reject in sorted(rejects, key=lambda reject: reject["before"])
            if whole or reject["before"] < total
        ]
        self.skipped.update(content["skipped"])
        self.controls.update(content["controls"])
        self.parts.append((part, take, np.array(content["digests"], np.uint64)))
        self.examples += int(np.count_nonzero(take))
        self.reused += reused

    def _repeated(self, content: dict, take: np.ndarray) -> list[dict]:
        """Takes out the examples whose ids were seen before; returns a reject for each."""
        rejects = []
        for number, (name, (file, line)) in enumerate(zip(content["texts"]["id"], content["places"], strict=True)):
            if name in self.seen:
                take[number] = False
                reason = f"example id twice: {name} is the id of an earlier example"
                rejects.append({"before": number, "file": file, "line": line, "reason": reason})
            self.seen.add(name)
        return rejects


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within the block, no other process preprocesses into this folder."""
    path.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = lock_folder(path)
    except BlockingIOError:
        raise ValueError(
            f"--output-folder {path}: another preprocessing is running in this folder. Wait for it or stop it, or give "
            "another --output-folder"
        ) from None
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def finished(folder: DataFolder, settings: Mapping[str, object], overwrite: bool) -> dict | None:
    """The content of ``corpus.json`` where the folder already holds this very corpus."""
    if not folder.corpus_path.is_file():
        return None
    try:
        corpus = folder.corpus()
    except ValueError:
        if overwrite:
            return None
        raise
    different = [key for key in settings if corpus.get(key) != json.loads(json.dumps(settings[key]))]
    if not different:
        return corpus
    if not overwrite:
        raise ValueError(
            f"{folder.path} holds a finished corpus that differs in: {', '.join(different)} (see corpus.json there). "
            "Give --overwrite to replace it, or another --output-folder"
        )
    return None


def write(folder: DataFolder, results: Mapping[str, SplitResult]) -> int:
    """Write everything but ``corpus.json`` from the parts; return the size of the dictionary."""
    parts_path = folder.parts_path
    tokenizer = tokenizers.load_tokenizer(parts_path)
    dtypes = folder.layout.dtypes(smallest_dtype(len(tokenizer)))
    for split, result in results.items():
        with contextlib.ExitStack() as stack:
            writers = {
                name: stack.enter_context(SequencesWriter(folder.array_path(split, name), dtype))
                for name, dtype in dtypes.items()
            }
            for part, take, _ in result.parts:
                sizes = part.load()["sizes"]
                for name, writer in writers.items():
                    writer.append_file(part.array(name), np.array(sizes[name], dtype=np.int32), take)
        for name in folder.layout.texts:
            texts = (itertools.compress(part.load()["texts"][name], take) for part, take, _ in result.parts)
            write_lines(folder.text_path(split, name), itertools.chain.from_iterable(texts))
    for path in folder.dictionary_paths():
        with atomic_write(path) as unfinished:
            tokenizer.write_dictionary(unfinished)
    tokenizer.save(parts_path / "final")
    shutil.rmtree(folder.tokenizer_path, ignore_errors=True)
    os.replace(DataFolder(parts_path / "final", folder.layout).tokenizer_path, folder.tokenizer_path)
    return len(tokenizer)


def remove_old_corpus(folder: DataFolder, new_splits: set[str]) -> None:
    """Remove the splits of a corpus that is replaced, beginning with ``corpus.json``, which says that it is whole."""
    if not folder.corpus_path.is_file():
        return
    folder.corpus_path.unlink()
    for split in SPLITS:
        for path in folder.path.glob(f"{split}.*"):
            if split not in new_splits or path != folder.rejects_path(split):
                path.unlink()


def open_parts(path: Path, settings: Mapping[str, object]) -> None:
    """Make the folder of unfinished work; empty it where its settings, input or part sizes are others."""
    wanted = json.dumps([settings, PART_BYTES, PART_RECORDS, PART_FORMAT], sort_keys=True)
    fingerprint = hashlib.sha256(wanted.encode()).hexdigest()
    mark = path / FINGERPRINT
    if mark.is_file() and mark.read_text(encoding="utf-8", errors="replace").strip() != fingerprint:
        logger.info("%s: deleting unfinished work of other settings or input", path)
        shutil.rmtree(path)
    elif mark.is_file():
        logger.info("%s: continuing where an earlier run stopped", path)
    path.mkdir(parents=True, exist_ok=True)
    write_lines(mark, [fingerprint])


def made_tokenizer(parts_path: Path, make: Callable[[Path], None]) -> str:
    """Make the tokenizer of unfinished work, unless an earlier run has left it whole; return its fingerprint."""
    mark, folder = parts_path / TOKENIZER, tokenizer_path(parts_path)
    noted = mark.read_text(encoding="utf-8", errors="replace").strip() if mark.is_file() else None
    if noted is None or not folder.is_dir() or tokenizers.fingerprint(parts_path) != noted:
        shutil.rmtree(folder, ignore_errors=True)
        make(parts_path)
        write_lines(mark, [tokenizers.fingerprint(parts_path)])
    return tokenizers.fingerprint(parts_path)

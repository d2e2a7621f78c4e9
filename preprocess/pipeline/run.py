"""From raw records to a data folder that fairseq trains on: the part that all corpora share.

A corpus gives an iterator of raw records for each split and a pure function from a record to an example, a reject, or
neither: a record that is passed over.
"""

import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fairseq_poolingformer.text import tokenizers
from fairseq_poolingformer.text.dictionary import smallest_dtype
from fairseq_poolingformer.text.whole_file import whole_file
from preprocess.pipeline.binarize import MMapWriter, write_whole
from preprocess.pipeline.data_folder import Layout, prefix, text_layout
from preprocess.pipeline.parts import PART_BYTES, PART_RECORDS, Encoding, Parse, encode_split
from preprocess.pipeline.records import InputError, Record
from preprocess.pipeline.split_result import SplitResult

logger = logging.getLogger("preprocess")

FORMAT = 1  # of the data folder; raise it when what is written changes


@dataclass(frozen=True)
class Split:
    """The records of one split.

    Attributes:
        records: reads them, anew at every call.
        size: how many bytes of input they are.
        parse: the split's own way from record to example, where it is not the corpus's.
    """

    records: Callable[[], Iterator[Record]]
    size: int
    parse: Parse | None = None


@dataclass(frozen=True)
class Corpus:
    """A corpus before it is binarized.

    Attributes:
        name: for people.
        splits: train, valid, test, or some of them.
        parse: record to example, reject or passed over; a pure function that can be pickled.
        settings: all that decides what ``parse`` and the records give, as JSON values.
        inputs: what identifies the input, as JSON values.
        layout: what the data folder holds of an example.
        unique_ids: whether an id that comes a second time in a split is a reject.
    """

    name: str
    splits: dict[str, Split]
    parse: Parse
    settings: dict[str, object]
    inputs: object
    layout: Layout = field(default_factory=lambda: text_layout("source", "target"))
    unique_ids: bool = False


@dataclass(frozen=True)
class Options:
    """How to run, none of which changes what an example becomes.

    Attributes:
        output_folder: the data folder to make.
        workers: number of processes.
        limit: use the first so many good examples of train.
        max_reject_fraction: stop where more of a split is bad.
        max_source_lengths: report how many inputs each would truncate.
        overwrite: replace another corpus that stands in the folder.
    """

    output_folder: Path
    workers: int = 1
    limit: int | None = None
    max_reject_fraction: float = 0.01
    max_source_lengths: tuple[int, ...] = (4096, 16384)
    overwrite: bool = False


def run(corpus: Corpus, make_tokenizer: Callable[[Path], str], tokenizer_settings: dict, options: Options) -> str:
    """Makes the data folder of a corpus.

    Args:
        corpus: the corpus.
        make_tokenizer: called with a folder, puts ``tokenizer/`` there.
        tokenizer_settings: all that decides what ``make_tokenizer`` does, as JSON values.
        options: how to run.

    Returns:
        The table of the corpus, for people.

    Raises:
        InputError: too many rejects, an empty split, another corpus in the folder, a worker that died.
    """
    folder = options.output_folder
    settings = {
        "format": FORMAT,
        "corpus": corpus.name,
        "settings": corpus.settings,
        "inputs": corpus.inputs,
        "tokenizer": tokenizer_settings,
        **corpus.layout.settings,
    }
    if _is_done(folder, settings | {"limit": options.limit}, options.overwrite):
        logger.info("%s is up to date", folder)
        return corpus.layout.table(folder, corpus, options.max_source_lengths)
    parts_folder = _open_parts_folder(folder, settings)
    if not (parts_folder / "tokenizer" / "config.json").is_file():
        make_tokenizer(parts_folder)
    fingerprint = tokenizers.fingerprint(parts_folder)
    results = {}
    for name, split in corpus.splits.items():
        encoding = Encoding(split.parse or corpus.parse, corpus.layout, parts_folder, fingerprint)
        results[name] = _run_split(corpus, name, encoding, options)
    _remove_old_corpus(folder, set(corpus.splits))
    dictionary_size = _merge(corpus, folder, parts_folder, results)
    written = settings | {
        "limit": options.limit,
        "examples": {split: result.examples for split, result in results.items()},
        "rejects": {split: len(result.rejects) for split, result in results.items()},
        "passed_over": {split: dict(sorted(result.passed_over.items())) for split, result in results.items()},
        "dictionary_size": dictionary_size,
        "tokenizer_fingerprint": fingerprint,
        "versions": _versions(),
    }
    text = corpus.layout.table(folder, corpus, options.max_source_lengths, rejects=written["rejects"])
    written["table"] = text.splitlines()
    write_whole(folder / "corpus.json", [json.dumps(written, ensure_ascii=False, indent=1)])
    shutil.rmtree(parts_folder)
    return text


def _is_done(folder: Path, settings: dict, overwrite: bool) -> bool:
    done = folder / "corpus.json"
    if not done.is_file():
        return False
    found = json.loads(done.read_text(encoding="utf-8"))
    different = [key for key in settings if found.get(key) != json.loads(json.dumps(settings[key]))]
    if not different:
        return True
    if not overwrite:
        raise InputError(
            f"{folder} holds a finished corpus that differs in: {', '.join(different)} (see corpus.json there). "
            "Give --overwrite to replace it, or another --output-folder"
        )
    return False


def _open_parts_folder(folder: Path, settings: dict) -> Path:
    """The folder of unfinished work, emptied where it is of other settings, input or part sizes."""
    parts = folder / ".parts"
    wanted = json.dumps([settings, PART_BYTES, PART_RECORDS], sort_keys=True)
    fingerprint = hashlib.sha256(wanted.encode()).hexdigest()
    mark = parts / "fingerprint"
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() != fingerprint:
        logger.info("%s: unfinished work of other settings or input is deleted", parts)
        shutil.rmtree(parts)
    elif mark.is_file():
        logger.info("%s: going on where an earlier run stopped", parts)
    parts.mkdir(parents=True, exist_ok=True)
    write_whole(mark, [fingerprint])
    return parts


def _remove_old_corpus(folder: Path, new_splits: set[str]) -> None:
    """Removes the splits of an overwritten corpus, and first of all the file that says that it is whole."""
    old = folder / "corpus.json"
    if old.is_file():
        splits = json.loads(old.read_text(encoding="utf-8"))["examples"]
        old.unlink()
        for split in splits:
            for path in folder.glob(f"{split}.*"):
                if split not in new_splits or not path.name.endswith(".rejects.jsonl"):
                    path.unlink()


def _run_split(corpus: Corpus, name: str, encoding: Encoding, options: Options) -> SplitResult:
    split = corpus.splits[name]
    limit = options.limit if name == "train" else None
    result = SplitResult(seen=set() if corpus.unique_ids else None)
    with tqdm(total=split.size, unit="B", unit_scale=True, desc=name, disable=None) as bar:
        parts = encode_split(name, split.records(), encoding, options.workers, bar.update)
        for part, content, reused in parts:
            result.add(part, content, reused, limit)
            if result.examples == limit:
                break
        parts.close()
    if result.passed_over:
        kinds = "; ".join(f"{count} × {kind}" for kind, count in result.passed_over.most_common())
        logger.info("%s: %d passed over (%s)", name, result.passed_over.total(), kinds)
    _report_rejects(name, result, options)
    return result


def _report_rejects(split: str, result: SplitResult, options: Options) -> None:
    lines = (json.dumps(reject, ensure_ascii=False) for reject in result.rejects)
    path = options.output_folder / f"{split}.rejects.jsonl"
    write_whole(path, lines)
    total = result.examples + len(result.rejects)
    if result.reused:
        logger.info("%s: %d of %d parts were there already", split, result.reused, len(result.parts))
    if not result.rejects and total:
        return
    kinds = Counter(reject["reason"].split(":")[0] for reject in result.rejects)
    what = "; ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
    first = "{file}, line {line}: {reason}".format(**result.rejects[0]) if result.rejects else "no lines"
    message = f"{split}: {len(result.rejects)} of {total} lines rejected ({what}), listed in {path}; first: {first}"
    if not result.examples:
        raise InputError(f"{split}: no good example. {message}")
    if len(result.rejects) > options.max_reject_fraction * total:
        raise InputError(
            f"{message}. That is more than --max-reject-fraction {options.max_reject_fraction:g}. The good examples "
            "are kept: to use them all the same, run the same command with a higher value"
        )
    logger.warning("%s", message)


def _merge(corpus: Corpus, folder: Path, parts_folder: Path, results: dict[str, SplitResult]) -> int:
    """Writes the final files from the parts; returns the size of the dictionary."""
    tokenizer = tokenizers.load_tokenizer(parts_folder)
    dtypes = corpus.layout.dtypes(smallest_dtype(len(tokenizer)))
    for split, result in results.items():
        with contextlib.ExitStack() as stack:
            writers = {
                name: stack.enter_context(MMapWriter(folder / prefix(split, name), dtype))
                for name, dtype in dtypes.items()
            }
            for part, take in result.parts:
                sizes = part.load()["sizes"]
                for name, writer in writers.items():
                    writer.add(part.array(name), np.array(sizes[name], dtype=np.int32), take)
        for name in corpus.layout.texts:
            write_whole(folder / f"{split}.{name}.txt", _texts(result, name))
    for name in corpus.layout.dictionaries:
        with whole_file(folder / name) as path:
            tokenizer.write_dictionary(path)
    tokenizer.save(parts_folder / "final")
    shutil.rmtree(folder / "tokenizer", ignore_errors=True)
    os.replace(parts_folder / "final" / "tokenizer", folder / "tokenizer")
    return len(tokenizer)


def _texts(result: SplitResult, name: str) -> Iterator[str]:
    for part, take in result.parts:
        yield from itertools.compress(part.load()["texts"][name], take)


def _versions() -> dict[str, str]:
    names = ("numpy", "tiktoken", "sentencepiece")
    return {name: importlib.metadata.version(name) for name in names}

"""From raw records to a data folder that fairseq trains on: records -> parts -> data folder -> report.

A corpus gives an iterator of raw records for each split, and a pure function from a record to an example, a reject, or
a skipped record.
"""

import functools
import hashlib
import importlib.metadata
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text import tokenizers
from fairseq_poolingformer.text.data_folder import DataFolder, Layout
from fairseq_poolingformer.text.whole_file import write_lines

from . import data_folder, shards, unseen
from .data_folder import SplitResult
from .encode import encode_texts
from .parts import PART_BYTES, PART_FORMAT, PART_RECORDS, Encode, Encoding, Parse, encode_split
from .progress import progress
from .records import InputError, Record
from .repeated import shared_documents, shared_files
from .report import length_table

logger = logging.getLogger("preprocess")

FINGERPRINT = "fingerprint"  # of the settings and the input of unfinished work
_MOST_LOST = 20  # kinds that the report names
FORMAT = 2  # of the data folder; raise it when its content changes for the same input


@dataclass(frozen=True)
class Split:
    """The records of one split.

    Attributes:
        records: reads them from the beginning at every call.
        size: how many bytes of input they are.
        parse: the split's own function from record to example, where it differs from the corpus's.
    """

    records: Callable[[], Iterator[Record]]
    size: int
    parse: Parse | None = None

    @classmethod
    def of_files(
        cls, read: Callable[[Sequence[Path]], Iterator[Record]], paths: Sequence[Path], parse: Parse | None = None
    ) -> "Split":
        """The records that ``read`` finds in files."""
        return cls(functools.partial(read, paths), sum(path.stat().st_size for path in paths), parse)

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> "Split":
        """Records that are there already."""
        return cls(functools.partial(iter, records), sum(record.progress for record in records))


@dataclass(frozen=True)
class Corpus:
    """A corpus before it is binarized.

    Attributes:
        name: the corpus's name on the command line and in ``corpus.json``.
        splits: train, valid, test, or some of them.
        parse: record to example, reject or skipped record; a pure function that can be pickled.
        settings: everything that decides the records and what ``parse`` makes of them, as JSON values.
        inputs: identifies the input, as JSON values.
        layout: the files of the data folder.
        encode: example to the layout's arrays and texts, or a reject; a pure function that can be pickled.
        entries: further entries of ``corpus.json``; with ``settings`` they decide what ``encode`` does.
        table: writes the table of the corpus; see :func:`preprocess.pipeline.report.length_table`.
        unique_ids: whether an id that a split has had already makes a record a reject.
    """

    name: str
    splits: Mapping[str, Split]
    parse: Parse
    settings: Mapping[str, object]
    inputs: object
    layout: Layout = PAIRS
    encode: Encode = encode_texts
    entries: Mapping[str, object] = field(default_factory=dict)
    table: Callable[..., str] = length_table
    unique_ids: bool = False


@dataclass(frozen=True)
class Options:
    """How to run; none of these options changes an example.

    Attributes:
        output_folder: the data folder to make.
        workers: number of processes.
        limit: use the first so many good examples of train.
        random_limits: use so many good examples of these splits, chosen at random; None or no entry uses all.
        limit_seed: seed of these choices.
        max_reject_fraction: stop where more of a split is bad.
        max_source_lengths: report how many inputs each of these lengths would truncate.
        overwrite: replace another corpus in the folder.
        shard: K and N: encode every N-th part only, from part K on, and leave it in the folder to be joined.
        join: output folders of shards, whose parts are taken over.
    """

    output_folder: Path
    workers: int = 1
    limit: int | None = None
    random_limits: Mapping[str, int | None] = field(default_factory=dict)
    limit_seed: int = 0
    max_reject_fraction: float = 0.01
    max_source_lengths: tuple[int, ...] = (4096, 16384)
    overwrite: bool = False
    shard: tuple[int, int] | None = None
    join: tuple[Path, ...] = ()


def run(corpus: Corpus, make_tokenizer: Callable[[Path], object], tokenizer_settings: dict, options: Options) -> str:
    """Make the data folder of a corpus.

    Args:
        corpus: the corpus.
        make_tokenizer: puts ``tokenizer/`` into the folder that it is called with.
        tokenizer_settings: everything that decides what ``make_tokenizer`` makes, as JSON values.
        options: how to run.

    Returns:
        The table of the corpus, or of a shard one line, for people.

    Raises:
        InputError: too many rejects, an empty split, another corpus or another preprocessing in the folder, or a worker
            that died.
    """
    folder = DataFolder(options.output_folder, corpus.layout)
    settings = {
        "format": FORMAT,
        "corpus": corpus.name,
        "settings": corpus.settings,
        "inputs": corpus.inputs,
        "tokenizer": tokenizer_settings,
        **corpus.entries,
    }
    limits = {"limit": options.limit}
    chosen = {split: count for split, count in options.random_limits.items() if count is not None}
    limits |= {"random_limits": chosen or None, "limit_seed": options.limit_seed if chosen else None}

    def table(rejects: Mapping[str, int]) -> str:
        text = corpus.table(folder, corpus.name, list(corpus.splits), options.max_source_lengths, rejects=rejects)
        return "\n".join([text, *unseen.report(folder, corpus.splits)])

    def table_of_finished() -> str | None:
        if written := data_folder.finished(folder, settings | limits, options.overwrite):
            logger.info("%s is up to date", folder.path)
            return "\n".join([table(rejects=written["rejects"]), *written.get("shared", [])])
        return None

    if text := table_of_finished():  # also where the folder is read-only
        return text
    with data_folder.locked(folder.path):
        return table_of_finished() or _make(corpus, make_tokenizer, folder, settings, limits, table, options)


def _make(
    corpus: Corpus,
    make_tokenizer: Callable[[Path], object],
    folder: DataFolder,
    settings: dict[str, object],
    limits: dict[str, object],
    table: Callable[..., str],
    options: Options,
) -> str:
    """Make the data folder; return its table, or of a shard one line."""
    _open_parts_folder(folder.parts_path, settings)
    for line in shared_files(corpus.inputs):
        logger.warning("%s", line)
    if options.shard:
        shards.claim(folder.parts_path, *options.shard)
    shards.join(options.join, (folder.parts_path.name, FINGERPRINT), folder.parts_path)
    if not tokenizers.is_saved(folder.parts_path):
        make_tokenizer(folder.parts_path)
    fingerprint = tokenizers.fingerprint(folder.parts_path)
    results = _encode_splits(corpus, folder, fingerprint, options)
    if options.shard:
        parts = sum(len(result.parts) for result in results.values())
        return (
            f"shard {options.shard[0]} of {options.shard[1]}: {parts} parts in {folder.path}, to be joined with --join"
        )
    shared = shared_documents({split: result.parts for split, result in results.items()})
    for line in shared:
        logger.warning("%s", line)
    data_folder.remove_old_corpus(folder, set(corpus.splits))
    dictionary_size = data_folder.write(folder, results)
    written = {
        **settings,
        **limits,
        "examples": {split: result.examples for split, result in results.items()},
        "rejects": {split: len(result.rejects) for split, result in results.items()},
        "skipped": {split: dict(sorted(result.skipped.items())) for split, result in results.items()},
        "dictionary_size": dictionary_size,
        "tokenizer_fingerprint": fingerprint,
        "versions": {name: importlib.metadata.version(name) for name in ("numpy", "tiktoken", "sentencepiece")},
    }
    if any(result.lost for result in results.values()):
        written["lost"] = {split: dict(result.lost.most_common(_MOST_LOST)) for split, result in results.items()}
    text = table(rejects=written["rejects"])
    folder.write_corpus(written | {"table": text.splitlines(), "shared": shared}, corpus.splits)
    shutil.rmtree(folder.parts_path)
    return "\n".join([text, *shared])


def _encode_splits(corpus: Corpus, folder: DataFolder, fingerprint: str, options: Options) -> dict[str, SplitResult]:
    """Encode every split and choose its examples; of a shard, encode its parts only."""
    results = {}
    for name, split in corpus.splits.items():
        parse = split.parse or corpus.parse
        encoding = Encoding(parse, corpus.encode, corpus.layout, folder.parts_path, fingerprint)
        results[name] = _run_split(corpus, name, encoding, options)
        if options.shard:
            continue
        if options.join and (missing := len(results[name].parts) - results[name].reused):
            logger.warning("%s: %d parts were in no --join folder and were encoded here", name, missing)
        _report_rejects(folder, name, results[name], options.max_reject_fraction)
        if (count := options.random_limits.get(name)) is not None:
            results[name].choose(count, options.limit_seed)
    return results


def _open_parts_folder(path: Path, settings: dict) -> None:
    """Make the folder of unfinished work; empty it where its settings, input or part sizes are others."""
    wanted = json.dumps([settings, PART_BYTES, PART_RECORDS, PART_FORMAT], sort_keys=True)
    fingerprint = hashlib.sha256(wanted.encode()).hexdigest()
    mark = path / FINGERPRINT
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() != fingerprint:
        logger.info("%s: deleting unfinished work of other settings or input", path)
        shutil.rmtree(path)
    elif mark.is_file():
        logger.info("%s: continuing where an earlier run stopped", path)
    path.mkdir(parents=True, exist_ok=True)
    write_lines(mark, [fingerprint])


def _run_split(corpus: Corpus, name: str, encoding: Encoding, options: Options) -> SplitResult:
    split = corpus.splits[name]
    limit = options.limit if name == "train" and not options.shard else None  # a shard cannot count for all
    result = SplitResult(seen=set() if corpus.unique_ids else None)
    with progress(name, split.size) as advance:
        parts = encode_split(name, split.records(), encoding, options.workers, advance, options.shard or (0, 1))
        for part, content, reused in parts:
            result.add(part, content, reused, limit)
            if result.examples == limit:
                break
        parts.close()
    if result.reused:
        logger.info("%s: %d of %d parts were finished already", name, result.reused, len(result.parts))
    if result.skipped:
        logger.info("%s: %d skipped (%s)", name, result.skipped.total(), _counts(result.skipped))
    if result.lost:
        most = Counter(dict(result.lost.most_common(_MOST_LOST)))
        logger.info("%s: %d times text may be missing, most often %s", name, result.lost.total(), _counts(most))
    return result


def _report_rejects(folder: DataFolder, split: str, result: SplitResult, max_fraction: float) -> None:
    """Write and log the rejects of a split.

    Raises:
        InputError: the split has no good example, or too many rejects.
    """
    path = folder.rejects_path(split)
    write_lines(path, (json.dumps(reject, ensure_ascii=False) for reject in result.rejects))
    total = result.examples + len(result.rejects)
    if not result.rejects and total:
        return
    counts = _counts(Counter(reject["reason"].split(":")[0] for reject in result.rejects))
    first = "{file}, line {line}: {reason}".format(**result.rejects[0]) if result.rejects else "no lines"
    message = f"{split}: {len(result.rejects)} of {total} lines rejected ({counts}), listed in {path}; first: {first}"
    if not result.examples:
        raise InputError(f"{split}: no good example. {message}")
    if len(result.rejects) > max_fraction * total:
        raise InputError(
            f"{message}. That is more than --max-reject-fraction {max_fraction:g}. The good examples "
            "are kept: to use them all the same, run the same command with a higher value"
        )
    logger.warning("%s", message)


def _counts(kinds: Counter[str]) -> str:
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.most_common())

"""One pass over the records of a split, in parts that several processes encode and that survive a killed run.

What is in a part depends on the input alone, never on the number of workers or on their speed.
"""

import functools
import json
import multiprocessing
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.data.dictionary import EOS, replace_lone_surrogates, smallest_dtype
from fairseq_poolingformer.data.tokenizers import Tokenizer, load_tokenizer
from preprocess.binarize import write_whole
from preprocess.records import Example, InputError, PassedOver, Record, Reject

PART_BYTES = 4 * 2**20
PART_RECORDS = 4096

Parse = Callable[[Record], Example | Reject | PassedOver]


@dataclass(frozen=True)
class Part:
    """Where the binarized form of some consecutive records lies.

    ``<name>.json`` is written last, so that its presence says that the part is whole.
    """

    folder: Path
    split: str
    number: int

    @property
    def json(self) -> Path:
        return self.folder / f"{self.split}-{self.number:06d}.json"

    def ids(self, side: str) -> Path:
        return self.json.with_suffix(f".{side}.ids")

    def load(self) -> dict | None:
        """What :func:`encode_part` wrote, or None where the part is not whole."""
        if not self.json.is_file():
            return None
        return json.loads(self.json.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Encoding:
    """All that decides the content of a part beside its records.

    Attributes:
        parse: record to example.
        sides: names of an example's texts.
        folder: holds the tokenizer.
        fingerprint: that of the tokenizer.
        keep_text: whether to store the texts of the last side as they are, next to the ids.
    """

    parse: Parse
    sides: tuple[str, ...]
    folder: Path
    fingerprint: str
    keep_text: bool = False


def group(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Consecutive records, about PART_BYTES of them at a time."""
    part, size = [], 0
    for record in records:
        part.append(record)
        size += len(record.data or b"")
        if size >= PART_BYTES or len(part) >= PART_RECORDS:
            yield part
            part, size = [], 0
    if part:
        yield part


def encode_part(part: Part, records: list[Record], encoding: Encoding) -> dict:
    """Parses and encodes records and writes the part.

    Returns:
        What ``<name>.json`` holds: ``ids``, ``summaries`` (the last of several sides' text, on one line), ``texts``
        (where they are kept) and, for each side, the ``sizes`` of the examples in order; ``rejects``, each with the
        number of examples before it; ``passed_over``, how many records of each kind.
    """
    tokenizer = _tokenizer(str(encoding.folder), encoding.fingerprint)
    result = {"ids": [], "summaries": [], "texts": [], "sizes": {side: [] for side in encoding.sides}, "rejects": []}
    passed_over: Counter[str] = Counter()
    ids: dict[str, list[np.ndarray]] = {side: [] for side in encoding.sides}
    for record in records:
        parsed = _parse(record, encoding.parse)
        if isinstance(parsed, PassedOver):
            passed_over[parsed.kind] += 1
            continue
        encoded = tokenizer.encode_batch(parsed.texts) if isinstance(parsed, Example) else []
        if isinstance(parsed, Example) and not all(map(len, encoded)):
            parsed = Reject("nothing to encode: the tokenizer leaves no token of a text")
        if isinstance(parsed, Reject):
            position = {"file": record.file, "line": record.line, "reason": parsed.reason}
            result["rejects"].append({"before": len(result["ids"]), **position})
            continue
        result["ids"].append(one_line(parsed.id))
        if len(encoding.sides) > 1:
            result["summaries"].append(one_line(parsed.texts[-1]))
        if encoding.keep_text:
            result["texts"].append(replace_lone_surrogates(parsed.texts[-1]))
        for side, sequence in zip(encoding.sides, encoded, strict=True):
            result["sizes"][side].append(len(sequence) + 1)
            ids[side] += [sequence, np.array([EOS])]
    dtype = smallest_dtype(len(tokenizer))
    for side in encoding.sides:
        part.ids(side).write_bytes(np.concatenate([np.empty(0, int), *ids[side]]).astype(dtype).tobytes())
    result["passed_over"] = dict(sorted(passed_over.items()))
    write_whole(part.json, [json.dumps(result, ensure_ascii=False)])
    return result


def one_line(text: str) -> str:
    """The text with every run of whitespace and line separators made one space."""
    return " ".join(replace_lone_surrogates(text).split())


def encode_split(
    split: str, records: Iterator[Record], encoding: Encoding, workers: int, advance: Callable[[int], object]
) -> Iterator[tuple[Part, dict, bool]]:
    """Encodes the records of a split part by part; parts that are there already are used again.

    Args:
        split: its name.
        records: all its records.
        encoding: what to do with them.
        workers: number of processes; with 1, everything happens in this one.
        advance: told the bytes of input that each part used up.

    Yields:
        Each part in order, with its content and whether it was there already. Stop iterating to stop the work.

    Raises:
        InputError: a worker died.
    """
    submit, shut_down = _pool(workers)
    waiting: deque[tuple[Part, int, dict | Future, bool]] = deque()

    def oldest() -> tuple[Part, dict, bool]:
        part, progress, result, reused = waiting.popleft()
        result = result.result() if isinstance(result, Future) else result
        advance(progress)
        return part, result, reused

    try:
        for number, chunk in enumerate(group(records)):
            part = Part(encoding.folder, split, number)
            whole = part.load()
            result = submit(encode_part, part, chunk, encoding) if whole is None else whole
            waiting.append((part, sum(record.progress for record in chunk), result, whole is not None))
            if len(waiting) > workers + 1 or workers == 1:
                yield oldest()
        while waiting:
            yield oldest()
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process died, most often because the machine ran out of memory. What is finished is kept: run "
            f"the same command again with fewer --workers than {workers}"
        ) from error
    finally:
        shut_down()


def _parse(record: Record, parse: Parse) -> Example | Reject | PassedOver:
    if record.data is None:
        return Reject("line too long: see --max-line-bytes")
    return parse(record)


@functools.lru_cache(maxsize=1)
def _tokenizer(folder: str, fingerprint: str) -> Tokenizer:
    """The tokenizer of a folder, loaded once in a process; the fingerprint keeps an older one from being used."""
    return load_tokenizer(Path(folder))


def _pool(workers: int) -> tuple[Callable[..., dict | Future], Callable[[], None]]:
    """A way to run a function, and a way to end that."""
    if workers == 1:
        return (lambda function, *args: function(*args)), (lambda: None)
    # Forked workers share the tokenizer and start at once. Elsewhere than on Linux forking is not safe.
    method = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), initializer=_exit_with_parent)
    return pool.submit, lambda: pool.shutdown(cancel_futures=True)


def _exit_with_parent() -> None:
    """Lets a worker end when the process that started it is killed, instead of waiting for work for ever."""

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

"""One pass over the records of a split, in parts that several processes encode and that survive a killed run.

The content of a part depends on the input alone, never on the number of workers or on their speed.
"""

import functools
import hashlib
import json
import logging
import multiprocessing
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.dictionary import smallest_dtype
from fairseq_poolingformer.text.tokenizers import Tokenizer, load_tokenizer

from .encode import Encoded
from .records import Example, Parse, Record, Reject, Skipped, parsed
from .splits import SplitRecords
from .tokenized import CONTROLS

logger = logging.getLogger("preprocess")

PART_BYTES = 4 * 2**20
PART_RECORDS = 4096
PART_FORMAT = 4  # raise it when what a part holds changes

Encode = Callable[[Tokenizer, Example], Encoded | Reject]


@dataclass(frozen=True)
class Part:
    """The encoded files of consecutive records of a split; ``<name>.json`` is written last, when the part is whole."""

    folder: Path
    split: str
    number: int
    file: int = 0  # of the split's files, the one that the records are in

    @property
    def json(self) -> Path:
        return self.folder / f"{self.split}-{self.file:06d}-{self.number:06d}.json"

    def array(self, name: str) -> Path:
        return self.json.with_suffix(f".{name}.array")

    def load(self) -> dict | None:
        """The dictionary that :func:`encode_part` wrote, or None where the part is not whole."""
        if not self.json.is_file():
            return None
        return json.loads(self.json.read_text(encoding="utf-8"))

    def load_whole(self) -> dict | None:
        """Content of a part that another run has finished; None also where a loss of power has torn its files."""
        try:
            content = self.load()
            if content is None or all(
                hashlib.sha256(self.array(name).read_bytes()).hexdigest() == digest
                for name, digest in content["arrays"].items()
            ):
                return content
            fault = "an array has other bytes"
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            fault = str(error)
        logger.warning("%s: cannot be read (%s), and is made again", self.json, fault)
        return None


@dataclass(frozen=True)
class Encoding:
    """Everything but the records that decides the content of a part."""

    parse: Parse  # record to example
    encode: Encode  # example to arrays and texts
    layout: Layout  # names these arrays and texts
    folder: Path  # holds the tokenizer, and the parts
    fingerprint: str  # the tokenizer's


def group(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Group consecutive records into parts of about PART_BYTES."""
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
    """Parse and encode records and write the part."""
    tokenizer = _tokenizer(str(encoding.folder), encoding.fingerprint)
    dtypes = encoding.layout.dtypes(smallest_dtype(len(tokenizer)))
    places, rejects, skipped, controls = [], [], Counter(), Counter()
    texts: dict[str, list[str]] = {name: [] for name in encoding.layout.texts}
    arrays: dict[str, list[np.ndarray]] = {name: [] for name in dtypes}
    for record in records:
        encoded = parsed(record, encoding.parse)
        if isinstance(encoded, Example):
            controls.update(CONTROLS.findall("".join(encoded.texts)))
            encoded = encoding.encode(tokenizer, encoded) if encoded.id.strip() else Reject("empty id")
        if isinstance(encoded, Skipped):
            skipped[encoded.kind] += 1
        elif isinstance(encoded, Reject):
            position = {"file": record.file, "line": record.line, "reason": encoded.reason}
            rejects.append({"before": len(places), **position})
        else:
            places.append([record.file, record.line])
            for name in texts:
                texts[name].append(encoded.texts[name])
            for name, dtype in dtypes.items():
                arrays[name].append(encoded.arrays[name].astype(dtype))
    written = {}
    for name, dtype in dtypes.items():
        content = np.concatenate([np.empty(0, dtype), *arrays[name]]).tobytes()
        written[name] = hashlib.sha256(content).hexdigest()
        part.array(name).write_bytes(content)
    sizes = {name: list(map(len, arrays[name])) for name in arrays}
    inputs = [arrays[name] for name in encoding.layout.ids if name not in encoding.layout.outputs]
    digests = [_digest(document) for document in zip(*inputs, strict=True)]
    result = {"places": places, "texts": texts, "sizes": sizes, "digests": digests, "rejects": rejects}
    result["arrays"] = written
    result |= {"skipped": dict(sorted(skipped.items())), "controls": dict(sorted(controls.items()))}
    write_lines(part.json, [json.dumps(result, ensure_ascii=False)])
    return result


def encode_split(
    split: str,
    records: SplitRecords,
    encoding: Encoding,
    workers: int,
    advance: Callable[[int], object],
    files: Sequence[int] | None = None,
) -> Iterator[tuple[Part, dict, bool]]:
    """Encode the records of a split part by part, except for parts that are finished already."""
    submit, shut_down = _pool(workers)
    waiting: deque[tuple[Part, int, dict | Future, bool]] = deque()
    of_each = records.files or (records,)

    def oldest() -> tuple[Part, dict, bool]:
        part, progress, result, reused = waiting.popleft()
        result = result.result() if isinstance(result, Future) else result
        advance(progress)
        return part, result, reused

    try:
        for file in range(len(of_each)) if files is None else files:
            begin, count = 0, _count_finished(encoding.folder, split, file)
            while waiting and count:
                yield oldest()
            while begin < count and (content := (part := Part(encoding.folder, split, begin, file)).load_whole()):
                begin += 1
                yield part, content, True
            if count and begin == count:
                advance(of_each[file].size)
                continue
            for number, members in enumerate(group(of_each[file].records())):
                if number < begin:
                    continue
                part = Part(encoding.folder, split, number, file)
                whole = part.load_whole()
                result = submit(encode_part, part, members, encoding) if whole is None else whole
                waiting.append((part, sum(record.progress for record in members), result, whole is not None))
                if len(waiting) > workers + 1 or workers == 1:
                    yield oldest()
        while waiting:
            yield oldest()
    except BrokenProcessPool as error:
        raise ValueError(
            "a worker process died, most often because the machine ran out of memory. Finished parts are kept: run "
            f"the same command again with fewer --workers than {workers}; it continues from here"
        ) from error
    finally:
        shut_down()


def mark_finished(folder: Path, split: str, file: int, count: int) -> None:
    """Note that all parts of a file are there, so that nobody reads it again."""
    write_lines(folder / f"{split}-{file:06d}.finished", [str(count)])


def _count_finished(folder: Path, split: str, file: int) -> int:
    """How many parts a file has that is finished; 0 where that is not known."""
    mark = folder / f"{split}-{file:06d}.finished"
    count = mark.read_text(encoding="utf-8", errors="replace").strip() if mark.is_file() else ""
    return int(count) if count.isdecimal() else 0


def _digest(arrays: Iterable[np.ndarray]) -> int:
    """Digest an encoded document; 64 bits, so that those of millions fit into memory and hardly two are the same."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(b"%d " % len(array))
        digest.update(array.tobytes())
    return int.from_bytes(digest.digest(), "little")


@functools.lru_cache(maxsize=1)
def _tokenizer(folder: str, fingerprint: str) -> Tokenizer:
    """The tokenizer of a folder, loaded once in a process; the fingerprint tells it from an older one."""
    return load_tokenizer(Path(folder))


def _pool(workers: int) -> tuple[Callable[..., dict | Future], Callable[[], None]]:
    """A function that runs another one, here or in a worker, and a function that ends the workers."""
    if workers == 1:
        return (lambda function, *args: function(*args)), (lambda: None)
    # Forked workers share the tokenizer and start at once. Elsewhere than on Linux forking is not safe.
    method = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), initializer=_exit_with_parent)
    return pool.submit, lambda: pool.shutdown(cancel_futures=True)


def _exit_with_parent() -> None:
    """End a worker when the process that started it is killed, instead of waiting for work for ever."""

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

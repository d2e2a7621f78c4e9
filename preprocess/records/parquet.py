"""Rows of Parquet files as JSON."""

import contextlib
import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from fairseq_poolingformer.extras import needs

from ..pipeline.records import Record

ROWS = 32  # read at a time
_TABLE = "with pandas, write its rows as JSON lines: to_json(OUT, orient='records', lines=True)"


def is_parquet(path: Path) -> bool:
    """Whether a file is in this format, told by its first bytes, or else by its name."""
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1" or path.suffix.lower() == ".parquet"


def rows(path: Path, max_bytes: int) -> Iterator[Record]:
    """Read the rows of a file, a few at a time."""
    try:
        arrow, reader = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise needs(path, "a Parquet file", "pyarrow", _TABLE) from None
    with _explained(path, arrow), reader.ParquetFile(path) as file:
        size, total, number, done = path.stat().st_size, file.metadata.num_rows, 0, 0
        for batch in file.iter_batches(ROWS, use_threads=False):
            names = batch.schema.names
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"{path}: two columns are called {min(twice)!r}; rename one")
            batch.validate(full=True)  # offsets of a damaged file would lead anywhere in memory
            labels = _labels((batch.schema.metadata or {}).get(b"huggingface"))
            for row in batch.to_pylist():
                number += 1
                row |= {name: _named(row[name], names) for name, names in labels.items() if name in row}
                data, progress = json.dumps(row, default=_text).encode(), size * number // total
                is_short = len(data) <= max_bytes
                yield Record(f"{path}, row {number}", number, data if is_short else None, progress - done)
                done = progress


def _text(value: object) -> str:
    """A value that JSON lacks."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _labels(metadata: bytes | None) -> dict[str, list[str]]:
    """The names of the labels in each column that is a ClassLabel of ``datasets``."""
    try:
        features = json.loads(metadata or b"{}")["info"]["features"]
        return {name: list(one["names"]) for name, one in features.items() if one.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # of another program
        return {}


def _named(value: object, names: Sequence[str]) -> object:
    """A label by its name in place of its number; -1 stands for none."""
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None if value == -1 else value


@contextlib.contextmanager
def _explained(path: Path, arrow: ModuleType) -> Iterator[None]:
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(f"{path}: damaged Parquet file ({reason}); fetch it again") from error

"""Rows of Parquet and Arrow files, of folders that ``datasets`` saved, and of its data sets on the Hub, as JSON."""

import contextlib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from fairseq_poolingformer.text.json_file import read_json_file

from ..pipeline.records import InputError, Record, needs

ROWS = 32  # read at a time
STATE, SPLITS = "state.json", "dataset_dict.json"  # of a data set, of several, saved by datasets
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.-]+)?")
_TABLE = "with pandas, write its rows as JSON lines: to_json(OUT, orient='records', lines=True)"


def format_of(path: Path) -> Callable[[Path, int], Iterator[Record]] | None:
    """The reader of a binary file, told by its first bytes, or else by its name; None for another file."""
    with open(path, "rb") as file:
        first = file.read(6)
    if first.startswith(b"PAR1") or path.suffix.lower() == ".parquet":
        return parquet
    if first == b"ARROW1" or first.startswith(b"\xff\xff\xff\xff") or path.suffix.lower() in (".arrow", ".feather"):
        return arrow
    return None


def json_of(row: Mapping[str, object], file: str, number: int, progress: int, max_bytes: int) -> Record:
    """The record of a row; values that JSON lacks become text."""
    data = json.dumps(row, default=_text).encode()
    if len(data) > max_bytes:
        return Record(f"{file}, row {number}", number, None, progress)
    return Record(f"{file}, row {number}", number, data, progress)


def _text(value: object) -> object:
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def parquet(path: Path, max_bytes: int) -> Iterator[Record]:
    """Read the rows of a Parquet file, a few at a time."""
    arrow = _pyarrow(path, "a Parquet file")
    reader = importlib.import_module("pyarrow.parquet")
    with _explained(path, arrow, "Parquet"), reader.ParquetFile(path) as file:
        total = file.metadata.num_rows
        yield from _rows(file.iter_batches(ROWS, use_threads=False), str(path), path.stat().st_size, total, max_bytes)


def arrow(path: Path, max_bytes: int) -> Iterator[Record]:
    """Read the rows of an Arrow file in either of its formats, as :func:`parquet` does."""
    library = _pyarrow(path, "an Arrow file")
    ipc = importlib.import_module("pyarrow.ipc")
    with _explained(path, library, "Arrow"), library.memory_map(str(path)) as file:
        if file.read(6) == b"ARROW1":
            reader = ipc.open_file(file)
            batches: Iterable = map(reader.get_batch, range(reader.num_record_batches))
        else:
            file.seek(0)
            batches = ipc.open_stream(file)
        slices = (batch.slice(at, ROWS) for batch in batches for at in range(0, batch.num_rows, ROWS))
        yield from _rows(slices, str(path), path.stat().st_size, None, max_bytes)


def _rows(batches: Iterable, file: str, size: int, total: int | None, max_bytes: int) -> Iterator[Record]:
    number, done = 0, 0
    for batch in batches:
        names = batch.schema.names
        if twice := {name for name in names if names.count(name) > 1}:
            raise InputError(f"{file}: two columns are called {min(twice)!r}; rename one")
        batch.validate(full=True)  # offsets of a damaged file would lead anywhere in memory
        labels = _labels((batch.schema.metadata or {}).get(b"huggingface"))
        for row in batch.to_pylist():
            number += 1
            row |= {name: _named(row[name], names) for name, names in labels.items() if name in row}
            now = size * number // total if total else done
            yield json_of(row, file, number, now - done, max_bytes)
            done = now


def _labels(metadata: bytes | None) -> dict[str, list[str]]:
    """The names of the labels in each column that is a ClassLabel of ``datasets``, or lists of them."""
    try:
        features = json.loads(metadata or b"{}")["info"]["features"]
        inner = {name: one.get("feature", one) if isinstance(one, dict) else {} for name, one in features.items()}
        return {name: list(one["names"]) for name, one in inner.items() if one.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # of another program
        return {}


def _named(value: object, names: Sequence[str]) -> object:
    """Labels by their names in place of their numbers; -1 stands for none."""
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None if value == -1 else value


def _pyarrow(path: Path, kind: str) -> ModuleType:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError:
        raise needs(path, kind, "pyarrow", _TABLE) from None


@contextlib.contextmanager
def _explained(path: Path, library: ModuleType, kind: str) -> Iterator[None]:
    try:
        yield
    except (library.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(f"{path}: damaged {kind} file ({reason}); fetch it again") from error


def saved_files(folder: Path) -> list[Path]:
    """The Arrow files of a folder that ``Dataset.save_to_disk`` wrote."""
    state = read_json_file(folder / STATE)
    entries = state.get("_data_files")
    names = [entry.get("filename") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise InputError(f"{folder / STATE}: '_data_files' must name the .arrow files beside it; save the data again")
    if state.get("_indices_data_files"):
        raise InputError(f"{folder}: rows were selected without being copied; save flatten_indices() of the data set")
    if missing := next((name for name in names if not (folder / name).is_file()), None):
        raise InputError(f"{folder / missing}: no such file, and {STATE} names it; copy the whole folder")
    return [folder / name for name in names]


def saved_splits(folder: Path) -> list[str]:
    """The names of the splits of a folder that ``DatasetDict.save_to_disk`` wrote; each has a folder."""
    names = read_json_file(folder / SPLITS).get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise InputError(f"{folder / SPLITS}: 'splits' must be a list of the folders beside it; save the data again")
    return names


def looks_like_hub_name(text: str) -> bool:
    """Whether a text that is not a path may be the name of a data set on the Hub, perhaps with ``:CONFIGURATION``."""
    if not HUB_NAME.fullmatch(text) or (path := Path(text)).suffix in _FILE_SUFFIXES:
        return False
    return not (path.parent != Path() and path.parent.exists())


_FILE_SUFFIXES = {
    *(".json", ".jsonl", ".ndjson", ".txt", ".csv", ".tsv", ".tab", ".parquet", ".arrow", ".feather"),
    *(".gz", ".bz2", ".xz", ".zst", ".zip", ".src", ".tgt", ".source", ".target"),
}


def hub(name: str) -> Mapping[str, Sequence]:
    """Load all splits of a data set on the Hub, with ``datasets``."""
    try:
        library = importlib.import_module("datasets")
    except ModuleNotFoundError:
        raise InputError(
            f"{name}: no such file or folder. If it is a data set on the Hub: pip install datasets, and run this again"
        ) from None
    path, _, configuration = name.partition(":")
    try:
        return library.load_dataset(path, configuration or None)
    except (OSError, ValueError, RuntimeError, library.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{name}: no such file, and datasets cannot load it from the Hub: {reason}") from error


def hub_rows(rows: Sequence, name: str, max_bytes: int) -> Iterator[Record]:
    """Read the rows of a split of :func:`hub`."""
    features = {column: getattr(one, "feature", one) for column, one in (getattr(rows, "features", None) or {}).items()}
    labels = {column: one.names for column, one in features.items() if hasattr(one, "names")}
    for number, row in enumerate(rows, 1):
        named = {column: _named(row[column], names) for column, names in labels.items()}
        yield json_of({**row, **named}, name, number, 1, max_bytes)

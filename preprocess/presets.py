"""``poolingformer-preprocess PRESET FILES``: released corpora without options, and the references of their ids.

:data:`~fairseq_poolingformer.tasks.presets.PRESETS` says where in a record its parts are; the names of files, or ids
beside them, say the split. An input that has several references is an example of each in train, and one elsewhere.
"""

import argparse
import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

from fairseq_poolingformer.tasks.presets import PRESETS, SUITES, Preset
from fairseq_poolingformer.text.json_values import BadLine, read_object

from . import arxiv_pubmed
from .pipeline import command
from .pipeline.records import Example, InputError, Record, Reject, Skipped
from .pipeline.run import Corpus
from .pipeline.splits import SPLIT_OF, SPLITS
from .records import keys, options, reader, sources
from .records.formats import Reading
from .records.sources import Source

NO_SUMMARY, ANOTHER = "no summary", "another reference of an input"
_ANOTHER = b""  # the data of such a record
_IDS, _DOCUMENTS = ".ids", "sources.json"  # GovReport's splits; the documents of Multi-LexSum's cases
_NOT_DATA = ("readme", "license")
JOINED = "case_documents"  # keys of such documents


def of(name: str) -> SimpleNamespace:
    """The command of a preset, with the functions that the module of a corpus has."""
    made, corpus = functools.partial(make_parser, name), functools.partial(make_corpus, name=name)
    return SimpleNamespace(make_parser=made, make_corpus=corpus, main=functools.partial(command.main, made, corpus))


def make_parser(name: str) -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser(name, f"Make a data folder of {PRESETS[name].help}.")
    text = "files, folders, archives or globs of the release; their names say train, valid or test"
    parser.add_argument("files", metavar="FILES", nargs="+", help=text)
    options.add_options(parser)
    parser.set_defaults(max_source_length=[PRESETS[name].lengths[0]], data=None, train=None, valid=None, test=None)
    return parser


def make_corpus(args: argparse.Namespace, name: str) -> Corpus:
    """Describe the corpus that the command line names."""
    preset = PRESETS[name]
    found, documents = find_sources(name, args.files, options.divides(args))
    data = options.find(args, functools.partial(arxiv_pubmed.name_of, id_keys=preset.id), sources=found)
    expand = functools.partial(_expanded, preset=preset, documents=_Documents(documents) if documents else None)
    splits = {
        split: replace(
            one,
            files=(),
            records=functools.partial(_read, one.records, expand, several=split == "train", id_keys=preset.id),
            parse=functools.partial(parse, preset=preset, annotated=split != "test"),
        )
        for split, one in data.splits.items()
    }
    inputs = data.inputs | (
        {"documents": [entry for one in documents for entry in one.describe()]} if documents else {}
    )
    data = replace(data, splits=splits, inputs=inputs)
    reading = {key: value for key, value in asdict(preset).items() if key not in ("help", "metric", "lengths")}
    settings = {**json.loads(json.dumps(reading)), "max_line_bytes": args.max_line_bytes, **data.settings}
    read = functools.partial(parse, preset=preset)
    return arxiv_pubmed.corpus_of(name, data, read, settings, bool(preset.query), entries={"preset": name})


def parse(record: Record, preset: Preset, annotated: bool = True) -> Example | Reject | Skipped:
    """Make an example of a record; ``annotated`` says whether there must be a summary."""
    if record.data == _ANOTHER:
        return Skipped(ANOTHER)
    found = arxiv_pubmed.parse(
        record,
        article_keys=preset.article,
        summary_keys=preset.summary,
        id_keys=preset.id,
        query_key=preset.query,
        replaced=preset.replaced,
        annotated=annotated,
    )
    if isinstance(found, Reject) and found.reason.startswith(f"{NO_SUMMARY}:"):
        fields = keys.parsed_object(record.data) or {}
        return Skipped(NO_SUMMARY) if any(key in fields for key in preset.summary) else found  # null is there
    return found


def find_sources(
    name: str, files: Sequence[str], divided: bool = False
) -> tuple[dict[str, list[Source]], list[Source]]:
    """Find the files of each split, and those of documents that records name."""
    named = [(Path(file).parent, source) for file in files for source in sources.expand([file])]
    inside = {source: _inside(parent, source) for parent, source in named}
    inside = {source: place for source, place in inside.items() if not place.name.lower().startswith(_NOT_DATA)}
    suite, _, task = name.partition("/")
    tasks = {*SUITES.get(suite, ())}
    if own := {source: place for source, place in inside.items() if tasks and _is_of(task, place)}:
        inside = own
    elif other := next((one for one in sorted(tasks) for place in inside.values() if _is_of(one, place)), None):
        raise InputError(f"{files[0]}: holds {other}, not {task}")
    split_of = {key: split for source in inside if source.path.suffix == _IDS for key, split in _split_ids(source)}
    found: dict[str, list[Source]] = {}
    others, documents = [], []
    for source, place in inside.items():
        if place.name == _DOCUMENTS:
            documents.append(source)
        elif split_of:
            if split := split_of.get((place.parent.name, place.stem)):
                found.setdefault(split, []).append(source)
        elif split := sources.split_named(place.as_posix()):
            found.setdefault(split, []).append(source)
        else:
            others.append(source)
    if others and (divided or not found):
        if not divided:
            raise InputError(
                f"{others[0].name}: its name says neither train, valid nor test; rename it, or give --valid-share"
            )
        found.setdefault("train", []).extend(others)
    return {split: found[split] for split in SPLITS if split in found}, documents


def _is_of(task: str, place: Path) -> bool:
    return bool({task, f"{task}.zip"} & set(place.parts))


def _inside(parent: Path, source: Source) -> Path:
    """The path of a source from the folder of what the command line names."""
    path = source.path.relative_to(parent) if source.path.is_relative_to(parent) else Path(source.path.name)
    return path / source.member


def _split_ids(source: Source) -> Iterator[tuple[tuple[str, str], str]]:
    """The folder and id of each document that a file such as ``crs_train.ids`` names, and its split."""
    folder, _, split = source.path.stem.rpartition("_")
    if split not in SPLIT_OF:
        raise InputError(f"{source.path}: its name must be FOLDER_SPLIT.ids, such as crs_train.ids")
    for name in source.path.read_text(encoding="utf-8").split():
        yield (folder, name), SPLIT_OF[split]


class _Documents:
    """The texts of documents by id, on disk: Multi-LexSum has several GB of them."""

    def __init__(self, files: Sequence[Source]) -> None:
        self._files, self._places, self._texts = files, {}, tempfile.TemporaryFile()  # noqa: SIM115 - while records are read

    def texts(self, names: Iterable[object]) -> list[str]:
        """The texts of documents."""
        if not self._places:
            self._read()
        found = []
        for name in names:
            if name not in self._places:
                raise BadLine(f"no such document: {str(name)[:60]!r} is not in {self._files[0].name}")
            start, size = self._places[name]
            self._texts.seek(start)
            found.append(self._texts.read(size).decode())
        return found

    def _read(self) -> None:
        for record in reader.read(self._files):
            fields = keys.parsed_object(record.data)
            if fields and isinstance(text := fields.get("doc_text"), str):
                data = text.encode("utf-8", "replace")
                self._places[str(fields.get("id"))] = self._texts.tell(), self._texts.write(data)


def _expanded(records: Iterator[Record], preset: Preset, documents: _Documents | None) -> Iterator[Record]:
    """The examples inside of records, and the documents of their cases."""
    for lists in preset.each:
        records = reader.each(records, lists)
    return records if documents is None else (_joined(record, documents) for record in records)


def _joined(record: Record, documents: _Documents) -> Record:
    fields = keys.parsed_object(record.data)
    if fields is None or not isinstance(names := fields.get(JOINED), list):
        return record
    try:
        return replace(record, data=json.dumps({**fields, JOINED: documents.texts(map(str, names))}).encode())
    except BadLine as error:
        return replace(record, data=None, problem=str(error))


def _read(
    read: Callable[[], Iterator[Record]],
    expand: Callable[[Iterator[Record]], Iterator[Record]],
    several: bool,
    id_keys: Sequence[str],
) -> Iterator[Record]:
    """The examples of a split; of those with one id only the first, unless there may be several."""
    seen: set[str] = set()
    for record in expand(read()):
        if not several and record.data is not None:
            name = arxiv_pubmed.name_of(record, id_keys)
            record = replace(record, data=_ANOTHER) if name in seen else record
            seen.add(name)
        yield record


def gold(name: str, files: Sequence[str], split: str | None = None) -> dict[str, list[str]]:
    """Read the references of each id from the files of a preset."""
    preset = PRESETS[name]
    splits, _ = find_sources(name, files, divided=True)
    chosen = SPLIT_OF.get(split or "", split) or (next(iter(splits)) if len(splits) == 1 else "valid")
    if chosen not in splits:
        raise InputError(f"{files[0]}: there is no split {chosen}; it has {', '.join(splits)}, and --split names one")
    found: dict[str, list[str]] = {}
    for record in _expanded(reader.read(splits[chosen], Reading()), preset, None):
        try:
            if record.data is None:
                raise BadLine(record.problem)
            fields = read_object(record.data)
            text = next((text for key in preset.summary if (text := keys.under(fields, key)) is not None), None)
            name_of_record = arxiv_pubmed.name_of(record, preset.id)
            if text is None and any(key in fields for key in preset.summary):  # null, as Multi-LexSum has it
                found.setdefault(name_of_record, [])
                continue
            if text is None:
                raise BadLine(f"no {' or '.join(preset.summary)}: those of a test set may not be public")
            text = text if isinstance(text, str) else arxiv_pubmed.summary_of(fields, preset.summary)
            found.setdefault(name_of_record, []).append(text)
        except BadLine as error:
            raise InputError(f"{record.file}, line {record.line}: {error}") from None
    if found and not any(found.values()):
        raise InputError(f"{files[0]}: no document has a reference; those of a test set may not be public")
    return found

"""``poolingformer-preprocess scrolls/TASK FILES``: tasks of SCROLLS and ZeroSCROLLS, and the references of their ids.

A record has ``id``, ``input`` and ``output``; the names of files say the split. An input that has several references
is an example of each in train, and one elsewhere.
"""

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from fairseq_poolingformer.tasks.presets import PRESETS, SUITES
from fairseq_poolingformer.text.json_values import BadLine, read_object, text_of

from . import arxiv_pubmed
from .pipeline import command
from .pipeline.records import Example, InputError, Record, Reject, Skipped
from .pipeline.run import Corpus
from .pipeline.splits import SPLIT_OF, SPLITS
from .records import options, reader, sources
from .records.formats import Reading
from .records.sources import Source

ANOTHER = "another reference of an input"
_ANOTHER = b""  # the data of such a record
_LENGTH = 16384  # the most tokens of inputs that are usual
_name_of = functools.partial(arxiv_pubmed.name_of, id_keys=["id"])


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
    parser.set_defaults(max_source_length=[_LENGTH], data=None, train=None, valid=None, test=None)
    return parser


def make_corpus(args: argparse.Namespace, name: str) -> Corpus:
    """Describe the corpus that the command line names."""
    data = options.find(args, _name_of, sources=find_sources(name, args.files, options.divides(args)))
    splits = {
        split: replace(
            one,
            files=(),
            records=functools.partial(_read, one.records, several=split == "train"),
            parse=functools.partial(parse, annotated=split != "test"),
        )
        for split, one in data.splits.items()
    }
    settings = {"max_line_bytes": args.max_line_bytes, **data.settings}
    return arxiv_pubmed.corpus_of(
        name, replace(data, splits=splits), parse, settings, has_query=False, entries={"preset": name}
    )


def parse(record: Record, annotated: bool = True) -> Example | Reject | Skipped:
    """Make an example of a record; ``annotated`` says whether there must be an output."""
    if record.data == _ANOTHER:
        return Skipped(ANOTHER)
    keys = {"article_keys": ["input"], "summary_keys": ["output"], "id_keys": ["id"]}
    return arxiv_pubmed.parse(record, **keys, annotated=annotated)


def find_sources(name: str, files: Sequence[str], divided: bool = False) -> dict[str, list[Source]]:
    """Find the files of each split; of those that name tasks of the suite, only this one's."""
    inside = {source: _inside(Path(file).parent, source) for file in files for source in sources.expand([file])}
    suite, _, task = name.partition("/")
    if own := {source: place for source, place in inside.items() if _is_of(task, place)}:
        inside = own
    elif other := next((one for one in SUITES[suite] for place in inside.values() if _is_of(one, place)), None):
        raise InputError(f"{files[0]}: holds {other}, not {task}")
    found: dict[str, list[Source]] = {}
    others = []
    for source, place in inside.items():
        split = sources.split_named(place.as_posix())
        (found.setdefault(split, []) if split else others).append(source)
    if others and (divided or not found):
        if not divided:
            raise InputError(
                f"{others[0].name}: its name says neither train, valid nor test; rename it, or give --valid-share"
            )
        found.setdefault("train", []).extend(others)
    return {split: found[split] for split in SPLITS if split in found}


def _is_of(task: str, place: Path) -> bool:
    return bool({task, f"{task}.zip"} & set(place.parts))


def _inside(parent: Path, source: Source) -> Path:
    """The path of a source from the folder of what the command line names."""
    path = source.path.relative_to(parent) if source.path.is_relative_to(parent) else Path(source.path.name)
    return path / source.member


def _read(read: Callable[[], Iterator[Record]], several: bool) -> Iterator[Record]:
    """The examples of a split; of those with one id only the first, unless there may be several."""
    seen: set[str] = set()
    for record in read():
        if not several and record.data is not None:
            name = _name_of(record)
            record = replace(record, data=_ANOTHER) if name in seen else record
            seen.add(name)
        yield record


def gold(name: str, files: Sequence[str], split: str | None = None) -> dict[str, list[str]]:
    """Read the references of each id from the files of a preset; those that are null are left out."""
    splits = find_sources(name, files, divided=True)
    chosen = SPLIT_OF.get(split or "", split) or (next(iter(splits)) if len(splits) == 1 else "valid")
    if chosen not in splits:
        raise InputError(f"{files[0]}: there is no split {chosen}; it has {', '.join(splits)}, and --split names one")
    found: dict[str, list[str]] = {}
    for record in reader.read(splits[chosen], Reading()):
        try:
            if record.data is None:
                raise BadLine(record.problem)
            fields = read_object(record.data)
            references = found.setdefault(_name_of(record), [])
            if fields.get("output") is not None:
                references.append(text_of(fields, "output"))
        except ValueError as error:
            raise InputError(f"{record.file}, line {record.line}: {error}") from None
    if found and not any(found.values()):
        raise InputError(f"{files[0]}: no document has a reference; those of a test set may not be public")
    return found

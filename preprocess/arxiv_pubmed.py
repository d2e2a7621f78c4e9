"""arXiv, PubMed, BigPatent and any other summarization corpus in JSON lines, to a data folder.

A line, in a plain or compressed file, has one of two forms:

- the arXiv/PubMed release (Cohan et al., 2018): ``article_id, article_text, abstract_text, section_names, sections``,
  where texts are lists of sentences and those of the abstract are marked ``<S> … </S>``;
- ``{"article" | "document" | "text" | "description": …, "abstract" | "summary": …}`` with a string, or a list of
  strings, each. BigPatent (Sharma et al., 2019) has ``description`` and ``abstract``. ``--article-key`` and
  ``--summary-key`` name other keys; ``paper.body`` is the key ``body`` of the object under ``paper``, which may be
  JSON inside a string, and ``report.*.paragraphs`` all ``paragraphs`` in ``report``, however deep, in order.

In the release's form, this module replaces whitespace inside a sentence by single spaces and joins sentences by a space
and sections by a newline. In the other form, it removes whitespace at both ends of a string and joins strings by a
newline. It joins the summary's sentences by a space and removes their marks. It puts nothing before the text: GPT-2 BPE
sees no leading space, as in fairseq's own recipes for BART.
"""

import argparse
import functools
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_poolingformer.text.json_lines import BadLine, read_object, type_name

from .pipeline import command
from .pipeline.records import Example, InputError, Record, Reject, describe_files, expand, read_lines
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords

ARTICLE_KEYS = ("article_text", "article", "document", "text", "description")
SUMMARY_KEYS = ("abstract_text", "abstract", "summary")
_ID_KEYS = ("article_id", "id", "publication_number")
_DEEPER = "*"  # in a key: at any depth
_MARKS = re.compile(r"</?S>")
_FILES_OF_RELEASE = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}
_SUFFIXES = (".txt", ".jsonl", ".json")


def parse(
    record: Record,
    section_names: bool = False,
    article_keys: Sequence[str] = ARTICLE_KEYS,
    summary_keys: Sequence[str] = SUMMARY_KEYS,
) -> Example | Reject:
    """Make an example of one line.

    Args:
        record: the line.
        section_names: whether to put the name of each section, where known, before it on a line of its own.
        article_keys: where the article is; the first key that the line has.
        summary_keys: where the summary is.

    Returns:
        An example with the texts article and summary, or the reason why the line gives none.
    """
    try:
        fields = read_object(record.data)
        article = _article(fields, article_keys, section_names)
        summary = _summary(fields, summary_keys)
        ids = (fields[key] for key in _ID_KEYS if key in fields and not _is_blank(fields[key]))
        name = next(ids, f"{Path(record.file).name}:{record.line}")
    except BadLine as error:
        return Reject(str(error))
    except RecursionError:
        return Reject("nested too deeply")
    if not isinstance(name, str | int):
        return Reject(f"wrong type: the id is {type_name(name)}, not a string")
    return Example(str(name), (article, summary))


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _article(fields: dict, keys: Sequence[str], section_names: bool) -> str:
    key, value = _first(fields, keys, "article", "--article-key")
    if isinstance(value, str):
        text = value.strip()
    elif key == "article_text":
        text = _join_sections(fields, value, _sentences(key, value), section_names)
    else:
        text = "\n".join(_sentences(key, value))
    if not text:
        raise BadLine(f"empty article: {key}")
    return text


def _summary(fields: dict, keys: Sequence[str]) -> str:
    key, value = _first(fields, keys, "summary", "--summary-key")
    sentences = _sentences(key, [value] if isinstance(value, str) else value, marks=True)
    if not sentences:
        raise BadLine(f"empty summary: {key}")
    return " ".join(sentences)


def _join_sections(fields: dict, raw: list[str], article: list[str], section_names: bool) -> str:
    """Join the sentences of an article; break it at sections where ``sections`` has the same sentences.

    ``article`` is ``raw`` after :func:`_sentences`.
    """
    sections = fields.get("sections")
    if not (isinstance(sections, list) and all(isinstance(section, list) for section in sections)):
        return " ".join(article)
    if len(raw) == len(article) and list(itertools.chain.from_iterable(sections)) == raw:  # no need to do it again
        sentences = iter(article)
        cut = [list(itertools.islice(sentences, len(section))) for section in sections]
    else:
        cut = [_sentences("sections", section) for section in sections]
    if [sentence for section in cut for sentence in section] != article:
        return " ".join(article)
    blocks = [" ".join(section) for section in cut]
    if section_names:
        names = _sentences("section_names", fields.get("section_names") or [], keep_empty=True)
        if len(names) == len(blocks):
            blocks = [
                f"{name}\n{block}" if name and block else block for name, block in zip(names, blocks, strict=True)
            ]
    return "\n".join(block for block in blocks if block)


def _first(fields: dict, keys: Sequence[str], what: str, option: str) -> tuple[str, object]:
    """The first of several keys under which a line has more than null, and its value."""
    for key in keys:
        if (value := _under(fields, key)) is None:
            continue
        if isinstance(value, str) and isinstance(inner := _parsed(value), dict | list):
            raise BadLine(
                f"JSON inside a string: {key} holds {type_name(inner)} as text, not the {what} itself"
                + (f"; name a key of it, such as {option} {key}.{next(iter(inner))}" if isinstance(inner, dict) else "")
            )
        _refuse_deeper(fields, key, option)
        return key, value
    found = ", ".join(fields) or "none"
    raise BadLine(f"no {what}: the line lacks {' and '.join(keys)}; its keys are {found} (name one with {option})")


def _under(fields: dict, key: str) -> object:
    """What a line has under a key such as ``paper.body`` or ``report.*.paragraphs``; None for nothing."""
    if key in fields:
        return fields[key]
    value: object = fields
    names = key.split(".")
    for number, name in enumerate(names):
        value = _parsed(value) if isinstance(value, str) else value
        if name == _DEEPER:
            return _flat(_collect(value, ".".join(names[number + 1 :]))) or None
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _collect(value: object, name: str) -> Iterator[object]:
    """The values under a name in an object or a list and everything inside it, in the order of the line."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from [inner] if key == name else _collect(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _collect(inner, name)


def _objects(value: object) -> Iterator[dict]:
    """The objects in a value, however deep."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _flat(values: Iterable[object]) -> list[object]:
    return [item for value in values if value is not None for item in (value if isinstance(value, list) else [value])]


def _refuse_deeper(fields: dict, key: str, option: str) -> None:
    """Refuse a key of an object that has objects of the very same keys inside it, as a section has sections."""
    place, _, name = key.rpartition(".")
    around = _under(fields, place) if place and key not in fields else None
    if not isinstance(around, dict):
        return
    if deeper := sum(inner.keys() == around.keys() for inner in _objects(list(around.values()))):
        raise BadLine(
            f"nested sections: {key} leaves out the {name} of {deeper} sections inside {place}; "
            f"{option} {place}.{_DEEPER}.{name} reads all of them in order"
        )


def _parsed(text: str) -> object:
    """The value that a text holds as JSON; None where it holds none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _sentences(key: str, value: object, marks: bool = False, keep_empty: bool = False) -> list[str]:
    """The sentences of a list with their whitespace made single spaces, empty ones left out."""
    if not isinstance(value, list):
        raise BadLine(f"wrong type: {key} is {type_name(value)}, not a string or a list of strings")
    sentences = []
    for position, sentence in enumerate(value):
        if not isinstance(sentence, str):
            raise BadLine(f"wrong type: {key}[{position}] is {type_name(sentence)}, not a string")
        sentences.append(" ".join((_MARKS.sub(" ", sentence) if marks else sentence).split()))
    return sentences if keep_empty else [sentence for sentence in sentences if sentence]


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Make the corpus that the command line names.

    Raises:
        InputError: a file is missing, or named twice.
    """
    files = _files(args)
    keys = {"article_keys": args.article_key, "summary_keys": args.summary_key}
    options = {"section_names": args.section_names} | {name: value for name, value in keys.items() if value}
    read = functools.partial(read_lines, max_line_bytes=args.max_line_bytes)
    return Corpus(
        name="arxiv_pubmed",
        splits={split: SplitRecords.of_files(read, paths) for split, paths in files.items()},
        parse=functools.partial(parse, **options),
        settings={**options, "max_line_bytes": args.max_line_bytes},
        inputs=describe_files(files),
    )


def _files(args: argparse.Namespace) -> dict[str, list[Path]]:
    named = {"train": args.train, "valid": args.valid, "test": args.test}
    if args.input_folder is None:
        files = {split: expand(patterns) for split, patterns in named.items() if patterns}
    elif any(named.values()):
        raise InputError("--input-folder and --train, --valid, --test exclude each other: give the one or the others")
    else:
        files = {split: _files_of_split(args.input_folder, names) for split, names in _FILES_OF_RELEASE.items()}
        files = {split: found for split, found in files.items() if found}
    if "train" not in files:
        where = (
            f"{args.input_folder}/train.txt[.gz] is missing" if args.input_folder else "give --input-folder or --train"
        )
        raise InputError(f"no training data: {where}")
    return files


def _files_of_split(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """The file of a split, or all files of the split's folder, as BigPatent is released."""
    for name in names:
        if (folder / name).is_dir():
            return sorted(path for path in (folder / name).rglob("*") if path.is_file())
    candidates = [folder / f"{name}{suffix}{gz}" for name in names for suffix in _SUFFIXES for gz in ("", ".gz")]
    found = [path for path in candidates if path.is_file()]
    if len(found) > 1:
        raise InputError(f"--input-folder {folder}: both {found[0].name} and {found[1].name}; name files with --train")
    return found


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("arxiv_pubmed", __doc__)
    group = parser.add_argument_group("input (JSON lines, plain or .gz)")
    text = "a folder of a release: files train.txt, val.txt and test.txt, or .gz, or folders train, val and test"
    group.add_argument("--input-folder", metavar="DIR", type=Path, help=text)
    for split in ("train", "valid", "test"):
        group.add_argument(f"--{split}", metavar="FILE", nargs="+", help=f"files or globs of the {split} split")
    for what, keys in (("article", ARTICLE_KEYS), ("summary", SUMMARY_KEYS)):
        group.add_argument(
            f"--{what}-key",
            metavar="KEY",
            nargs="+",
            help=f"where a line has its {what}: the first of these keys that is there; a.b is b in the object a, "
            f"a.*.b every b in it (default: {' '.join(keys)})",
        )
    text = "put each section's name before it, on a line of its own"
    group.add_argument("--section-names", action="store_true", help=text)
    command.add_max_line_bytes(group)
    return parser


main = functools.partial(command.main, make_parser, make_corpus)

if __name__ == "__main__":
    sys.exit(main())

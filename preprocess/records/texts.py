"""Text files whose names say what belongs together: pairs of lines, texts beside summaries, a folder for each label."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fairseq_poolingformer.text.input_files import TO_UTF_8, TOO_LONG, decoded, decompressed, opened, suffix_of

from ..pipeline.records import Record

OTHER_SIDE = {".src": ".tgt", ".source": ".target"}
_DOCUMENTS = {"document", "article", "newsarticle", "text", "source", "src", "story", "storie"}  # or with an s
_SUMMARIES = {"summary", "summarie", "abstract", "highlight", "target", "tgt"}
_SUMMARY = re.compile(r"(.+)[._-](?:summary|abstract|highlights)$|(.+)$")
_TEXTS = (".txt", ".text", ".md")
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX|(README|LICEN[CS]E)(\.\w+)?$)")


def is_hidden(name: str) -> bool:
    """Whether a file is not data: one that systems leave behind, such as ``.DS_Store``, or one about the data."""
    return _HIDDEN.search(name) is not None


def files_of(folder: Path) -> list[Path]:
    """All files of a folder and its folders, sorted, without hidden ones."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not is_hidden(path.relative_to(folder).as_posix()))


def pair_of(path: Path) -> tuple[Path, Path] | None:
    """The two files whose lines belong together, ``train.src`` and ``train.tgt``, given one; None for other names."""
    suffix = suffix_of(path.name)
    other = (OTHER_SIDE | {target: source for source, target in OTHER_SIDE.items()}).get(suffix)
    if other is None:
        return None
    before, _, after = path.name.rpartition(suffix)
    names = [f"{before}{other}{after}", *(f"{before}{other}{end}" for end in ("", ".gz", ".bz2", ".xz", ".zst"))]
    partner = next((path.with_name(name) for name in names if path.with_name(name).is_file()), None)
    if suffix in OTHER_SIDE and partner is None:
        raise ValueError(f"{path}: {names[0]} is missing, which must have the summary of each line")
    return partner and ((path, partner) if suffix in OTHER_SIDE else (partner, path))


def line_pairs(source: Path, target: Path, max_bytes: int) -> Iterator[Record]:
    """Read each line of a file as ``document`` and the same line of another one as ``summary``."""
    with open(source, "rb") as disk, decompressed(disk, str(source)) as documents, opened(target) as summaries:
        position = 0
        for number in itertools.count(1):
            lines = [content.readline(max_bytes + 1) for content in (documents, summaries)]
            if not any(lines):
                return
            if not all(lines):
                short, long = (source, target) if not lines[0] else (target, source)
                raise ValueError(f"{short}: ends after line {number - 1}, and {long} does not; their lines must match")
            problem = ""
            for content, line in zip((documents, summaries), lines, strict=True):
                while line and not line.endswith(b"\n") and len(line) > max_bytes:
                    line, problem = content.readline(max_bytes + 1), TOO_LONG
            fields = {}
            for key, line in zip(("document", "summary"), lines, strict=True):
                text, problem = decoded(line, number, problem)
                fields[key] = text.rstrip("\r\n").removeprefix("\ufeff")
            data = None if problem else json.dumps(fields).encode()
            yield Record(str(source), number, data, disk.tell() - position, problem)
            position = disk.tell()


def grouped(folder: Path) -> list[dict[str, Path | str]] | None:
    """Group a folder of text files into documents and their summaries."""
    files = files_of(folder)
    if not files or not all(suffix_of(path.name) in _TEXTS for path in files):
        return None
    entries = _grouped(folder, files)
    return None if entries and _is_json(files[0]) else entries


def _grouped(folder: Path, files: Sequence[Path]) -> list[dict[str, Path | str]] | None:
    inside = [path.relative_to(folder) for path in files]
    tops = {path.parts[0] for path in inside if len(path.parts) > 1}
    words = {top: re.sub("[^a-z]", "", top.lower()).removesuffix("s") for top in tops}
    sides = {
        side: [top for top, word in words.items() if word in known]
        for side, known in (("document", _DOCUMENTS), ("summary", _SUMMARIES))
    }
    if all(len(names) == 1 for names in sides.values()):
        entries: dict[str, dict[str, Path | str]] = {}
        for side, (top,) in sides.items():
            for path in (path for path in inside if path.parts[0] == top):
                entries.setdefault(_stem(path.relative_to(top)), {})[side] = folder / path
        return [{"id": name, **entries[name]} for name in sorted(entries)]
    if not tops:
        return _beside(files)
    if all(len(path.parts) == 2 for path in inside) and len(tops) > 1:
        return [{"id": _stem(path), "text": folder / path, "label": path.parts[0]} for path in inside]
    return None


def _is_json(path: Path) -> bool:
    with opened(path) as content:
        return content.peek(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def _beside(files: Sequence[Path]) -> list[dict[str, Path | str]] | None:
    """``NAME.txt`` beside ``NAME.summary.txt``."""
    entries: dict[str, dict[str, Path | str]] = {}
    for path in files:
        stem = _stem(Path(path.name))
        summary, document = _SUMMARY.fullmatch(stem).groups()
        entries.setdefault(summary or document, {})["summary" if summary else "document"] = path
    if not any("summary" in entry for entry in entries.values()):
        return None
    return [{"id": name, **entries[name]} for name in sorted(entries)]


def _stem(path: Path) -> str:
    name = path.as_posix()
    suffix = suffix_of(path.name)
    return name[: name.lower().rindex(suffix)] if suffix else name


def together(entries: Sequence[Mapping[str, Path | str]], max_bytes: int) -> Iterator[Record]:
    """Read the files of each entry of :func:`grouped`."""
    for entry in entries:
        paths = {key: value for key, value in entry.items() if isinstance(value, Path)}
        fields, size = {key: value for key, value in entry.items() if isinstance(value, str)}, 0
        wanted = {"text"} if "text" in entry else {"document", "summary"}
        problem = "".join(f"missing file: the text has no {key}" for key in sorted(wanted - paths.keys()))
        for key, path in paths.items():
            size += path.stat().st_size
            with opened(path) as content:
                data = content.read(max_bytes + 1)
            problem = TOO_LONG if len(data) > max_bytes else problem
            try:
                fields[key] = data.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                problem = problem or f"not UTF-8: byte {error.start} of {path.name}, {error.reason}; {TO_UTF_8}"
        name = str(next(iter(paths.values())))
        yield Record(name, 1, None if problem else json.dumps(fields).encode(), size, problem)

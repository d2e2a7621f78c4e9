"""Reads summaries from text files and from what fairseq-generate prints, without losing the order or a line.

Lines end at line feeds only: carriage returns, tabs and Unicode's line separators inside a summary are
ordinary white space.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

_RECORD = re.compile(r"([STHDPAI])-(\d+)\t(.*)", re.DOTALL)
_END_OF_GENERATION = re.compile(r"Generate \S+ with beam=\d+: (.*)")
_EMPTY_SHARD = re.compile(r"shard \d+ of \d+ has no examples")
_SYMBOLS = re.compile(r"<+(?:unk|s|/s|pad)>+")
_SHOWN = 10


@dataclass
class Generated:
    """Hypotheses and references by the number of the input line they belong to."""

    hypotheses: dict[int, tuple[float, str]] = field(default_factory=dict)
    targets: dict[int, str] = field(default_factory=dict)
    expected: set[int] = field(default_factory=set)


def decode_lines(content: bytes, name: str) -> list[str]:
    """Split a file's bytes into lines without their ends, at line feeds only."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    decoded = []
    for number, line in enumerate(lines, start=1):
        try:
            decoded.append(line.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}, line {number}: not UTF-8 ({error.reason} at byte {error.start})") from None
    return decoded


def one_line(text: str) -> str:
    """Make white space of every kind single spaces, so that a summary is one line whoever reads it."""
    return " ".join(text.split())


def is_generate_output(lines: Sequence[str]) -> bool:
    """Whether the lines are fairseq-generate's output, or its beginning, rather than one plain summary each."""
    return any(_END_OF_GENERATION.match(line) or _is_record(line, "STHD") for line in lines)


def read_generate_output(files: dict[str, Sequence[str]]) -> Generated:
    """Collect the detokenized hypotheses (D- lines) and the targets (T- lines) of one or several shards of a run.

    Of several hypotheses for an input (``--nbest``) the best by its score is kept. The files are lines by name.
    """
    merged, origin = Generated(), {}
    for name, lines in files.items():
        found = _read_one(name, lines)
        if not found.hypotheses and not _is_empty_shard(lines):
            raise ValueError(f"{name} has no D- line (detokenized hypothesis): was it written with --quiet, or cut?")
        for index, hypothesis in found.hypotheses.items():
            if merged.hypotheses.setdefault(index, hypothesis) != hypothesis:
                raise ValueError(
                    f"input {index} has different hypotheses in {origin[index]} and {name}: "
                    "give only the shards of one run"
                )
            origin.setdefault(index, name)
        merged.targets |= found.targets
        merged.expected |= found.expected
    return merged


def in_input_order(found: Generated, count: int | None) -> list[str]:
    """The hypotheses, one per input, in their order.

    Without a ``count`` of inputs the highest number seen is the last one: missing last inputs are not noticed.
    """
    beyond = [index for index in found.hypotheses if count is not None and index >= count]
    if beyond:
        raise ValueError(
            f"there are {count} references, but also hypotheses for input {_some(beyond)}: inputs count from 0. Give "
            "the references of the split that was generated"
        )
    if count is None:
        count = max(found.expected | found.hypotheses.keys()) + 1
    missing = [index for index in range(count) if index not in found.hypotheses]
    if missing:
        raise ValueError(
            f"{len(missing)} of {count} inputs have no hypothesis: {_some(missing)}. Give every shard's file, and the "
            "references of the split that was generated; generate with --required-batch-size-multiple 1 if the last "
            "batch was dropped"
        )
    return [found.hypotheses[index][1] for index in range(count)]


def targets_in_input_order(found: Generated, count: int) -> list[str]:
    """Collect the T- lines of inputs 0 to ``count`` − 1."""
    missing = [index for index in range(count) if index not in found.targets]
    if missing:
        raise ValueError(f"no T- line (target) for input {_some(missing)}: give the references in a file")
    return [found.targets[index] for index in range(count)]


def check_references(found: Generated, references: Sequence[str | Sequence[str]]) -> None:
    """Compare the T- lines, where there are some that can be read, with the references of each input, one or several.

    A target may differ from its reference: it may be cut, have unknown symbols, and be normalized.
    """
    named = [(_words(_SYMBOLS.sub("", text)), references[number]) for number, text in found.targets.items()]
    pairs = [(words, texts) for words, texts in named if words and texts]
    others = [
        all(len(words & _words(one)) < len(words) / 2 for one in ([texts] if isinstance(texts, str) else texts))
        for words, texts in pairs
        if not all(map(str.isdigit, words))  # symbols of GPT-2's BPE
    ]
    if others and 2 * sum(others) > len(others):
        raise ValueError(
            f"{sum(others)} of {len(others)} references are not those of the generated inputs (the T- lines); give the "
            "references of the split that was generated, in its order"
        )


def _words(text: str) -> set[str]:
    text = text.replace(" ", "").replace("\u2581", " ") if "\u2581" in text else text
    return set(unicodedata.normalize("NFKC", text).lower().split())


def _read_one(name: str, lines: Sequence[str]) -> Generated:
    found = Generated()
    records = [_RECORD.match(line) for line in lines]
    sources: set[tuple[str, int]] = set()
    last = -1
    for position, record in enumerate(records):
        if record is None:
            continue
        kind, index, text = record[1], int(record[2]), record[3]
        if kind in "ST":
            if (kind, index) in sources:
                raise ValueError(
                    f"{name}, line {position + 1}: input {index} comes a second time, so there are several runs in the "
                    "file; leave one"
                )
            sources.add((kind, index))
        elif kind == "D" and not sources and index in found.hypotheses and index != last:
            raise ValueError(f"{name}, line {position + 1}: input {index} comes a second time; leave one of the runs")
        found.expected.add(index)
        if kind == "T":
            found.targets[index] = text + _continuation(lines, records, position, "H")
        elif kind == "D":
            score, tab, hypothesis = text.partition("\t")
            if not tab:
                raise ValueError(f"{name}, line {position + 1}: D-{index} has no score before its text")
            hypothesis += _continuation(lines, records, position, "P")
            if index not in found.hypotheses or float(score) > found.hypotheses[index][0]:
                found.hypotheses[index] = float(score), hypothesis
            last = index
    if found.targets and not any(map(_END_OF_GENERATION.match, lines)):
        raise ValueError(
            f"{name}: its end is missing, fairseq-generate's line 'Generate …': the run was stopped, or the file was "
            "cut; generate again"
        )
    return found


def _continuation(lines: Sequence[str], records: list, position: int, successor: str) -> str:
    """The rest of a text with line feeds of its own: up to the record that fairseq prints next for that input."""
    end = position + 1
    while end < len(lines) and records[end] is None:
        end += 1
    if end == len(lines) or records[end][1] != successor or records[end][2] != records[position][2]:
        return ""
    return "".join(" " + line for line in lines[position + 1 : end])


def _is_record(line: str, kinds: str) -> bool:
    record = _RECORD.match(line)
    return record is not None and record[1] in kinds


def _is_empty_shard(lines: Sequence[str]) -> bool:
    ends = map(_END_OF_GENERATION.match, lines)
    return any(end is not None and _EMPTY_SHARD.fullmatch(end[1]) for end in ends)


def _some(indices: list[int]) -> str:
    shown = ", ".join(map(str, sorted(indices)[:_SHOWN]))
    return f"{shown}, … ({len(indices)} in all)" if len(indices) > _SHOWN else shown

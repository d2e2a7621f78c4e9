"""Every flavour of ROUGE side by side, and plain hypotheses from fairseq-generate's output: ``poolingformer score``."""

from __future__ import annotations

import argparse
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field

from fairseq_poolingformer.command import UsageError, aligned, output_file
from fairseq_poolingformer.options import Patterns, positive
from fairseq_poolingformer.tasks.summarization.rouge import (
    FILES2ROUGE_INSTALL,
    ROUGE_LABELS,
    ROUGE_TYPES,
    RougeEstimate,
    bootstrap,
    describe,
    files2rouge,
    lead_baseline,
    rouge_scores,
    unread_note,
)
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.input_files import read_input

_RECORD = re.compile(r"([STHDPAI])-(\d+)\t(.*)", re.DOTALL)
_END_OF_GENERATION = re.compile(r"Generate \S+ with beam=\d+: (.*)")
_EMPTY_SHARD = re.compile(r"shard \d+ of \d+ has no examples")
_CHECKPOINT = re.compile(r"Checkpoint (.*), checksum ([0-9a-f:]+)")  # of fairseq-generate, by the plugin
_LOG = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,?\d* \| )?(DEBUG|INFO|WARNING|ERROR)( \| |:)")
_SYMBOLS = re.compile(r"(?<!<)<+(?:unk|s|/s|pad)>+")  # from the first of a run on, in linear time
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


def is_generate_output(lines: Iterable[str]) -> bool:
    """Whether the lines are fairseq-generate's output, or its beginning, rather than one plain summary each."""
    return any(_END_OF_GENERATION.match(line) or re.match(r"[STHD]-\d+\t", line) for line in lines)


def read_generate_output(files: dict[str, Sequence[str]]) -> Generated:
    """Collect hypotheses (D- lines, the best of ``--nbest``) and targets (T- lines) of a run's shards, by name."""
    merged, origin = Generated(), {}
    checkpoints: dict[str, str] = {}  # checksum -> where it stands
    for name, lines in files.items():
        checkpoints |= {match[2]: f"{match[1]} ({name})" for match in map(_CHECKPOINT.fullmatch, lines) if match}
        if len(checkpoints) > 1:
            raise ValueError(
                f"these are hypotheses of several checkpoints: {', '.join(checkpoints.values())}; score one"
            )
        generated = _read_one(name, lines)
        ends = filter(None, map(_END_OF_GENERATION.match, lines))
        if not generated.hypotheses and not any(_EMPTY_SHARD.fullmatch(end[1]) for end in ends):
            raise ValueError(f"{name} has no D- line (detokenized hypothesis): was it written with --quiet, or cut?")
        for index, hypothesis in generated.hypotheses.items():
            if merged.hypotheses.setdefault(index, hypothesis) != hypothesis:
                raise ValueError(
                    f"input {index} has different hypotheses in {origin[index]} and {name}: "
                    "give only the shards of one run"
                )
            origin.setdefault(index, name)
        merged.targets |= generated.targets
        merged.expected |= generated.expected
    return merged


def in_input_order(generated: Generated, count: int | None) -> list[str]:
    """The hypotheses in input order; without a ``count``, missing last inputs are not noticed."""
    beyond = [index for index in generated.hypotheses if count is not None and index >= count]
    if beyond:
        raise ValueError(
            f"there are {count} references, but also hypotheses for input {_some(beyond)}: inputs count from 0. Give "
            "the references of the split that was generated"
        )
    if count is None:
        count = max(generated.expected | generated.hypotheses.keys()) + 1
    missing = [index for index in range(count) if index not in generated.hypotheses]
    if missing:
        raise ValueError(
            f"{len(missing)} of {count} inputs have no hypothesis: {_some(missing)}. Give every shard's file, and the "
            "references of the split that was generated; generate with --required-batch-size-multiple 1 if the last "
            "batch was dropped"
        )
    return [generated.hypotheses[index][1] for index in range(count)]


def check_references(generated: Generated, references: Sequence[str]) -> None:
    """Compare T- lines with the references; one may differ: cut, normalized, with unknown symbols."""
    named = [(_words(_SYMBOLS.sub("", text)), references[number]) for number, text in generated.targets.items()]
    others = [
        len(words & _words(text)) < len(words) / 2
        for words, text in named
        if words and text and not all(map(str.isdigit, words))  # symbols of GPT-2's BPE
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
    generated = Generated()
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
        elif kind == "D" and not sources and index in generated.hypotheses and index != last:
            raise ValueError(f"{name}, line {position + 1}: input {index} comes a second time; leave one of the runs")
        generated.expected.add(index)
        if kind == "T":
            generated.targets[index] = text + _continuation(lines, records, position, "H")
        elif kind == "D":
            score, tab, hypothesis = text.partition("\t")
            if not tab:
                raise ValueError(f"{name}, line {position + 1}: D-{index} has no score before its text")
            hypothesis += _continuation(lines, records, position, "P")
            if index not in generated.hypotheses or float(score) > generated.hypotheses[index][0]:
                generated.hypotheses[index] = float(score), hypothesis
            last = index
    if generated.targets and not any(map(_END_OF_GENERATION.match, lines)):
        raise ValueError(
            f"{name}: its end is missing, fairseq-generate's line 'Generate …': the run was stopped, or the file was "
            "cut; generate again"
        )
    return generated


def _continuation(lines: Sequence[str], records: list, position: int, successor: str) -> str:
    """The rest of a text with line feeds of its own: up to the record that fairseq prints next for that input."""
    end = position + 1
    while end < len(lines) and records[end] is None:
        end += 1
    if end == len(lines) or records[end][1] != successor or records[end][2] != records[position][2]:
        return ""
    return "".join(" " + line for line in lines[position + 1 : end])


def _some(indices: list[int]) -> str:
    shown = ", ".join(map(str, sorted(indices)[:_SHOWN]))
    return f"{shown}, … ({len(indices)} in all)" if len(indices) > _SHOWN else shown


_EPILOG = f"""\
examples:
  fairseq-generate … | tee gen.out; poolingformer score gen.out --references test.summary.txt --output test.hypo
  poolingformer score shard0.out shard1.out --references test.summary.txt
  poolingformer score --documents test.document.txt --lead-words 200 --references test.summary.txt

which row to compare with a published number:
  PEGASUS, BigBird, LongT5, Hugging Face   rouge-score, stemming, Lsum
  LED                                      rouge-score, no stemming; the paper's R-L may be either
  BART, fairseq                            ROUGE-1.5.5 through files2rouge, after PTB tokenization; its "R-L" is an Lsum

files2rouge is used when installed; it is only on GitHub:
{chr(10).join("  " + line for line in FILES2ROUGE_INSTALL.splitlines())}
It needs perl's XML::Parser (Debian: apt-get install libxml-parser-perl; without root: in the folder of ROUGE-1.5.5.pl,
since pyrouge drops PERL5LIB).
"""


@dataclass(frozen=True)
class Flavour:
    """A row of the table: a tool, its settings and its scores; ROUGE-1.5.5 has no rougeL of rouge-score's kind."""

    tool: str
    stemming: bool
    scores: dict[str, RougeEstimate]


def make_parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Score fairseq-generate's output, or plain lines, with every flavour of ROUGE.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    text = "fairseq-generate's output, all shards of one run, or one file of plain hypotheses, one a line "
    text += "(default: -, standard input)"
    add("input", nargs="*", action=Patterns, help=text)
    text = "one a line, in the order of the input (default: the T- lines of the input)"
    add("--references", "--gold", metavar="FILE", help=text)
    text = "write the hypotheses here, one a line in the order of the input"
    add("--output", type=output_file, metavar="FILE", help=text)
    text = "write precision, recall and F1 of every flavour with their intervals here"
    add("--json", type=output_file, metavar="FILE", help=text)
    text = "leave out ROUGE-1.5.5, which takes a quarter of an hour for thousands of pairs"
    add("--no-perl", action="store_true", help=text)
    text = "score the beginning of these documents, one a line, instead of an input"
    add("--documents", metavar="FILE", help=text)
    add("--lead-words", type=positive, metavar="N", help="as many words of each document")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print every flavour of ROUGE, and write the files that were asked for."""
    if (args.documents is None) != (args.lead_words is None):
        raise UsageError("--documents goes with --lead-words")
    if args.documents is not None and args.input:
        raise UsageError("--documents takes the place of an input: give one of the two")
    hypotheses, references = _read(args)
    if not hypotheses:
        raise ValueError("the input has no hypothesis")
    if empty := sum(not hypothesis for hypothesis in hypotheses):
        if empty == len(hypotheses):
            raise ValueError(f"all {empty} hypotheses are empty")
        print(f"{empty} of {len(hypotheses)} hypotheses are empty, which score 0", file=sys.stderr)
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: each hypothesis needs its reference"
        )
    if args.output:
        write_lines(args.output, hypotheses)
    pairs = [(hypothesis, right) for hypothesis, right in zip(hypotheses, references, strict=True) if right]
    if len(pairs) < len(references):
        without = len(references) - len(pairs)
        print(f"{without} of {len(references)} documents have no reference and are left out", file=sys.stderr)
    if not pairs:
        raise ValueError("no document has a reference; those of a test set may not be public")
    hypotheses, references = map(list, zip(*pairs, strict=True))
    note = unread_note(references)
    settings = [("rouge-score", True, False), ("rouge-score", False, False)]
    settings += [("any script", False, True)] if note else []
    with ProcessPoolExecutor(len(settings)) as pool:
        texts = ([column] * len(settings) for column in (hypotheses, references))
        flavours = list(pool.map(_flavour, *texts, *zip(*settings, strict=True)))
    print(describe(flavours[0].scores, examples=len(hypotheses)))
    if note:
        print(note)
    if not args.no_perl:
        try:
            flavours.append(Flavour("ROUGE-1.5.5 (files2rouge)", True, files2rouge(hypotheses, references)))
        except RuntimeError as error:
            print(f"no row of ROUGE-1.5.5: {error}", file=sys.stderr)
    print("\n" + table(flavours))
    if args.json:
        report = {"examples": len(hypotheses), "flavours": [asdict(flavour) for flavour in flavours]}
        write_lines(args.json, [json.dumps(report, indent=2)])


def _read(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Read hypotheses and references in the order of the input, each as one line."""
    references = _read_plain(args.references) if args.references else None
    if args.documents:
        if references is None:
            raise ValueError("the lead baseline needs --references")
        return [lead_baseline(text, args.lead_words) for text in _read_plain(args.documents)], references
    files = {name: _read_lines(name) for name in args.input or ["-"]}
    if not any(is_generate_output(lines) for lines in files.values()):
        if len(files) > 1:
            raise ValueError("several inputs must all be fairseq-generate's output; plain hypotheses are one file")
        if references is None:
            raise ValueError("plain hypotheses need --references")
        for name, lines in files.items():
            if logged := next((number for number, line in enumerate(lines, 1) if _LOG.match(line)), None):
                raise ValueError(
                    f"{name}, line {logged}: a line of a log in place of a hypothesis; give fairseq-generate's output, "
                    "or the hypotheses alone"
                )
        return [one_line(line) for lines in files.values() for line in lines], references
    generated = read_generate_output(files)
    hypotheses = in_input_order(generated, None if references is None else len(references))
    if references is not None:
        check_references(generated, references)
    else:
        if missing := [index for index in range(len(hypotheses)) if index not in generated.targets]:
            raise ValueError(f"no T- line (target) for input {_some(missing)}: give the references in a file")
        references = [one_line(generated.targets[index]) for index in range(len(hypotheses))]
    return [one_line(hypothesis) for hypothesis in hypotheses], references


def _read_lines(name: str) -> list[str]:
    return decode_lines(read_input(name), "standard input" if name == "-" else name)


def _read_plain(name: str) -> list[str]:
    return [one_line(line) for line in _read_lines(name)]


def _flavour(hypotheses: list[str], references: list[str], tool: str, stemming: bool, any_script: bool) -> Flavour:
    scores = rouge_scores(hypotheses, references, stemmer=stemming, any_script=any_script)
    return Flavour(tool, stemming, bootstrap(scores))


def table(flavours: list[Flavour]) -> str:
    heads = ["F1 × 100", "stemming", *(label.replace("OUGE", "") for label in ROUGE_LABELS.values())]
    rows = [heads]
    for row in flavours:
        f1 = {name: f"{100 * score.f1.mean:.2f}" for name, score in row.scores.items()}
        rows.append([row.tool, "on" if row.stemming else "off", *(f1.get(name, "-") for name in ROUGE_TYPES)])
    lines = [aligned(rows, left=2)]
    if any("rougeL" not in row.scores for row in flavours):
        lines.append(
            "ROUGE-1.5.5's ROUGE-L is summary-level, so it is in column R-Lsum; its averages are over resamples."
        )
    return "\n".join(lines)

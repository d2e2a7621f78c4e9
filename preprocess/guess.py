"""What people's data are for, told by their columns, and how ``poolingformer finetune`` reads them."""

import argparse
import importlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_poolingformer.command import did_you_mean
from fairseq_poolingformer.tasks.registry import PURPOSES

from . import squad
from .arxiv_pubmed import ARTICLE_KEYS, ID_KEYS, SUMMARY_KEYS
from .pipeline import command, task_corpus
from .pipeline.records import InputError, Record
from .pipeline.run import Corpus
from .records import keys, options, reader
from .records.sources import expand, splits_of

SAMPLE = 200  # records whose columns are looked at
SHOWN, SHOWN_CHARS = 8, 20  # columns in messages, and of each

INSTRUCTION = "instruction"  # before an input, as Alpaca's rows have it
ARTICLES = (*ARTICLE_KEYS, "report", "dialogue", "source", "input", "content", "prompt")
ARTICLES += ("messages.-2.content", "conversations.-2.value")
SUMMARIES = (*SUMMARY_KEYS, "highlights", "target", "output", "completion", "response")
SUMMARIES += ("messages.-1.content", "conversations.-1.value")
TEXTS = ("text", "document", "article", "content", "body", "review", "sentence", "comment", "tweet")
PAIRS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2"))
LABELS = ("label", "labels", "class", "category", "sentiment", "score", "rating", "stars", "topic", "intent")
INPUT_KEYS = ("article_key", "query_key", "text_key", "pair_key", "id_key", "records_key")
NOT_HERE = {"--max-positions", "--report", "--task"}  # options of preprocessing that are for data folders alone


@dataclass(frozen=True)
class Purpose:
    """What data are for."""

    name: str  # a key of PURPOSES
    columns: tuple[str, ...]  # the options that name the columns
    text: str  # which columns, in words

    @property
    def task(self) -> str:
        """fairseq's ``--task``."""
        return PURPOSES[self.name][0]

    @property
    def corpus(self) -> str:
        """The command of ``poolingformer preprocess``."""
        return PURPOSES[self.name][1]

    def command(self) -> Any:
        """The functions ``make_parser`` and ``make_corpus`` of that command."""
        return importlib.import_module(f"..{self.corpus}", __name__)


@dataclass(frozen=True)
class Guess:
    """How data are read."""

    purpose: Purpose
    corpus: Corpus
    used: Sequence[str]  # columns
    left_out: Sequence[str]
    keys: Mapping[str, Any]  # the options that name what is read, but for what is to be learned


def to_predict(data: str, task: str, given: Sequence[str], defaults: Mapping[str, Any]) -> Guess:
    """How records are read whose summaries, labels or answers are not known; ``defaults`` are of options."""
    purpose = Purpose(task, (), "records")
    parser = purpose.command().make_parser()
    parser.set_defaults(**defaults)
    return _guess(purpose, parser, ["--train", data, *given], (), {"--output"})


def guess(data: str, given: Sequence[str], task: str | None = None, known: Collection[str] = ()) -> Guess:
    """Find out how data are read; ``given`` are options that say it, ``known`` those of the command beside them."""
    reading, _ = _reading_parser().parse_known_args(given)
    named = ["--train" if reading.valid or reading.test else "--data", data]
    reading.data, reading.train = (None, [data]) if named[0] == "--train" else (data, None)
    if reading.data:
        found = splits_of(data, unnamed=True)
        if "train" not in found:
            raise InputError(f"{data}: only {' and '.join(sorted(found)) or 'nothing'} in it, and nothing to train on")
        if not options.divides(reading) and "train" not in splits_of(data, unnamed=False):
            paths = {split: dict.fromkeys(str(one.path) for one in sources) for split, sources in found.items()}
            named = [word for split in paths for word in (f"--{split}", *paths[split])]  # a folder of any names
    else:
        found = {"train": expand([data])}
    records = reader.read(found["train"], options.reading_of(reading))
    often, columns = _columns(squad.questions(reader.each(records, reading.each) if reading.each else records))
    first = next(iter(reader.read(found["train"], options.reading_of(reading))), None)
    if not columns and first and first.data is None:
        raise InputError(f"{first.file}, line {first.line}: {first.problem}")
    split = next((column for column in often if column.casefold() == "split"), None)
    if split and reading.data and set(found) == {"train"} and not options.divides(reading):
        return guess(data, [*given, "--split-key", split], task, known)
    purpose = _purpose(data, often, given, task)
    parser = purpose.command().make_parser()
    return _guess(purpose, parser, [*named, *given, *purpose.columns], columns, known)


def _guess(
    purpose: Purpose,
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    columns: Sequence[str],
    known: Collection[str],
) -> Guess:
    refused = NOT_HERE | set(command.make_parser(purpose.corpus, "-")._option_string_actions)
    if wrong := [word for word in words if word.partition("=")[0] in refused]:
        raise InputError(f"{wrong[0]}: is for data folders of fairseq; this command has no such option")
    args, others = parser.parse_known_args([*words, "--output-folder", ".", "--sentencepiece-train", "1000"])
    if others:
        similar = did_you_mean(others[0].partition("=")[0], {*known, *parser._option_string_actions} - refused)
        raise InputError(f"{others[0]}: there is no such option{similar}")
    used = set.union(*(set(_parts(key)) for key in _keys(args))) - {""}
    left_out = [column for column in columns if column and column not in used]
    inputs = {name: key for name, key in vars(args).items() if name in INPUT_KEYS and key is not None}
    seen = [name for name in columns if name in used]
    return Guess(purpose, purpose.command().make_corpus(args), seen, left_out, inputs)


def _keys(args: argparse.Namespace) -> Iterator[str]:
    """The key paths of the columns that are read."""
    yield from ("id", "title", "question", "context", "answers") if not hasattr(args, "id_key") else ()
    usual = {"article_key": ARTICLE_KEYS, "summary_key": SUMMARY_KEYS, "id_key": ID_KEYS}
    for name, value in vars(args).items():
        if name.endswith("_key") and name != "records_key":
            yield from [value] if isinstance(value, str) else value or usual.get(name, ())


def _parts(key: str) -> Iterator[str]:
    return (part.partition(".")[0] for part in (key, *key.split("+")))


def _reading_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    task_corpus.add_inputs(parser, "")
    options.add_options(parser)
    return parser


def _columns(records: Iterator[Record]) -> tuple[list[str], list[str]]:
    """The keys that most of the first records have, in their order, and those that any has."""
    sample = list(itertools.islice(records, SAMPLE))
    objects = [fields for record in sample if isinstance(fields := keys.parsed_object(record.data or b""), dict)]
    counts = Counter(key for fields in objects for key, value in fields.items() if value is not None)
    return [key for key, count in counts.items() if 2 * count > len(objects)], list(counts)


def _shown(columns: Sequence[str]) -> str:
    shown = [column if len(column) <= SHOWN_CHARS else f"{column[:SHOWN_CHARS]}…" for column in columns[:SHOWN]]
    return ", ".join(shown + ["…"] * (len(columns) > SHOWN)) or "none"


def _own_options(given: Sequence[str]) -> list[str]:
    """The keys of :data:`PURPOSES` some of whose own options are given."""
    flags = {word.partition("=")[0] for word in given}
    return [name for name, (_, _, own) in PURPOSES.items() if own & flags]


def _purpose(data: str, columns: Sequence[str], given: Sequence[str], task: str | None) -> Purpose:
    flags = {word.partition("=")[0] for word in given}
    fitting = [found for found in _purposes(columns) if task in (None, found.name)]
    asked = [name for name in _own_options(given) if task in (None, name)]
    if len(asked) == 1:
        usual, others, kept = next((found.columns for found in fitting if found.name == asked[0]), ()), [], False
        for word in usual:
            kept = word not in flags if word.startswith("--") else kept
            others += [word] * kept
        return Purpose(asked[0], tuple(others), "by the columns that the flags name")
    if len(fitting) == 1:
        return fitting[0]
    shown = _shown(columns)
    if fitting:
        ways = " or ".join(f"--task {found.name} ({found.text})" for found in fitting)
        raise InputError(f"{data}: its columns are {shown}, which may mean several things: give {ways}")
    if not columns:
        raise InputError(f"{data}: no records with columns or keys in it to train on")
    asked_for = f" for --task {task}" if task else ""
    raise InputError(
        f"{data}: its columns are {shown}, which do not tell what to learn{asked_for}; give --text-key and "
        "--label-key, or --article-key and --summary-key"
    )


def _purposes(columns: Sequence[str]) -> Iterator[Purpose]:
    """All that columns may mean; capitals do not count, and a path is there where its first key is."""
    own = {column.casefold(): column for column in reversed(columns)}

    def first(known: Sequence[str]) -> str | None:
        found = next((key for key in known if key.partition(".")[0] in own), None)
        return found and own[found.partition(".")[0]] + found.removeprefix(found.partition(".")[0])

    article, summary, text, label = map(first, (ARTICLES, SUMMARIES, TEXTS, LABELS))
    if {"question", "context", "answers"} <= set(columns):
        yield Purpose("question-answering", (), "question and context to answers")
        return  # SQuAD's rows have a title, and other columns beside
    instruction = first([INSTRUCTION])
    if instruction and summary:
        others = [] if article in (None, summary) else [f"{instruction}+{article}"]
        article = f"{instruction} and {article}" if others else instruction
        flags = ("--article-key", *others, instruction, "--summary-key", summary)
        yield Purpose("summarization", flags, f"{article} to {summary}")
    elif article and summary:
        named = [("--article-key", article, ARTICLE_KEYS), ("--summary-key", summary, SUMMARY_KEYS)]
        flags = tuple(word for flag, key, usual in named if key not in usual for word in (flag, key))
        yield Purpose("summarization", flags, f"{article} to {summary}")
    pair = next((pair for pair in PAIRS if set(pair) <= own.keys()), None)
    if label and (text or pair):
        one, *second = [own[name] for name in pair] if pair else [text]
        flags = ("--text-key", one, "--label-key", label, *(("--pair-key", *second) if second else ()))
        yield Purpose("classification", flags, f"{' and '.join((one, *second))} to {label}")

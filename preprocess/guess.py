"""What people's data are for, told by their columns, and which options of ``poolingformer preprocess`` read them."""

import argparse
import importlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_poolingformer.tasks.presets import PRESETS
from fairseq_poolingformer.tasks.registry import PURPOSES

from . import presets, squad
from .arxiv_pubmed import ARTICLE_KEYS, SUMMARY_KEYS
from .pipeline import task_corpus
from .pipeline.records import Example, InputError, Record, parsed
from .pipeline.run import Corpus
from .records import keys, options, reader
from .records.formats import Reading
from .records.sources import Source, splits_of

SAMPLE = 200  # records whose columns are looked at
SHARE = 0.1  # of the training data, for a split that there is not
FEWEST = 10  # records to divide
SMALL, SEEDS = 1000, 100  # fewer records are divided by the first of so many seeds that leaves no split empty
SHOWN = 20  # columns in messages
MOST_FILES = 100  # that are looked at

ARTICLES = (*ARTICLE_KEYS, "report", "dialogue", "source", "input")
SUMMARIES = (*SUMMARY_KEYS, "highlights", "target", "output")
TEXTS = ("text", "document", "article", "content", "body", "review", "sentence")
PAIRS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2"))
LABELS = ("label", "labels", "class", "category", "sentiment", "score", "rating")
WORDS, TAGS = ("tokens", "words"), ("labels", "tags", "ner_tags", "ner")


@dataclass(frozen=True)
class Purpose:
    """What data are for."""

    name: str  # a key of PURPOSES
    columns: tuple[str, ...]  # the options that name the columns
    text: str  # which columns, in words
    preset: str = ""  # the release that this is; "" for others

    @property
    def task(self) -> str:
        """fairseq's ``--task``."""
        return PURPOSES[self.name][0]

    @property
    def corpus(self) -> str:
        """The command of ``poolingformer preprocess``."""
        return self.preset or PURPOSES[self.name][1]

    def command(self) -> Any:
        """The functions ``make_parser`` and ``make_corpus`` of that command."""
        return presets.of(self.preset) if self.preset else importlib.import_module(f"..{self.corpus}", __name__)


@dataclass(frozen=True)
class Guess:
    """How data are read."""

    purpose: Purpose
    options: list[str]  # of the command of preprocessing: all but those of tokenizer and output
    others: list[str]  # the given flags that the command does not have
    notes: list[str]  # sentences on what was decided
    is_divided: bool  # whether a split is taken out of the training data

    def corpus(self) -> Corpus:
        """The corpus of these options."""
        return _corpus(self.purpose, self.options)


def guess(data: str, given: Sequence[str], task: str | None = None) -> Guess:
    """Find out how data are read."""
    reading, _ = _reading_parser().parse_known_args(given)
    named = [data] if task in PRESETS else ["--train" if reading.valid or reading.test else "--data", data]
    reading.data, reading.train = (None, [data]) if named[0] == "--train" else (data, None)
    there = {split for split in ("valid", "test") if getattr(reading, split)}
    if reading.data:
        found = presets.find_sources(task, [data], True)[0] if task in PRESETS else splits_of(data, unnamed=True)
        there |= found.keys()
        if "train" not in there:
            raise InputError(f"{data}: only {' and '.join(sorted(there)) or 'nothing'} in it, and nothing to train on")
        if task not in PRESETS and not reading.each and not _own_options(given):
            _check_mixture(data, list(itertools.chain.from_iterable(found.values())), options.reading_of(reading))
    shares, notes = [], []
    if not options.divides(reading) and "valid" not in there:
        shares = [f"--{split}-share" for split in ("valid", "test") if split not in there]
        for flag in shares:
            setattr(reading, flag[2:].replace("-", "_"), SHARE)
    if task in PRESETS:
        purpose = Purpose("summarization", (), f"of {task}", task)
    else:
        found = options.find(reading, lambda record: f"{record.file}:{record.line}", squad.questions)
        columns, all_columns = _columns(found.splits["train"].records() if "train" in found.splits else iter(()))
        if not reading.each:
            _check_names(data, all_columns, given)
        purpose = _purpose(data, columns, given, task)
    own, others = _divided(purpose.command().make_parser(), given)
    chosen = [*named, *own, *(flag for flag in purpose.columns)]
    if shares:
        chosen += [word for flag in shares for word in (flag, f"{SHARE:g}")]
        chosen += _seed(data, purpose, chosen)
        names = [flag[2:].partition("-")[0] for flag in shares]
        share = f"{100 * SHARE:g} % as {' and as '.join(names)}"
        notes.append(f"no file says {' or '.join(names)}: a hash of the ids takes {share}")
    return Guess(purpose, chosen, others, notes, options.divides(reading))


def _reading_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    task_corpus.add_inputs(parser, "")
    options.add_options(parser)
    return parser


def _check_mixture(data: str, sources: Sequence[Source], reading: Reading) -> None:
    """Refuse files of which one is for one task, and another one for another."""
    looks: dict[str, dict[str, str]] = {}
    for source in sources[:MOST_FILES]:
        columns, _ = _columns(squad.questions(reader.read([source], reading)))
        if meant := {found.name: found.text for found in _purposes(columns)}:
            looks[source.name.removeprefix(data).lstrip("/")] = meant
    if not looks or set.intersection(*map(set, looks.values())):
        return
    files: dict[str, list[str]] = {}  # of what each looks like
    for name, meant in looks.items():
        files.setdefault(" or ".join(f"{task} ({text})" for task, text in meant.items()), []).append(name)
    each = [f"{', '.join(names[:3])}{', …' * (len(names) > 3)} for {meant}" for meant, names in files.items()]
    raise InputError(
        f"{data}: its files are for different tasks: {'; '.join(each)}. Name one file as DATA, or leave files of one "
        "task alone in the folder"
    )


def _columns(records: Iterator[Record]) -> tuple[list[str], list[str]]:
    """The keys that most of the first records have, in their order, and those that any has."""
    sample = list(itertools.islice(records, SAMPLE))
    objects = [fields for record in sample if isinstance(fields := keys.parsed_object(record.data or b""), dict)]
    counts = Counter(key for fields in objects for key, value in fields.items() if value is not None)
    return [key for key, count in counts.items() if 2 * count > len(objects)], list(counts)


def _check_names(data: str, columns: Sequence[str], given: Sequence[str]) -> None:
    """Refuse a column that no record has, before anything is made of the data."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in itertools.chain.from_iterable(sorted(own) for _, _, own in PURPOSES.values()):
        parser.add_argument(flag, nargs="*", default=[])
    for option, names in vars(parser.parse_known_args(given)[0]).items():
        for name in names:
            if columns and name.isidentifier() and name not in columns:  # no path of keys
                raise InputError(
                    f"{data}: no column {name} (--{option.replace('_', '-')}); its columns are {_shown(columns)}"
                )


def _shown(columns: Sequence[str]) -> str:
    return ", ".join([*columns[:SHOWN], "…"] if len(columns) > SHOWN else columns) or "none"


def _own_options(given: Sequence[str]) -> list[str]:
    """The keys of :data:`PURPOSES` some of whose own options are given."""
    flags = {word.partition("=")[0] for word in given}
    return [name for name, (_, _, own) in PURPOSES.items() if own & flags]


def _purpose(data: str, columns: Sequence[str], given: Sequence[str], task: str | None) -> Purpose:
    flags = {word.partition("=")[0] for word in given}
    fitting = [found for found in _purposes(columns) if task in (None, found.name)]
    asked = [name for name in _own_options(given) if task in (None, name)]
    if len(asked) == 1:
        usual = next((found.columns for found in fitting if found.name == asked[0]), ())
        pairs = zip(usual[::2], usual[1::2], strict=True)
        others = tuple(word for pair in pairs if pair[0] not in flags for word in pair)
        return Purpose(asked[0], others, "by the columns that the flags name")
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
        f"{data}: its columns are {shown}, which do not tell what to learn{asked_for}; name them: --article-key and "
        "--summary-key, or --text-key and --label-key, or --tokens-key and "
        "--labels-key; questions need question, context and answers; --columns names "
        "those of a table without a header, --each lists of records; or make a data folder with poolingformer "
        "preprocess CORPUS and give that"
    )


def _purposes(columns: Sequence[str]) -> Iterator[Purpose]:
    """All that columns may mean."""
    article, summary, text, label = (
        next((key for key in known if key in columns), None) for known in (ARTICLES, SUMMARIES, TEXTS, LABELS)
    )
    if {"question", "context", "answers"} <= set(columns):
        yield Purpose("question-answering", (), "question and context to answers")
        return  # SQuAD's rows have a title, and other columns beside
    if article and summary:
        named = [("--article-key", article, ARTICLE_KEYS), ("--summary-key", summary, SUMMARY_KEYS)]
        flags = tuple(word for flag, key, usual in named if key not in usual for word in (flag, key))
        yield Purpose("summarization", flags, f"{article} to {summary}")
    pair = next((pair for pair in PAIRS if set(pair) <= set(columns)), None)
    words, tags = (next((key for key in known if key in columns), None) for known in (WORDS, TAGS))
    if words and tags:
        yield Purpose("token-labels", ("--tokens-key", words, "--labels-key", tags), f"{words} to {tags}")
    if label and (text or pair):
        first, *second = pair or (text,)
        flags = ("--text-key", first, "--label-key", label, *(("--pair-key", *second) if second else ()))
        yield Purpose("classification", flags, f"{' and '.join((first, *second))} to {label}")


def _divided(parser: argparse.ArgumentParser, given: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that are of a parser's options, and the others."""
    parser = argparse.ArgumentParser(parents=[parser], add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for action in list(parser._actions):
        action.required = False
        if not action.option_strings:  # the files, which the caller has
            parser._remove_action(action)
    for group in parser._mutually_exclusive_groups:
        group.required = False
    others = parser.parse_known_args(given)[1]
    own, left = [], list(others)
    for word in given:
        if left and word == left[0]:
            left.pop(0)
        else:
            own.append(word)
    return own, others


def _corpus(purpose: Purpose, chosen: Sequence[str]) -> Corpus:
    command = purpose.command()
    unused = ["--output-folder", ".", "--sentencepiece-train", "1000"]
    return command.make_corpus(command.make_parser().parse_args([*chosen, *unused]))


def _seed(data: str, purpose: Purpose, chosen: Sequence[str]) -> list[str]:
    """``--split-seed`` where few records need one for which no split is empty; nothing where the usual one will do."""
    for seed in range(SEEDS):
        flags = ["--split-seed", str(seed)] * (seed > 0)
        splits = _corpus(purpose, [*chosen, *flags]).splits
        counts = {split: sum(1 for _ in itertools.islice(one.records(), SMALL)) for split, one in splits.items()}
        total = sum(counts.values())
        if total >= SMALL:
            return []
        if total < FEWEST:
            raise InputError(
                f"{data}: {total} records, too few to divide; name files with --valid and --test, or give "
                f"{FEWEST} records or more"
            )
        if all(count >= max(1, SHARE * total / 2) for count in counts.values()):
            return flags
    raise InputError(
        f"{data}: no division by ids leaves records for each of {', '.join(splits)} (questions about one article stay "
        "together); name files with --valid and --test"
    )


def examples(corpus: Corpus, split: str) -> Iterator[Example]:
    """The examples of a split with what is to be learned, also where preprocessing does not read that: in test."""
    found = (parsed(record, corpus.parse) for record in corpus.splits[split].records())
    return (example for example in found if isinstance(example, Example))

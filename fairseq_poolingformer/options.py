"""Options that several commands have, and the types of their values."""

import argparse
import glob
import importlib
import itertools
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import UsageError


def matching(pattern: str) -> list[str]:
    """The files of a glob pattern, sorted; the folders that it begins with are names, whatever brackets they have."""
    if os.path.exists(pattern):
        return [pattern]
    folder = next((str(parent) for parent in Path(pattern).parents if parent.exists()), ".")
    if folder != ".":
        pattern = glob.escape(folder) + pattern.removeprefix(folder)
    return sorted(glob.glob(pattern, recursive=True))


class Patterns(argparse.Action):
    """Takes the files of glob patterns; a pattern without files stays, for the error that names it."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Set the argument."""
        matches = (matching(name) or [name] for name in values)
        setattr(namespace, self.dest, list(itertools.chain.from_iterable(matches)))


def add_gold(parser: argparse.ArgumentParser, help_of_gold: str, shards: bool = False) -> None:
    """Add what every command that scores has: ``--gold`` and the predictions, as an argument or an option."""
    text = "the predictions, in the official format" + ", perhaps in several files" * shards
    several = {"nargs": "*", "action": Patterns} if shards else {"nargs": "?"}
    parser.add_argument("file", metavar="FILE", help=text, **several)
    parser.add_argument("--predictions", metavar="FILE", help="the same")
    parser.add_argument("--gold", nargs="+", action=Patterns, required=True, metavar="FILE", help=help_of_gold)


def add_predicted_only(parser: argparse.ArgumentParser) -> None:
    """Add ``--predicted-only`` of commands that score."""
    text = "count examples with a prediction alone, where the others are wrong officially: for a part of the gold data"
    parser.add_argument("--predicted-only", action="store_true", help=text)


def given_predictions(args: argparse.Namespace) -> str:
    """The file of predictions."""
    if (args.file is None) == (args.predictions is None):
        raise UsageError("give one file of predictions")
    return args.file or args.predictions


def option(default: Any, help: str) -> Any:
    """A field of a dataclass of fairseq's: an option with its help."""
    return field(default=default, metadata={"help": help})


def _whole_number(text: str, least: int) -> int:
    if not text.strip().removeprefix("-").isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more, got {text!r}")
    return int(text)


def _real(text: str, least: float, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:  # NaN is not
        raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")
    return value


# types of options: whole numbers, numbers (infinity is one), numbers without it, numbers from 0 to 1
positive, natural = partial(_whole_number, least=1), partial(_whole_number, least=0)
number = partial(_real, least=-math.inf, most=math.inf, what="a number")
finite = partial(_real, least=-sys.float_info.max, most=sys.float_info.max, what="a finite number")
share = partial(_real, least=0, most=1, what="a number from 0 to 1")


def take_user_dir(arguments: Sequence[str]) -> list[str]:
    """Import the package that ``--user-dir`` names, which may add a task; return the other arguments."""
    parser = argparse.ArgumentParser(prog="poolingformer", add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir", type=Path)
    options, rest = parser.parse_known_args(arguments)
    if options.user_dir is not None:
        folder = options.user_dir.resolve()
        if not folder.is_dir():
            parser.error(f"--user-dir {options.user_dir}: no such folder")
        if folder.name not in sys.modules:
            sys.path.insert(0, str(folder.parent))
            importlib.import_module(folder.name)
    return rest


def add_user_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--user-dir`` to a command's help, which :func:`take_user_dir` reads first."""
    parser.add_argument("--user-dir", metavar="DIR", help="a package that adds a task of your own (docs/own_task.md)")


def add_shard_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--num-shards``, with ``what`` as its help, and ``--shard-id``."""
    parser.add_argument("--num-shards", type=positive, default=1, metavar="N", help=what)
    parser.add_argument("--shard-id", type=int, default=0, metavar="K", help="which, from 0")


def check_shard(args: argparse.Namespace) -> None:
    """Raise UsageError unless there is such a shard."""
    if not 0 <= args.shard_id < args.num_shards:
        raise UsageError(f"--shard-id must be between 0 and {args.num_shards - 1}, got {args.shard_id}")


def shard(args: argparse.Namespace, count: int) -> range:
    """The numbers, of 0 to ``count`` − 1, that fall to this shard."""
    return range(count * args.shard_id // args.num_shards, count * (args.shard_id + 1) // args.num_shards)

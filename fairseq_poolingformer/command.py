"""The one way to run a command: parse, run, a sentence for an error, an exit status."""

import argparse
import contextlib
import difflib
import errno
import glob
import importlib
import itertools
import logging
import math
import os
import re
import select
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_poolingformer.extras import MissingLibraryError, needing


class UsageError(ValueError):
    """Arguments that do not fit together; the command says which and exits with status 2."""


def run_command(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int | None],
    arguments: Sequence[str] | None = None,
) -> int:
    """Parse the arguments and run the command; return its exit status, which is 0 for None."""
    for subparser in _with_subcommands(parser):
        # so that it counts before a subcommand and after it
        default = False if subparser is parser else argparse.SUPPRESS
        help_text = "print an error as Python does, for a report"
        subparser.add_argument("--traceback", action="store_true", default=default, help=help_text)
        shorten_errors(subparser)
    with output_for_a_while():
        parsed = parser.parse_args(arguments)
        show_traceback = vars(parsed).pop("traceback")
        try:
            _check_outputs(parser, parsed)
            with needing("text"):
                status = run(parsed) or 0
        except UsageError as error:
            parser.error(str(error))
        except (ValueError, OSError) as error:
            if show_traceback or (isinstance(error, BrokenPipeError) and _nobody_reads_the_output()):
                raise
            print(f"{parser.prog}: {sentence(error)} (--traceback shows where)", file=sys.stderr)
            status = 1
        except KeyboardInterrupt:
            print(f"{parser.prog}: interrupted", file=sys.stderr)
            status = 130
    return status


def _with_subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in dict.fromkeys(action.choices.values()):
                yield from _with_subcommands(subparser)


def output_file(name: str) -> Path:
    """The type of options that name a file to write, which :func:`run_command` checks before the command runs."""
    return Path(name)


def _check_outputs(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """Check all files to write against the files that the other arguments name, and one another."""
    actions = {action for subparser in _with_subcommands(parser) for action in subparser._actions}
    values = {action: value for action in actions if (value := getattr(parsed, action.dest, None)) is not None}
    outputs = {action.option_strings[0]: value for action, value in values.items() if action.type is output_file}
    inputs = [value for action, value in values.items() if action.type is not output_file]
    for flag, path in outputs.items():
        others = [other for other in outputs if other != flag and outputs[other].resolve() == path.resolve()]
        if others:
            raise UsageError(f"{flag} {path}: {others[0]} names the same file")
        check_output(flag, path, *inputs)


def check_output(flag: str, path: Path, *inputs: Any) -> None:
    """Refuse an output that cannot be written or is an input, and say that it replaces a file.

    Raises:
        UsageError: the file is standard input, an input, or lies in a folder that is one.
        OSError: it cannot be written, or is no regular file.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "is no regular file; name one to write", str(path))
    require_writable(path)
    if not path.exists():
        return
    values = itertools.chain.from_iterable(value if isinstance(value, list) else [value] for value in inputs)
    # an ensemble is several names between colons
    names = [name for value in values if isinstance(value, str | Path) for name in (str(value), *str(value).split(":"))]
    for name in ["/dev/stdin", *filter(os.path.exists, names)]:
        if os.path.exists(name) and path.samefile(name):
            raise UsageError(f"{flag} {path}: is an input of this command; name another file")
        if os.path.isdir(name) and path.resolve().is_relative_to(Path(name).resolve()):
            raise UsageError(f"{flag} {path}: is there already, in {name}, which is an input; name another file")
    print(f"replaces {path}", file=sys.stderr)


def require_writable(path: Path) -> None:
    """Raise OSError, naming a file, where it cannot be written: asked before the work that it is for."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder to write {path.name} into")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
    try:
        with contextlib.suppress(FileNotFoundError):
            path.lstat()  # of a name that is too long
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def shorten_errors(parser: Any) -> None:
    """Make a parser's errors one sentence, without its usage."""
    say = parser.error
    parser.print_usage = lambda file=None: None  # which argparse puts before an error
    parser.error = lambda message: say(with_similar_names(message, parser._option_string_actions))


def with_similar_names(message: str, flags: Iterable[str]) -> str:
    """An error of argparse, with the names like a wrong one in place of all choices."""
    fault, _, choices = message.partition(" (choose from ")
    wrong = re.search(r"invalid choice: '(.*)'|^unrecognized arguments: (--[\w-]+)", fault)
    similar = did_you_mean(wrong[1] or wrong[2], re.findall(r"[\w.-]+", choices) or flags) if wrong else ""
    return f"{fault}{similar}" if similar else message


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean A or B?`` where known names are like a wrong one, or else nothing."""
    close = difflib.get_close_matches(name, known) or [other for other in known if name in other][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""


@contextlib.contextmanager
def saying_what_is_missing(prog: str) -> Iterator[None]:
    """End with one sentence where the block, which imports a command, lacks a library."""
    try:
        with needing("text"):
            yield
    except MissingLibraryError as error:
        sys.exit(f"{prog}: {error}")


def sentence(error: BaseException) -> str:
    """The error for people: the file first, and no number of the system's."""
    if isinstance(error, OSError) and error.filename is not None and error.filename2 is None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@contextlib.contextmanager
def output_for_a_while() -> Iterator[None]:
    """End the block without an error when the reader of standard output has seen enough, as ``head`` has."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _nobody_reads_the_output():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest of the buffer goes there at exit


def _nobody_reads_the_output() -> bool:
    """Whether standard output is the pipe that is broken; it may be one between this process and another."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # of errors it reports without being asked
    return bool(poll.poll(0))


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


def add_of_examples(parser: argparse.ArgumentParser, has_means: bool = True) -> None:
    """Add the options on single examples that commands that score have; ``has_means``: whether figures are means."""
    text = "count examples with a prediction alone, where the others are wrong officially: for a part of the gold data"
    parser.add_argument("--predicted-only", action="store_true", help=text)
    if has_means:
        text = "of the figures that are means over examples, the 95%% intervals (bootstrap), too"
        parser.add_argument("--intervals", action="store_true", help=text)


def given_predictions(args: argparse.Namespace) -> str:
    """The file of predictions."""
    if (args.file is None) == (args.predictions is None):
        raise UsageError("give one file of predictions")
    return args.file or args.predictions


def option(default: Any, help: str) -> Any:
    """A field of a dataclass of fairseq's: an option with its help."""
    return field(default=default, metadata={"help": help})


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lay out rows of cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(c.ljust(w) if k < left else c.rjust(w) for k, (c, w) in enumerate(cells)).rstrip())
    return "\n".join(lines)


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


def load_fairseq() -> None:
    """Import fairseq without its messages and register the plugin; from then on only warnings are logged."""
    # fairseq calls logging.basicConfig(level=DEBUG) on import, which does nothing once logging is configured
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        import fairseq  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "fairseq":
            raise
        raise ValueError(
            "this command needs fairseq: pip install torch numpy cython setuptools wheel && "
            "pip install --no-build-isolation fairseq-fixed==0.12.3.1"
        ) from None
    import fairseq_poolingformer

    fairseq_poolingformer.register()


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

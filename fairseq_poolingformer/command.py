"""The one way to run a command: parse, run, a sentence for an error, an exit status."""

import argparse
import contextlib
import difflib
import errno
import itertools
import logging
import os
import re
import select
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        UsageError: the file is of another compression, standard input, an input, or lies in a folder that is one.
        OSError: it cannot be written, or is no regular file.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "is no regular file; name one to write", str(path))
    if path.suffix in (".zst", ".zip"):
        raise UsageError(f"{flag} {path}: is not written as {path.suffix}; take .gz, .bz2, .xz or none")
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


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lay out rows of cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(c.ljust(w) if k < left else c.rjust(w) for k, (c, w) in enumerate(cells)).rstrip())
    return "\n".join(lines)


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

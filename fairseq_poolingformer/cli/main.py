"""``poolingformer COMMAND``: every command of this project under one name."""

import contextlib
import importlib
import importlib.metadata
import platform
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer import __version__
from fairseq_poolingformer.command import output_for_a_while, saying_what_is_missing

COMMANDS = {
    "preprocess": ("fairseq_poolingformer.preprocess.__main__", "make a data folder from a raw corpus"),
    "convert": ("fairseq_poolingformer.cli.convert", "convert checkpoints between Hugging Face and fairseq"),
    "summarize": ("fairseq_poolingformer.cli.summarize", "summarize text files"),
    "show": ("fairseq_poolingformer.cli.show", "show what a model looks at in a document"),
    "predict": ("fairseq_poolingformer.cli.predict", "predict a data folder of a task"),
    "score": ("fairseq_poolingformer.cli.score", "score summaries or predictions as the official scripts do"),
    "eval-lm": ("fairseq_poolingformer.cli.eval_lm", "evaluate a character language model"),
    "doctor": ("fairseq_poolingformer.cli.doctor", "report versions, GPUs, and backends after their self-checks"),
    "average-checkpoints": ("fairseq_poolingformer.cli.average_checkpoints", "average the parameters of checkpoints"),
}
LIBRARIES = ("torch", "triton", "fairseq", "fairseq-fixed", "transformers", "sentencepiece", "numpy")


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        f"usage: poolingformer COMMAND [options]\n\n{lines}\n\n"
        "poolingformer COMMAND --help lists the options of each.\n"
        "poolingformer --version names the versions installed.\n"
        "poolingformer user-dir prints the folder for fairseq's --user-dir."
    )


def versions() -> str:
    """The versions of this package, of Python and of the libraries that are installed, a line each."""
    lines = [f"fairseq-poolingformer {__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines.append(f"{name} {importlib.metadata.version(name)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named command and return its exit status."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help", "--version"):
        with output_for_a_while():
            print(versions() if name == "--version" else usage())
        return 0
    if name == "user-dir":
        print(Path(__file__).resolve().parents[1])
        return 0
    if name not in COMMANDS:
        print(f"{usage()}\n\npoolingformer: there is no command {name}", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # of torch, where there is none
    try:
        with saying_what_is_missing(f"poolingformer {name}"):
            command = importlib.import_module(COMMANDS[name][0])
    except KeyboardInterrupt:  # the imports take seconds
        return 130
    return command.main(options)


if __name__ == "__main__":
    sys.exit(main())

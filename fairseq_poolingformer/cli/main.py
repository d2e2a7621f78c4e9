"""``poolingformer COMMAND``: every command of this project under one name, and completion for shells."""

import argparse
import contextlib
import importlib
import importlib.metadata
import platform
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer import __version__
from fairseq_poolingformer.command import output_for_a_while, run_command, saying_what_is_missing
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.presets import PRESETS
from fairseq_poolingformer.tasks.registry import corpora

# each command but completion is also installed as poolingformer-COMMAND
COMMANDS = {
    "finetune": (
        "fairseq_poolingformer.cli.finetune.command",
        "fine-tune a model on data as they are, and evaluate it",
    ),
    "preprocess": ("fairseq_poolingformer.preprocess.__main__", "make a data folder from a raw corpus"),
    "convert": ("fairseq_poolingformer.cli.convert", "convert checkpoints between Hugging Face and fairseq"),
    "summarize": ("fairseq_poolingformer.cli.summarize", "summarize text files"),
    "show": ("fairseq_poolingformer.cli.show", "show what a model looks at in a document"),
    "who-sees-whom": (
        "fairseq_poolingformer.cli.who_sees_whom",
        "find which tokens reach which in a model of transformers",
    ),
    "predict": ("fairseq_poolingformer.cli.predict", "predict a data folder of any downstream task"),
    "score": ("fairseq_poolingformer.cli.score", "score summaries or predictions as the official scripts do"),
    "eval-mlm": ("fairseq_poolingformer.cli.eval_mlm", "evaluate masked language models, by distance"),
    "eval-lm": ("fairseq_poolingformer.cli.eval_lm", "evaluate a character language model"),
    "doctor": ("fairseq_poolingformer.cli.doctor", "report on this machine: versions, backends, self-checks"),
    "average-checkpoints": ("fairseq_poolingformer.cli.average_checkpoints", "average the parameters of checkpoints"),
    "completion": ("fairseq_poolingformer.cli.main", "print a shell's completion of all this"),
}
LIBRARIES = ("torch", "triton", "fairseq", "fairseq-fixed", "transformers", "sentencepiece", "numpy")
SHELLS = ("bash", "zsh", "tcsh")


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        f"usage: poolingformer COMMAND [options]\n\n{lines}\n\n"
        "poolingformer COMMAND --help lists the options of each.\n"
        "poolingformer --version names the versions installed."
    )


def versions() -> str:
    """The versions of this package, of Python and of the libraries that are installed, a line each."""
    found = [f"fairseq-poolingformer {__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return "\n".join(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named command and return its exit status."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help", "--version"):
        with output_for_a_while():
            print(versions() if name == "--version" else usage())
        return 0
    if name not in COMMANDS:
        print(f"{usage()}\n\npoolingformer: there is no command {name}", file=sys.stderr)
        return 2
    if name == "completion":
        return run_command(make_parser(), run, options)
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # of torch, where there is none
    try:
        with saying_what_is_missing(f"poolingformer {name}"):
            command = importlib.import_module(COMMANDS[name][0])
    except KeyboardInterrupt:  # the imports take seconds
        return 130
    return command.main(options)


def main_of_script() -> int:
    """Run the command that the script ``poolingformer-COMMAND`` is named after."""
    return main([Path(sys.argv[0]).stem.removeprefix("poolingformer-"), *sys.argv[1:]])


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``poolingformer completion``."""
    parser = argparse.ArgumentParser(
        prog="poolingformer completion",
        description='Print the completion of poolingformer for a shell: eval "$(poolingformer completion bash)"',
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the completion."""
    with needing("completion"):
        import shtab
    print(shtab.complete(whole_parser(), shell=args.shell))


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands, with the parser of each as a subparser."""
    whole = argparse.ArgumentParser(prog="poolingformer")
    whole.add_argument("--version", action="store_true", help="name the versions installed")
    commands = whole.add_subparsers()
    for name, (module, text) in COMMANDS.items():
        if name == "preprocess":  # its corpora have parsers of their own
            commands.add_parser(name, help=text).add_argument("corpus", choices=[*corpora(), *PRESETS, "check"])
        else:
            parser = importlib.import_module(module).make_parser()
            commands.add_parser(name, help=text, parents=[parser], add_help=False)
    return whole


if __name__ == "__main__":
    sys.exit(main())

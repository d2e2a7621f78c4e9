"""``poolingformer summarize``: text files to summaries, from a checkpoint, without knowing fairseq."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_poolingformer.cli.models import add_device_options, checkpoint_of, moved
from fairseq_poolingformer.command import UsageError, load_fairseq, run_command
from fairseq_poolingformer.options import finite, natural, positive
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.text.input_files import TO_UTF_8, read_input

FAIRSEQS_TASKS = ("denoising", "translation", "translation_from_pretrained_bart")  # of its bart.large, bart.large.cnn
OTHER_COMMANDS = {  # of tasks without predictions
    "long_masked_lm": 'fairseq-validate DATA-FOLDER --user-dir "$(poolingformer user-dir)" '
    "--task long_masked_lm --batch-size 1 --path",
    "char_lm": "poolingformer eval-lm DATA-FOLDER --model",
}

SEARCH: dict[str, tuple[Any, str, float, str]] = {  # option -> type, name of the value, default, help
    "beam": (positive, "N", 5, "beam size"),
    "lenpen": (finite, "F", 2.0, "length penalty; longer with more"),
    "max_len_b": (positive, "N", 256, "the most tokens of a summary, with <s> and without </s>"),
    "min_len": (positive, "N", 1, "the fewest, counted in the same way"),
    "no_repeat_ngram_size": (natural, "N", 0, "never repeat N tokens; 0: they may"),
}
_EPILOG = """\
examples:
  poolingformer summarize --model run/checkpoint_best.pt paper.txt report.txt
  pdftotext paper.pdf - | poolingformer summarize --model run/checkpoint_best.pt -
  poolingformer summarize --demo papers.txt
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Write a summary of each document to standard output."""
    if args.checkpoint is None and not args.demo:
        demo = "the small one that comes with the package, which summarizes made documents only"
        raise UsageError(f"name a trained model with --model, or give --demo for {demo}")
    if args.demo and args.data_folder is not None:
        raise UsageError("--data-folder goes with --model; --demo's model has its own tokenizer")
    from fairseq_poolingformer.patches.processes import under_torchrun

    if under_torchrun():
        raise UsageError("it runs in one process; torchrun divides the documents of fairseq-generate")
    documents = [(name, read_text(name)) for name in args.files]
    for (name, _), summary in zip(documents, _summaries(args, documents), strict=True):
        line = " ".join(summary.split())  # one line, whatever the model wrote
        print(line if len(documents) == 1 else f"{name}\t{line}", flush=True)


def _summaries(args: argparse.Namespace, documents: list[tuple[str, str]]) -> Iterator[str]:
    load_fairseq()
    hub = load_demo_model() if args.checkpoint is None else load_summarizer(args.checkpoint, args.data_folder)
    hub = moved(hub, args.device, args.precision)
    for first in range(0, len(documents), args.batch_size):
        names, texts = zip(*documents[first : first + args.batch_size], strict=True)
        yield from hub.summarize(list(texts), names=list(names), batch_size=args.batch_size, **search(args))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer summarize",
        description="Summarize text files with a trained checkpoint. One summary a line; before it, with more than one "
        "file, the file's name and a tab.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="UTF-8 text, one document a file; - reads standard input")
    model = parser.add_mutually_exclusive_group()
    text = "a checkpoint of task long_summarization, or the folder of a converted one"
    model.add_argument("--model", "--checkpoint", dest="checkpoint", type=Path, metavar="MODEL", help=text)
    text = "use the small demo model that comes with the package; it summarizes documents that "
    text += "poolingformer preprocess facts makes, and no others (docs/quickstart.md)"
    model.add_argument("--demo", action="store_true", help=text)
    text = "folder with dictionary and tokenizer/; default: the checkpoint's folder, else its training data's"
    add("--data-folder", type=Path, help=text)
    add_search_options(parser, *SEARCH)
    add("--batch-size", type=positive, default=1, metavar="N", help="documents at a time (default: %(default)s)")
    add_device_options(parser)
    return parser


def add_search_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add keys of SEARCH as options."""
    group = parser.add_argument_group("search")
    for name in names:
        kind, metavar, default, text = SEARCH[name]
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, type=kind, metavar=metavar, default=default, help=f"{text} (default: {default})")


def search(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a search that a command has."""
    return {name: getattr(args, name) for name in SEARCH if hasattr(args, name)}


def read_text(name: str) -> str:
    try:
        text = read_input(name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 at byte {error.start}; {TO_UTF_8}") from error
    if not text.strip():
        raise ValueError(f"{name}: no text in it")
    return text


def load_demo_model():
    """Load the model that comes with the package, and say what it can read."""
    from fairseq_poolingformer.models import demo_model

    print(
        "the small demo model, which comes with the package, summarizes documents that poolingformer preprocess "
        "facts makes; what it writes of other text means nothing",
        file=sys.stderr,
    )
    return demo_model.load_demo_model()


def load_summarizer(path: Path, data: Path | None, saved: Any = None):
    """Load a checkpoint that writes, with its dictionary and tokenizer; ``saved``: its settings, if read already."""
    from fairseq_poolingformer.checkpoints import BEYOND_SETTINGS, load, text_entry

    checkpoint = checkpoint_of(path)
    saved = saved or load(checkpoint, BEYOND_SETTINGS)
    settings = (saved.get("cfg") or {}).get("task") or saved.get("args")
    trained = text_entry(settings, "_name") or text_entry(settings, "task") or ""
    if trained in FAIRSEQS_TASKS:
        remedy = f"poolingformer convert to-huggingface {checkpoint} FOLDER, and generate() there (docs/huggingface.md)"
        raise ValueError(f"{path}: a model of fairseq's own --task {trained}; {remedy}")
    known = registry.tasks().get(trained)
    if known is not None and (known.is_predicted or trained in OTHER_COMMANDS):
        command = OTHER_COMMANDS.get(trained, "poolingformer predict DATA-FOLDER --output FILE --model")
        raise ValueError(f"{path}: a model of --task {trained}, which writes no summaries; {command} {path} serves it")
    from fairseq_poolingformer.models import PoolingformerBART

    return load_hub(PoolingformerBART, checkpoint, data, saved)


def load_hub(model: Any, checkpoint: Path, data: Path | None, saved: Any) -> Any:
    """Load a checkpoint with the dictionary and tokenizer of a folder: given, its own, or of its training's data."""
    from fairseq_poolingformer.checkpoints import data_folder
    from fairseq_poolingformer.patches.saving import DICTIONARIES
    from fairseq_poolingformer.patches.untrusted_files import recorded_data
    from fairseq_poolingformer.text.data_folder import tokenizer_config
    from fairseq_poolingformer.text.tokenizers import is_saved

    folder = data or checkpoint.parent
    if not data and not (is_saved(folder) and any((folder / name).is_file() for name in DICTIONARIES)):
        folder = data_folder(checkpoint, recorded_data(saved))
    try:
        tokenizer_config(folder)
        return model.from_pretrained(str(checkpoint.parent), checkpoint.name, str(folder.resolve()))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} (--data-folder names the folder that preprocessing wrote)") from None

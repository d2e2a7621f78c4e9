"""``poolingformer-summarize``: text files to summaries, from a checkpoint, without knowing fairseq."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_poolingformer.cli.command import load_fairseq, natural, positive, run_command
from fairseq_poolingformer.cli.options import DTYPES, add_device_options
from fairseq_poolingformer.compat.checkpoints import load
from fairseq_poolingformer.compat.companions import DICTIONARIES
from fairseq_poolingformer.compat.mistakes import require_checkpoint
from fairseq_poolingformer.text.data_folder import PAIRS, DataFolder, tokenizer_config
from fairseq_poolingformer.text.tokenizers import is_saved

_EPILOG = """\
examples:
  poolingformer-summarize --checkpoint run/checkpoint_best.pt paper.txt report.txt
  pdftotext paper.pdf - | poolingformer-summarize --checkpoint run/checkpoint_best.pt -
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Write a summary of each document to standard output."""
    documents = [(name, read_text(name)) for name in args.files]
    load_fairseq()
    hub = load_hub(args.checkpoint, args.data_folder).to(device=args.device, dtype=DTYPES[args.precision]).eval()
    for first in range(0, len(documents), args.batch_size):
        batch = documents[first : first + args.batch_size]
        summaries = hub.summarize(
            [text for _, text in batch],
            names=[name for name, _ in batch],
            max_length=args.max_length,
            min_length=args.min_length,
            batch_size=args.batch_size,
            beam=args.beam,
            lenpen=args.lenpen,
            no_repeat_ngram_size=args.no_repeat_ngram_size,
        )
        for (name, _), summary in zip(batch, summaries, strict=True):
            line = " ".join(summary.split())  # one line, whatever the model wrote
            print(line if len(documents) == 1 else f"{name}\t{line}", flush=True)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer-summarize",
        description="Summarize text files with a trained checkpoint. One summary a line; before it, with more than one "
        "file, the file's name and a tab.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="UTF-8 text, one document a file; - reads standard input")
    add(
        "--checkpoint",
        type=Path,
        help="a checkpoint of task long_summarization; default: the reader, the small model that comes with the "
        "package, which knows made documents only (docs/quickstart.md)",
    )
    add(
        "--data-folder",
        type=Path,
        help="folder with dict.source.txt and tokenizer/; default: the checkpoint's folder, else its training data's",
    )
    add("--beam", type=positive, default=5, help="beam size (default: %(default)s)")
    add("--lenpen", type=float, default=2.0, help="length penalty; longer with more (default: %(default)s)")
    add(
        "--max-length",
        type=positive,
        default=256,
        metavar="N",
        help="the most tokens of a summary, with <s> and without </s>, as --max-len-b (default: %(default)s)",
    )
    add(
        "--min-length",
        type=positive,
        default=1,
        metavar="N",
        help="the fewest, counted in the same way (default: %(default)s)",
    )
    add("--no-repeat-ngram-size", type=natural, default=0, metavar="N", help="never repeat N tokens (default: off)")
    add("--batch-size", type=positive, default=1, metavar="N", help="documents at a time (default: %(default)s)")
    add_device_options(parser)
    return parser


def read_text(name: str) -> str:
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 at byte {error.start}; convert it, e.g. with iconv") from error
    if not text.strip():
        raise ValueError(f"{name}: no text in it")
    return text


def load_hub(checkpoint: Path, data_folder: Path | None):
    """Load the checkpoint with its dictionary and tokenizer.

    Raises:
        CheckpointError: the file is no checkpoint.
        FileNotFoundError: no checkpoint, or no folder with its dictionary and tokenizer.
    """
    if checkpoint is None:
        print("no --checkpoint: the reader summarizes, a small model that knows made documents only", file=sys.stderr)
        from fairseq_poolingformer.models.reader import load_reader

        return load_reader()
    require_checkpoint(checkpoint)
    folder = data_folder or find_data_folder(checkpoint)
    try:
        DataFolder(folder, PAIRS).dictionary()
        tokenizer_config(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} (--data-folder names the folder that preprocessing wrote)") from None
    from fairseq_poolingformer.models import PoolingformerBART

    return PoolingformerBART.from_pretrained(str(checkpoint.parent), checkpoint.name, str(folder.resolve()))


def find_data_folder(checkpoint: Path) -> Path:
    """The checkpoint's folder, where it has a dictionary and a tokenizer, else the folder of its training's data."""
    if is_saved(checkpoint.parent) and any((checkpoint.parent / name).is_file() for name in DICTIONARIES):
        return checkpoint.parent
    config = load(checkpoint).get("cfg") or {}
    data = (config.get("task") or {}).get("data")
    if data is None:
        return checkpoint.parent
    return Path(str(data).split(":")[0])


if __name__ == "__main__":
    sys.exit(main())

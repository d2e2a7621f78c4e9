"""``poolingformer show``: what a model looks at in a document, as a page for a browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fairseq_poolingformer.cli.models import add_device_options, checkpoint_of, moved
from fairseq_poolingformer.cli.summarize import (
    add_search_options,
    load_demo_model,
    load_hub,
    load_summarizer,
    read_text,
    search,
)
from fairseq_poolingformer.command import check_output, load_fairseq, output_file, run_command
from fairseq_poolingformer.text.atomic_write import text_file

_EPILOG = """\
examples:
  poolingformer show run/checkpoint_best.pt paper.txt
  poolingformer show run/checkpoint_best.pt paper.txt --word photosynthesis
  poolingformer show note.txt       # with the small model that comes with the package
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer show",
        description="Show which sentences of a document a model looks at: for each sentence and token of the summary "
        "(cross-attention), and for each sentence of the document (level one, level two). Writes one HTML page that "
        "needs nothing else.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    text = "of a Poolingformer-BART, LED, or a Poolingformer or Longformer of RoBERTa's kind, which has no summary; "
    text += "default: the small demo model that comes with the package"
    add("checkpoint", nargs="?", type=Path, metavar="CHECKPOINT", help=text)
    add("file", metavar="FILE", help="the document, UTF-8 text; - reads standard input")
    add("--output", type=output_file, metavar="PAGE", help="(default: the document's name with .html, in this folder)")
    add("--summary", metavar="FILE", help="show the attention for this summary (default: the model writes one)")
    text = "also show, token by token, what this word of the document looks at; may be given several times"
    add("--word", action="append", default=[], metavar="TEXT", help=text)
    add("--data-folder", type=Path, help="folder with the dictionary and tokenizer/, as for poolingformer summarize")
    add_search_options(parser, "beam", "lenpen", "max_len_b")
    add_device_options(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    text = read_text(args.file)
    summary = None if args.summary is None else read_text(args.summary)
    name = "standard input" if args.file == "-" else Path(args.file).name
    output = args.output or Path(Path(name).stem.replace(" ", "-") + ".html")
    if args.output is None:
        check_output("--output", output, args.file, args.summary)
    load_fairseq()
    from fairseq_poolingformer.show import look, page

    hub = moved(_load(args.checkpoint, args.data_folder), args.device, args.precision)
    model = "the demo model" if args.checkpoint is None else str(args.checkpoint)
    document_look = look(hub, text, summary=summary, words=args.word, title=name, model=model, **search(args))
    with text_file(output) as file:
        file.write(page(document_look))
    print(output)


def _load(checkpoint: Path | None, data_folder: Path | None) -> Any:
    if checkpoint is None:
        return load_demo_model()
    from fairseq_poolingformer.checkpoints import BEYOND_SETTINGS, load, text_entry

    saved = load(checkpoint := checkpoint_of(checkpoint), BEYOND_SETTINGS)
    settings = saved.get("args") or (saved.get("cfg") or {}).get("model")
    arch = text_entry(settings, "arch") or text_entry(settings, "_name") or ""
    if not any(kind in arch for kind in ("roberta", "xlmr", "deberta")):
        return load_summarizer(checkpoint, data_folder, saved)
    from fairseq_poolingformer.models import PoolingformerRoberta

    return load_hub(PoolingformerRoberta, checkpoint, data_folder, saved)

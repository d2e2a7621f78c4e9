"""``poolingformer-show``: what a model looks at in a document, as a page for a browser."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from fairseq_poolingformer.checkpoints import BEYOND_SETTINGS, entry, load
from fairseq_poolingformer.cli.convert import write_fairseq
from fairseq_poolingformer.cli.models import checkpoint_of
from fairseq_poolingformer.cli.options import DTYPES, add_device_options
from fairseq_poolingformer.cli.summarize import find_data_folder, load_demo_model, load_hub, read_text
from fairseq_poolingformer.command import finite, load_fairseq, positive, run_command
from fairseq_poolingformer.text.atomic_write import atomic_write
from fairseq_poolingformer.text.data_folder import tokenizer_config
from fairseq_poolingformer.weights.files import read_config

_EPILOG = """\
examples:
  poolingformer-show run/checkpoint_best.pt paper.txt
  poolingformer-show run/checkpoint_best.pt paper.txt --word photosynthesis
  poolingformer-show summarizer paper.txt       # a folder that transformers opens
  poolingformer-show note.txt       # with the small model that comes with the package
"""
WINDOWED = {"led": "poolingformer-bart", "longformer": "poolingformer-roberta"}  # model_type -> that of its class here


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer-show",
        description="Show which sentences of a document a model looks at: for each sentence and token of the summary "
        "(cross-attention), and for each sentence of the document (level one, level two). Writes one HTML page that "
        "needs nothing else.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "checkpoint",
        nargs="?",
        type=Path,
        metavar="CHECKPOINT",
        help="of a Poolingformer-BART, LED, or a Poolingformer or Longformer of RoBERTa's kind, which has no summary; "
        "fairseq's .pt file, or a folder of transformers; default: the small demo model that comes with the "
        "package",
    )
    add("file", metavar="FILE", help="the document, UTF-8 text; - reads standard input")
    add("--output", type=Path, metavar="PAGE", help="(default: the document's name with .html, in this folder)")
    add("--summary", metavar="FILE", help="show the attention for this summary (default: the model writes one)")
    add(
        "--word",
        action="append",
        default=[],
        metavar="TEXT",
        help="also show, token by token, what this word of the document looks at; may be given several times",
    )
    add("--data-folder", type=Path, help="folder with the dictionary and tokenizer/, as for poolingformer-summarize")
    add("--beam", type=positive, default=5, help="beam size of the summary (default: %(default)s)")
    add("--lenpen", type=finite, default=2.0, help="its length penalty (default: %(default)s)")
    add("--max-length", type=positive, default=256, metavar="N", help="its most tokens (default: %(default)s)")
    add_device_options(parser)
    return parser


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    text = read_text(args.file)
    summary = None if args.summary is None else read_text(args.summary)
    name = "standard input" if args.file == "-" else Path(args.file).name
    output = args.output or Path(Path(name).stem.replace(" ", "-") + ".html")
    load_fairseq()
    from fairseq_poolingformer.show import look, page

    folder = args.checkpoint if args.checkpoint is not None and args.checkpoint.is_dir() else None
    if folder is not None and ((folder / "config.json").is_file() or not any(folder.glob("*.pt"))):
        shown, tokenizer = _load_folder(folder, args.data_folder)
    else:
        shown, tokenizer = _load_checkpoint(args.checkpoint, args.data_folder), None
    shown = shown.to(device=args.device, dtype=DTYPES[args.precision]).eval()
    options = {"beam": args.beam, "lenpen": args.lenpen, "max_length": args.max_length}
    model = "the demo model" if args.checkpoint is None else str(args.checkpoint)
    options |= {"tokenizer": tokenizer, "summary": summary, "words": args.word, "title": name, "model": model}
    found = look(shown, text, **options)
    with atomic_write(output) as path:
        path.write_text(page(found), encoding="utf-8")
    print(output)


def _load_folder(folder: Path, data_folder: Path | None) -> tuple[Any, Any]:
    """Load a Poolingformer, LED or Longformer (one without level two) of transformers, and its tokenizer."""
    model_type = str(read_config(folder).get("model_type"))
    own = WINDOWED.get(model_type, model_type)
    if not own.startswith("poolingformer-"):  # DeBERTa becomes a Poolingformer of fairseq's; others are refused
        with tempfile.TemporaryDirectory() as temporary:
            write_fairseq(folder, Path(temporary, "model"), drop_heads=True)
            return _load_checkpoint(Path(temporary, "model", "model.pt"), data_folder), None
    from transformers import AutoTokenizer

    from fairseq_poolingformer import huggingface
    from fairseq_poolingformer.huggingface.families import FAMILIES

    family = FAMILIES[own]
    end = next((end for end in ("ForConditionalGeneration", "MTModel") if end in family.ends), "Model")
    model_class = getattr(huggingface, f"Poolingformer{family.name}{end}")
    model = model_class.from_pretrained(folder, local_files_only=True)
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _load_checkpoint(checkpoint: Path | None, data_folder: Path | None) -> Any:
    if checkpoint is None:
        return load_demo_model()
    checkpoint = checkpoint_of(checkpoint)
    saved = load(checkpoint, BEYOND_SETTINGS)
    settings = saved.get("args") or (saved.get("cfg") or {}).get("model")
    arch = entry(settings, "arch") or entry(settings, "_name") or ""
    if not any(kind in arch for kind in ("roberta", "xlmr", "deberta")):
        return load_hub(checkpoint, data_folder)
    folder = data_folder or find_data_folder(checkpoint)
    try:
        tokenizer_config(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} (--data-folder names the folder that preprocessing wrote)") from None
    from fairseq_poolingformer.models import PoolingformerRoberta

    return PoolingformerRoberta.from_pretrained(str(checkpoint.parent), checkpoint.name, str(folder.resolve()))


if __name__ == "__main__":
    sys.exit(main())

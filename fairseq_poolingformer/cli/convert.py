"""``poolingformer-convert``: Hugging Face BART and LED folders to fairseq checkpoints and back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq_poolingformer.models import conversion
from fairseq_poolingformer.models.conversion import ConversionError, files, gpt2_bpe
from fairseq_poolingformer.models.conversion.flags import training_flags

RESTORE = "--reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler"


def to_fairseq(options: argparse.Namespace) -> None:
    """Convert a Hugging Face folder to ``model.pt``, dictionaries, ``tokenizer/`` and ``flags.txt``."""
    source, output = options.source, options.output
    config = files.read_config(source)
    state = files.read_huggingface_weights(source)
    converted = conversion.to_fairseq(config, state, arch=options.arch, drop_heads=options.drop_heads)
    tokenizer = gpt2_bpe.to_fairseq_files(*files.read_huggingface_tokenizer(source), config["vocab_size"])
    if options.gpt2_bpe:
        gpt2_bpe.check_same(tokenizer, files.read_gpt2_files(options.gpt2_bpe))
    flags = training_flags(converted.settings)
    with files.new_folder(output) as folder:
        files.write_checkpoint(folder / "model.pt", converted.settings, converted.state)
        files.write_gpt2_files(folder, tokenizer)
        (folder / "flags.txt").write_text(flags + "\n", encoding="utf-8")
    _report(output, converted.notes)
    print(f"train from it: fairseq-train DATA --user-dir fairseq_poolingformer {flags} \\")
    print(f"    --restore-file {output / 'model.pt'} {RESTORE} …")
    arch = converted.settings["arch"]
    if arch.startswith("bart_"):
        print(f"as a Poolingformer: the same with --arch poolingformer_{arch} and a larger --max-source-positions")


def to_huggingface(options: argparse.Namespace) -> None:
    """Convert a fairseq checkpoint to ``config.json``, ``model.safetensors`` and tokenizer files."""
    source, output = options.source, options.output
    settings, state = files.read_checkpoint(source)
    converted = conversion.to_huggingface(
        settings,
        state,
        model_type=options.model_type,
        drop_heads=options.drop_heads,
        drop_pooled=options.drop_pooled,
    )
    config = converted.settings
    tokenizer_folder = options.tokenizer or source.parent / "tokenizer"
    if not tokenizer_folder.is_dir():
        raise ConversionError(
            f"{tokenizer_folder} is no folder: name the one with the model's encoder.json, vocab.bpe and dict.txt "
            "with --tokenizer"
        )
    tokenizer = files.read_gpt2_files(tokenizer_folder)
    vocab = gpt2_bpe.to_huggingface_vocab(tokenizer, config["vocab_size"])
    with files.new_folder(output) as folder:
        files.write_json(folder / "config.json", config)
        files.write_huggingface_weights(folder, converted.state)
        files.write_huggingface_tokenizer(
            folder, vocab, tokenizer, config["model_type"], settings["max_source_positions"]
        )
    _report(output, converted.notes)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="poolingformer-convert", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="to-fairseq|to-huggingface")

    fairseq = commands.add_parser("to-fairseq", help="Hugging Face BART or LED folder -> fairseq checkpoint")
    fairseq.set_defaults(run=to_fairseq)
    fairseq.add_argument("source", type=Path, metavar="HF_FOLDER", help="config.json, weights and tokenizer files")
    fairseq.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write")
    fairseq.add_argument(
        "--arch",
        help="fairseq architecture to record in the checkpoint, e.g. poolingformer_bart_large "
        "(default: the one that computes the same: bart_* for BART, led_bart_* for LED)",
    )
    fairseq.add_argument(
        "--gpt2-bpe",
        type=Path,
        metavar="FOLDER",
        help="folder with the original encoder.json, vocab.bpe and dict.txt: stop unless they agree with this model's",
    )

    huggingface = commands.add_parser("to-huggingface", help="fairseq checkpoint -> Hugging Face folder")
    huggingface.set_defaults(run=to_huggingface)
    huggingface.add_argument("source", type=Path, metavar="FAIRSEQ_CHECKPOINT", help="a .pt file")
    huggingface.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write")
    huggingface.add_argument(
        "--model-type",
        choices=list(conversion.FAMILIES),
        help="Hugging Face model to make (default: bart for fairseq's own BART, led for the others)",
    )
    huggingface.add_argument(
        "--drop-pooled", action="store_true", help="leave out the second attention level, which changes the outputs"
    )
    huggingface.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="folder with the model's encoder.json, vocab.bpe and dict.txt, such as tokenizer/ of the data that it was "
        "trained on (default: tokenizer/ beside the checkpoint)",
    )
    for command in (fairseq, huggingface):
        command.add_argument(
            "--drop-heads", action="store_true", help="leave out classification and question-answering heads"
        )
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; by default those of the process.

    Returns:
        0, or 1 when the conversion was refused, with the reason on standard error.
    """
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (ConversionError, OSError) as error:
        print(f"poolingformer-convert: error: {error}", file=sys.stderr)
        return 1
    return 0


def _report(output: Path, notes: list[str]) -> None:
    print(f"wrote {output}: {', '.join(sorted(path.name for path in output.iterdir()))}")
    for note in notes:
        print(f"note: {note}")


if __name__ == "__main__":
    sys.exit(main())

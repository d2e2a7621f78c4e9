"""``poolingformer convert``: folders of transformers to fairseq's checkpoints and back.

Takes BART, mBART, LED, RoBERTa, XLM-R, Longformer, DeBERTa, and this package's Poolingformers.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_poolingformer.cli import from_short
from fairseq_poolingformer.command import load_fairseq, run_command
from fairseq_poolingformer.settings import DEFAULTS

if TYPE_CHECKING:  # these need torch, which would make --help take seconds
    from fairseq_poolingformer.weights import Settings
    from fairseq_poolingformer.weights.convert import Converted
    from fairseq_poolingformer.weights.family import Family

# The flags always name these and the positions, so that nobody trains with another attention by accident.
LEVELS = ("window_size", "pooled_layers", "separate_global_projections", "global_tokens", "global_relative_positions")
ATTENTION = (*LEVELS, "relative_attention", "max_relative_positions")
SWITCHES = {  # of settings whose flags have other names, or that a flag turns off
    ("no_token_positional_embeddings", True): "--no-absolute-positions",
    ("no_token_positional_embeddings", False): "--absolute-positions",
    ("no_scale_embedding", False): "--scale-embedding",
}
COMMANDS = {  # with a decoder or without: of preprocessing, and the task with its criterion
    True: ("arxiv_pubmed --input-folder papers", "long_summarization", "linear_cross_entropy"),
    False: ("plain_text --input 'texts/*.txt' --valid-share 0.05", "long_masked_lm", "long_masked_lm"),
}
LONG = 4096  # a Poolingformer reads at least this many tokens
WINDOW = int(str(DEFAULTS["window_size"]))

_EPILOG = """\
examples:
  poolingformer convert to-fairseq facebook-bart-large bart.large
  poolingformer convert to-huggingface run/checkpoint_best.pt summarizer
  poolingformer convert from-short facebook/bart-base long-bart --max-tokens 16384 --pooled-layers 3-5
"""


def to_fairseq(options: argparse.Namespace) -> None:
    """Convert a Hugging Face folder and tell the user of it."""
    family, converted = write_fairseq(options.source, options.output, options.arch, options.drop_heads)
    _report(options.output, converted.notes)
    print(
        f"in {options.output}, as its README.md says:\n{training_commands(family, converted.settings, options.output)}"
    )


def write_fairseq(
    source: Path, output: Path, arch: str | None = None, drop_heads: bool = False
) -> tuple[Family, Converted]:
    """Convert a Hugging Face folder to ``model.pt``, dictionaries, ``tokenizer/`` and ``flags.txt``."""
    from fairseq_poolingformer.patches.nonfinite import require_finite
    from fairseq_poolingformer.weights import card, files
    from fairseq_poolingformer.weights import convert as conversion

    config = files.read_config(source)
    state = files.read_huggingface_weights(source)
    require_finite(source, state)
    converted = conversion.to_fairseq(config, state, arch=arch, drop_heads=drop_heads)
    family = conversion.family_of(config["model_type"], "config.json: model_type")
    flags = model_flags(family, converted.settings)
    with files.new_folder(output) as folder:
        with files.tokenizer_errors(source):
            languages = _write_fairseq_tokenizer(folder, source, family, config["vocab_size"])
        settings = {**converted.settings, "data": str(output.resolve())}  # where the dictionary and the tokenizer are
        settings |= {"langs": ",".join(languages)} if languages else {}  # as fairseq's tasks of mBART have it
        files.write_checkpoint(folder / "model.pt", settings, converted.state)
        (folder / "flags.txt").write_text(flags + "\n", encoding="utf-8")
        text = card.model_card(
            output.name,
            family,
            converted.settings,
            converted.state,
            library="fairseq",
            commands=training_commands(family, converted.settings, folder),
            notes=converted.notes,
        )
        card.write_card(folder, text, source)
    return family, converted


def _write_fairseq_tokenizer(folder: Path, source: Path, family: Family, rows: int) -> Sequence[str]:
    """Write the dictionaries and ``tokenizer/`` of a Hugging Face folder; return the languages that it has rows for."""
    from fairseq_poolingformer.weights import gpt2_bpe, sentencepiece_model

    model = sentencepiece_model.find(source) or sentencepiece_model.rebuild(source, folder)
    if model is not None:
        mbart = family.model_type.endswith("mbart")
        languages = sentencepiece_model.languages_of(source, model, rows) if mbart else ()
        sentencepiece_model.write_fairseq(folder, model, rows, family.dictionaries, languages)
        return languages
    vocab, merges = gpt2_bpe.read_huggingface_tokenizer(source)
    tokenizer = gpt2_bpe.to_fairseq_files(family.read_vocabulary(vocab), merges, rows)
    tokenizer = replace(tokenizer, config=gpt2_bpe.config_of(source))
    if family.task == "masked_lm":
        gpt2_bpe.check_mask(tokenizer, rows)
    gpt2_bpe.write_gpt2_files(folder, tokenizer, family.dictionaries)
    return ()


def model_flags(family: Family, settings: Settings) -> str:
    """Return the flags for ``fairseq-train`` that build a converted model as it is."""
    changed = {key: settings[key] for key, value in family.arch_defaults.items() if settings.get(key, value) != value}
    always = {key: settings[key] for key in (*family.position_tables.values(), *ATTENTION) if key in settings}
    sizes = family.size_flags(settings, settings["arch"].rpartition("_")[2])
    words = []
    for key, value in {"arch": settings["arch"], **sizes, **changed, **always}.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words += [SWITCHES.get((key, value), flag if value else "")]
        else:
            words += [flag, str(value)]
    return shlex.join(filter(None, words))


def training_commands(family: Family, settings: Settings, folder: Path) -> str:
    """Return commands for a converted checkpoint's folder: train with two-level windows, but for LED and Longformer."""
    longer = dict(settings)
    if family.poolingformer_arch:
        longer = {key: value for key, value in settings.items() if key not in LEVELS}
        longer[family.input_length] = max(LONG, settings[family.input_length])
        if not settings["arch"].startswith("poolingformer_"):
            longer["arch"] = f"{family.poolingformer_arch}_{settings['arch'].rpartition('_')[2]}"
        longer.update(family.level_two(longer))
        if settings.get("max_relative_positions", WINDOW) < WINDOW:
            longer["window_size"] = settings["max_relative_positions"]  # no window may reach beyond these positions
    models = [path.relative_to(folder) for path in (folder / "tokenizer").glob("*.model")]
    tokenizer = f"--sentencepiece-model {models[0]}" if models else "--gpt2-bpe tokenizer"
    preprocess, task, criterion = COMMANDS[family.seq2seq]
    plugin = f'--user-dir "$(poolingformer user-dir)" --task {task}'
    commands = [
        f"poolingformer preprocess {preprocess} {tokenizer} --output-folder data",
        f"fairseq-train data {plugin} --criterion {criterion} {model_flags(family, longer)} --finetune-from-model "
        "model.pt --optimizer fused_adamw --lr 2e-5 --clip-norm 0.1 --batch-size 2 --max-epoch 10 --save-dir run",
    ]
    if family.seq2seq:
        commands.append(
            f"fairseq-generate data {plugin} --path run/checkpoint_best.pt --gen-subset valid --batch-size 2"
        )
    return "\n".join(commands)


def to_huggingface(options: argparse.Namespace) -> None:
    """Convert a fairseq checkpoint to ``config.json``, ``model.safetensors`` and tokenizer files."""
    source, output = options.source, options.output
    load_fairseq()  # whose classes the checkpoint may hold
    from fairseq_poolingformer.patches.nonfinite import require_finite
    from fairseq_poolingformer.weights import ConversionError, card, files, gpt2_bpe, heads, sentencepiece_model
    from fairseq_poolingformer.weights import convert as conversion

    settings, state, updates = files.read_training(source)
    require_finite(source, state)
    model_type = options.model_type
    if model_type is None and "arch" in settings:
        has_head = not options.drop_heads and heads.in_fairseq(state)
        model_type = conversion.default_model_type(settings, drop_pooled=options.drop_pooled, has_head=has_head)
    tokenizer = options.tokenizer or files.find_tokenizer(source, settings)
    if not tokenizer.is_dir():
        raise ConversionError(f"--tokenizer {tokenizer} is no folder")
    model = sentencepiece_model.find(tokenizer)
    if options.model_type is None and model_type == "roberta" and model is not None:
        model_type = "xlm-roberta"
    dropped = {"drop_heads": options.drop_heads, "drop_pooled": options.drop_pooled}
    converted = conversion.to_huggingface(settings, state, model_type=model_type, **dropped)
    config = converted.settings
    rows, model_type = config["vocab_size"], config["model_type"]
    max_length = settings[conversion.FAMILIES[model_type].input_length]
    with files.new_folder(output) as folder:
        if model is not None:
            languages = [name for name in str(settings.get("langs") or "").split(",") if name]
            sentencepiece_model.write_huggingface(folder, model, rows, max_length, languages)
        else:
            with files.tokenizer_errors(tokenizer):
                gpt2 = gpt2_bpe.read_gpt2_files(tokenizer)
                vocab = gpt2_bpe.to_huggingface_vocab(gpt2, rows)
                gpt2_bpe.write_huggingface_tokenizer(folder, vocab, gpt2, conversion.FAMILIES[model_type], max_length)
        files.write_json(folder / "config.json", config)
        files.save_safetensors(converted.state, folder / files.WEIGHTS[0])
        family = conversion.FAMILIES[model_type]
        text = card.model_card(
            output.name,
            family,
            settings,
            converted.state,
            architecture=config["architectures"][0],
            updates=updates,
            notes=converted.notes,
        )
        card.write_card(folder, text, source.parent)
    _report(output, converted.notes)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="poolingformer convert",
        description="Convert Hugging Face folders to fairseq's checkpoints and back, and make short models long.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(required=True, metavar="to-fairseq|to-huggingface|from-short")

    fairseq = commands.add_parser("to-fairseq", help="Hugging Face folder -> fairseq checkpoint")
    fairseq.set_defaults(convert=to_fairseq)
    fairseq.add_argument("source", type=Path, metavar="HF_FOLDER", help="config.json, weights and tokenizer files")
    fairseq.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write")
    text = "fairseq architecture to record in the checkpoint, e.g. poolingformer_bart_large (default: the one that "
    text += "computes the same: bart_* for BART, led_bart_* for LED, roberta_* for RoBERTa and XLM-R, "
    text += "longformer_roberta_* for Longformer, poolingformer_deberta_* for DeBERTa)"
    fairseq.add_argument("--arch", help=text)

    huggingface = commands.add_parser("to-huggingface", help="fairseq checkpoint -> Hugging Face folder")
    huggingface.set_defaults(convert=to_huggingface)
    huggingface.add_argument("source", type=Path, metavar="FAIRSEQ_CHECKPOINT", help="a .pt file")
    huggingface.add_argument("output", type=Path, metavar="OUTPUT_FOLDER", help="new folder to write")
    text = "Hugging Face model to make (default: bart, roberta or xlm-roberta for fairseq's own models, led, "
    text += "longformer or, with relative attention, deberta for this package's; poolingformer-bart or "
    text += "poolingformer-roberta where these have a second attention level)"
    huggingface.add_argument("--model-type", type=_model_type, metavar="TYPE", help=text)
    text = "leave out the second attention level, which changes the outputs"
    huggingface.add_argument("--drop-pooled", action="store_true", help=text)
    text = "folder with the model's encoder.json, vocab.bpe and dict.txt, or its sentencepiece model, such as "
    text += "tokenizer/ of a data folder (default: tokenizer/ beside the checkpoint, or in its training's data folder)"
    huggingface.add_argument("--tokenizer", type=Path, metavar="FOLDER", help=text)
    from_short.add_command(commands)
    text = "leave out classification and question-answering heads"
    for command in (fairseq, huggingface):
        command.add_argument("--drop-heads", action="store_true", help=text)
    return top


def _model_type(name: str) -> str:
    from fairseq_poolingformer.weights.convert import FAMILIES

    if name not in FAMILIES:
        raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(FAMILIES)})")
    return name


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Convert in the direction that was asked for."""
    from fairseq_poolingformer.weights import files

    files.require_new_folder(args.output)
    args.convert(args)


def _report(output: Path, notes: list[str]) -> None:
    print(f"wrote {output}: {', '.join(sorted(path.name for path in output.iterdir()))}")
    for note in notes:
        print(f"note: {note}")

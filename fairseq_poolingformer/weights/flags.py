"""The flags that build the model of a converted checkpoint, and the commands that train from it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.settings import DEFAULTS
from fairseq_poolingformer.weights import Settings
from fairseq_poolingformer.weights.family import Family

# The flags always name these and the positions, so that nobody trains with another attention by accident.
LEVELS = ("window_size", "pooled_layers", "separate_global_projections", "global_tokens", "global_relative_positions")
ATTENTION = (*LEVELS, "relative_attention", "max_relative_positions")
TURNED_ON = {"no_token_positional_embeddings": "--no-absolute-positions"}  # the flag that makes a setting True
TURNED_OFF = {  # the flag that makes a setting False
    "no_token_positional_embeddings": "--absolute-positions",
    "no_scale_embedding": "--scale-embedding",
}
LONG = 4096  # a Poolingformer reads at least this many tokens
WINDOW = int(DEFAULTS["window_size"])


@dataclass(frozen=True)
class Recipe:
    """One of README's ways to train."""

    purpose: str  # the words for it in the line above the command
    data: str  # the corpus of poolingformer-preprocess that makes such a data folder
    task: str  # flags of the command before those of the model
    training: str  # and after them


SUMMARIZATION = Recipe(
    "summarize long documents",
    "arxiv_pubmed",
    "--task long_summarization",
    "--criterion linear_cross_entropy --label-smoothing 0.1 --optimizer fused_adamw --lr 2e-4 "
    "--lr-scheduler polynomial_decay --warmup-updates 1000 --total-num-update 15870 --max-epoch 10 "
    "--batch-size 2 --update-freq 8 --fp16 --checkpoint-activations --save-dir run",
)
PRETRAINING = Recipe(
    "pretrain on long documents",
    "wikipedia",
    "--task long_masked_lm --criterion long_masked_lm --document-blocks pack",
    "--optimizer fused_adamw --lr 3e-5 --lr-scheduler polynomial_decay --power 3 --warmup-updates 500 "
    "--total-num-update 65000 --max-update 65000 "
    "--batch-size 4 --update-freq 2 --fp16 --checkpoint-activations --save-dir run",
)
QUESTION_ANSWERING = Recipe(
    "answer questions over whole pages",
    "natural_questions",
    "--task question_answering --criterion question_answering",
    "--optimizer fused_adamw --lr 2e-5 --lr-scheduler polynomial_decay --warmup-updates 2300 --total-num-update 23000 "
    "--max-epoch 2 --batch-size 1 --update-freq 8 --fp16 --checkpoint-activations --save-dir run",
)


def model_flags(family: Family, settings: Settings) -> str:
    """Return the flags for ``fairseq-train`` that build a converted model as it is."""
    size = settings["arch"].rpartition("_")[2]
    values = {"arch": settings["arch"], **family.size_flags(settings, size)}
    values.update(
        {key: settings[key] for key, value in family.arch_defaults.items() if settings.get(key, value) != value}
    )
    values.update({key: settings[key] for key in (*family.position_tables.values(), *ATTENTION) if key in settings})
    words = []
    for key, value in values.items():
        flag = "--" + key.replace("_", "-")
        if value is False:
            words += [TURNED_OFF[key]] if key in TURNED_OFF else []
        else:
            words += [TURNED_ON.get(key, flag)] if value is True else [flag, str(value)]
    return shlex.join(words)


def training_commands(family: Family, settings: Settings, folder: Path) -> str:
    """Return README's commands that train from a converted checkpoint, with the flags of this model."""
    flags = model_flags(family, long_settings(family, settings))
    bpe = (folder / "tokenizer" / "encoder.json").is_file()
    tokenizer = (
        f"--gpt2-bpe {shlex.quote(str(folder / 'tokenizer'))}"
        if bpe
        else f"--sentencepiece-model {shlex.quote(str(folder / 'tokenizer' / 'sentencepiece.model'))}"
    )
    checkpoint = shlex.quote(str(folder / "model.pt"))
    recipes = (SUMMARIZATION,) if family.task == "long_summarization" else (PRETRAINING, QUESTION_ANSWERING)
    return "\n".join(
        f"to {recipe.purpose}, make a folder DATA with poolingformer-preprocess {recipe.data} {tokenizer} …, then run\n"
        f"fairseq-train DATA --user-dir fairseq_poolingformer {recipe.task} \\\n"
        f"    {flags} \\\n"
        f"    --finetune-from-model {checkpoint} \\\n"
        f"    {recipe.training}"
        for recipe in recipes
    )


def long_settings(family: Family, settings: Settings) -> Settings:
    """Return the settings with which to train a model on long documents.

    LED and Longformer stay as they are. The others become Poolingformers with the windows of their architecture.
    """
    if not family.poolingformer_arch:
        return settings
    longer = {key: value for key, value in settings.items() if key not in LEVELS}
    longer[family.input_length] = max(LONG, settings[family.input_length])
    if not settings["arch"].startswith("poolingformer_"):
        longer["arch"] = f"{family.poolingformer_arch}_{settings['arch'].rpartition('_')[2]}"
    longer.update(family.level_two(longer))
    if settings.get("max_relative_positions", WINDOW) < WINDOW:
        longer["window_size"] = settings["max_relative_positions"]  # no window may reach beyond these positions
    return longer

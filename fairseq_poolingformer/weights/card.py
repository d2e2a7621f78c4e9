"""The model card of a converted model: README.md with the YAML head that the Hugging Face Hub and its tools read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq_poolingformer.settings import DEFAULTS, TABLE, TwoLevels
from fairseq_poolingformer.text.json_file import corpus_of
from fairseq_poolingformer.weights import Settings, State
from fairseq_poolingformer.weights.family import OWN_ARCHS, Family

CARD = "README.md"
SOURCE_CARD = "SOURCE_README.md"
LARGEST_CARD = 2**24  # bytes
MARK = "<!-- written by poolingformer convert -->"
PAPERS = {
    "poolingformer": "[Poolingformer](https://arxiv.org/abs/2105.04371) (Zhang et al., ICML 2021)",
    "led": "LED ([Longformer](https://arxiv.org/abs/2004.05150), Beltagy et al., 2020)",
    "longformer": "[Longformer](https://arxiv.org/abs/2004.05150) (Beltagy et al., 2020)",
}
TASKS = {  # the end of a class's name -> the Hub's name of what it does, and transformers' Auto class, if it has one
    "ForConditionalGeneration": ("summarization", "AutoModelForSeq2SeqLM"),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ForMultipleChoice": ("multiple-choice", "AutoModelForMultipleChoice"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "MTModel": ("translation", "AutoModelForSeq2SeqLM"),
    "Model": ("feature-extraction", "AutoModel"),
}
MEANINGS = {name: setting.metadata["card"] for name, setting in TABLE.items() if "card" in setting.metadata}
VARIANTS = {name: meaning for name, meaning in MEANINGS.items() if DEFAULTS[name] is False}
LEVEL_TWO = {name: meaning for name, meaning in MEANINGS.items() if name not in VARIANTS}


def write_card(folder: Path, card: str, source: Path) -> None:
    """Write the card, and keep the source's own beside it."""
    theirs = source / CARD
    if _is_own(theirs) and MARK not in theirs.read_text(encoding="utf-8", errors="replace"):
        shutil.copyfile(theirs, folder / SOURCE_CARD)
        card += f"\nThe card of the model that this one was made from: [{SOURCE_CARD}]({SOURCE_CARD}).\n"
    (folder / CARD).write_text(card, encoding="utf-8")


def _is_own(path: Path) -> bool:
    """Whether a file of a folder may be copied: no link to another file of the user's, but for the Hub's own cache."""
    if not path.is_file() or path.stat().st_size > LARGEST_CARD:
        return False
    folder, target = path.parent.resolve(), path.resolve().parent
    return target in (folder, folder.parent.parent / "blobs")


def model_card(
    name: str,
    family: Family,
    settings: Settings,
    state: State,
    *,
    library: str = "transformers",
    architecture: str = "",
    updates: int | None = None,
    commands: str = "",
    notes: Iterable[str] = (),
) -> str:
    """Return the text of a model card."""
    architecture = architecture or family.architecture
    tags = [["full-attention"], ["long-documents"], ["long-documents", "poolingformer"]]
    task, _ = task_of(architecture)
    introduction, kind = f"A model of the family {family.model_type}", family.model_type.partition("-")[0]
    if kind in PAPERS:
        base = "BART" if family.seq2seq else "RoBERTa"
        introduction = f"A {base} with the attention of {PAPERS[kind]} in the encoder"
    parts = [
        head({"library_name": library, "pipeline_tag": task}, tags[_levels(family, settings, library)]),
        MARK,
        f"# {name}\n\n{introduction}, converted by fairseq-poolingformer.",
        f"## Use\n\n{_training_use(family, commands) if commands else _use(name, family, architecture)}",
        table("Architecture", _architecture(family, settings, state, _levels(family, settings, library))),
        table("Training", _training(settings, updates)),
    ]
    if listed := "\n".join(f"- {note}" for note in notes):
        parts.append(f"## Notes of the conversion\n\n{listed}")
    parts.append(
        "The conversion cannot know what this model is good for, its limits and biases, and its licence. Nobody has "
        "written them here yet."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _levels(family: Family, settings: Settings, library: str) -> int:
    """Return how many levels of attention the converted model has: 0 for one that sees the whole sequence."""
    ours = library == "fairseq" and settings.get("arch", "").startswith(OWN_ARCHS)
    if (family.two_levels or ours) and TwoLevels.of(settings).layers_with_level_two():
        return 2
    return int(family.two_levels or family.sliding_window or ours)


def task_of(architecture: str) -> tuple[str, str | None]:
    """Return what TASKS says of a class."""
    return next(task for end, task in TASKS.items() if architecture.endswith(end))


def head(facts: Mapping[str, str], tags: Iterable[str]) -> str:
    """Return the YAML that the Hub reads: facts by name, and tags; JSON strings are YAML strings."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in facts.items()]
    return "\n".join(["---", *lines, "tags:", *(f"- {tag}" for tag in tags), "---"])


def _architecture(family: Family, settings: Settings, state: State, levels: int) -> dict[str, Any]:
    """Return the rows of the table: a name and a value."""
    shared = {tensor.data_ptr(): tensor.numel() for tensor in state.values()}
    positions = [settings[key] for key in family.position_tables.values() if key in settings]
    rows = {
        "family": f"`{family.model_type}`",
        "fairseq architecture": f"`{settings['arch']}`" if "arch" in settings else None,
        "parameters": f"{sum(shared.values()):,}",
        "encoder layers": settings.get("encoder_layers"),
        "decoder layers": settings.get("decoder_layers") if family.seq2seq else None,
        "width": settings.get("encoder_embed_dim"),
        "attention heads": settings.get("encoder_attention_heads"),
        "reads at most, tokens": f"{positions[0]:,}" if positions else None,
        "writes at most, tokens": f"{positions[1]:,}" if len(positions) > 1 else None,
    }
    if levels:
        rows["level-one window per layer (tokens per side)"] = settings.get("window_size")
        rows["global tokens, the first ones"] = settings.get("global_tokens")
        if levels == 2:
            rows |= {meaning: settings.get(key) for key, meaning in LEVEL_TWO.items()}
        else:
            rows["level two"] = "none"
        rows["variants"] = ", ".join(text for key, text in VARIANTS.items() if settings.get(key)) or None
    return rows


def _training(settings: Settings, updates: int | None) -> dict[str, Any]:
    folders = [folder for folder in str(settings.get("data") or "").split(":") if folder]
    corpus = next(filter(None, map(corpus_of, map(Path, folders))), {})
    data = Path(folders[0]).name if folders else ""
    examples = corpus.get("examples") or {}
    return {
        "corpus": f"`{corpus['corpus']}`" if "corpus" in corpus else None,
        "data folder": f"`{data}`" if updates and data else None,
        "examples": ", ".join(f"{split} {count:,}" for split, count in examples.items()) or None,
        "updates": f"{updates:,}" if updates else None,
    }


def table(title: str, rows: Mapping[str, Any]) -> str:
    """Return a section with a table of the rows that have a value; empty without any."""
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value is not None]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *lines]) if lines else ""


def _training_use(family: Family, commands: str) -> str:
    records = '`papers/{train,valid}.jsonl` have a line `{"document": "…", "summary": "…"}` a paper'
    return (
        f"In this folder, where {records if family.seq2seq else '`texts/` has a text in each file'}:\n\n"
        f"```bash\n{commands}\n```\n\n`flags.txt` has the flags of the model as it was."
    )


def _use(name: str, family: Family, architecture: str) -> str:
    auto = task_of(architecture)[1]
    register = "import fairseq_poolingformer.huggingface  # registers the model\n" if family.two_levels else ""
    return (
        f"```python\n{register}from transformers import {auto}, AutoTokenizer\n\n"
        f"tokenizer = AutoTokenizer.from_pretrained({name!r})\n"
        f"model = {auto}.from_pretrained({name!r})\n```"
    )

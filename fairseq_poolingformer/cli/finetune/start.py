"""What a training begins with: a model of transformers, a checkpoint of fairseq, or an architecture without weights."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_poolingformer.cli.convert import write_fairseq
from fairseq_poolingformer.settings import flag
from fairseq_poolingformer.tasks.registry import PURPOSES
from fairseq_poolingformer.text.gpt2_bpe import GPT2_FILES
from fairseq_poolingformer.weights import ConversionError, Settings, convert, files, sentencepiece_model
from fairseq_poolingformer.weights.family import OWN_ARCHS, Family
from fairseq_poolingformer.weights.flags import long_settings, model_flags
from fairseq_poolingformer.weights.heads import HEADS

DEMO = "poolingformer_demo"  # the small model that comes with the package
NEW_LEVEL = ("--pool-mix", "--pooled-init", "level-one")  # how level two begins in a model that lacks it
SMALL_WIDTH = 256
LABELLED = {head.task for head in HEADS if head.labels}  # tasks whose heads fit their own labels alone


@dataclass(frozen=True)
class Start:
    """A model before its training."""

    settings: Settings  # fairseq's, with ``arch``
    writes: bool  # whether it has a decoder
    family: Family | None = None  # of transformers; None for an architecture, and for the demo model
    is_trained_here: bool = False  # whether a training of this project has chosen its windows already
    weights: Path | None = None  # the checkpoint; None for random ones
    tokenizer: tuple[str, ...] = ()  # options of ``poolingformer preprocess``; empty where one is to be trained
    labels: tuple[str, ...] = ()  # of the head that is kept, in its order; empty where there is none
    has_head: bool = False  # whether the checkpoint has one for the task
    notes: tuple[str, ...] = ()  # sentences for people
    command: tuple[str, ...] = ()  # the one that converted it; empty where none did

    @property
    def length_name(self) -> str:
        """The setting that says how many tokens it reads."""
        return "max_source_positions" if self.writes else "max_positions"

    @property
    def longest(self) -> int:
        """How many tokens it reads before it is made longer; 0 where nothing says it."""
        return self.settings.get(self.length_name) or 0

    @property
    def longest_target(self) -> int:
        """How many tokens it writes."""
        return self.settings.get("max_target_positions") or 1024

    @property
    def is_small(self) -> bool:
        """Whether it is a model for first steps, or has random weights: both learn at a high rate only."""
        return self.weights is None or self.settings.get("encoder_embed_dim", SMALL_WIDTH) <= SMALL_WIDTH

    def flags(self, length: int) -> list[str]:
        """The flags of ``fairseq-train`` for this model, reading so many tokens."""
        words = ["--arch", self.settings["arch"], flag(self.length_name), str(length)]
        if self.family is not None:
            settings = self.settings if self.is_trained_here else long_settings(self.family, self.settings)
            settings = settings | {self.length_name: length}
            words = shlex.split(model_flags(self.family, settings))
            if settings["arch"] == DEMO:  # whose own default is not that of the others
                words += [flag("pooled_window_size"), str(settings["pooled_window_size"])]
        if self.weights is not None:
            is_long = self.family is not None and self.settings["arch"].startswith(OWN_ARCHS)
            words += () if is_long else NEW_LEVEL  # LED and Longformer get no second level
            words += ("--finetune-from-model", str(self.weights))
        return words


def find(model: str, task: str, folder: Path, labels_of_data: Callable[[], Sequence[str]]) -> Start:
    """Find the model that a folder, checkpoint, architecture or name on the Hub is.

    A checkpoint that has to be written goes into ``folder``; ``labels_of_data`` are asked for where a model has labels.
    """
    path = Path(model)
    if not path.exists() and (model == "demo" or model.startswith(OWN_ARCHS)):
        start = _architecture(DEMO if model == "demo" else model, folder)
    elif path.is_dir() and not (path / "model.pt").is_file() and (path / "config.json").is_file():
        start = _of_transformers(path, task, folder, labels_of_data)
    elif path.exists():
        start = _of_fairseq(path, task, folder, labels_of_data)
    else:
        start = _of_transformers(_fetched(model), task, folder, labels_of_data)
    writes = task == "long_summarization"
    if start.writes != writes:
        has = "a decoder, as BART has" if writes else "an encoder alone, as RoBERTa is"
        name = next((name for name, (its, *_) in PURPOSES.items() if its == task), task)
        raise ConversionError(
            f"{model}: the data are for {name}, which needs {has}, and this is {start.settings['arch']}; take another "
            "model, or say with --task what to learn"
        )
    return start


def _architecture(name: str, folder: Path) -> Start:
    from fairseq_poolingformer.models import bart, demo_model, roberta

    if name not in bart.ARCHITECTURES and name not in roberta.ARCHITECTURES:
        known = ", ".join([*bart.ARCHITECTURES, *roberta.ARCHITECTURES])
        raise ConversionError(f"{name}: neither a folder, nor a checkpoint, nor one of the architectures {known}")
    if name != DEMO:
        return Start({"arch": name}, writes=name in bart.ARCHITECTURES)
    folder.mkdir(parents=True, exist_ok=True)
    demo_model.write_demo_checkpoint(folder / "demo_model.pt")
    settings = files.read_json(demo_model.FOLDER / demo_model.SETTINGS)
    tokenizer = demo_model.FOLDER / "tokenizer" / "sentencepiece.model"
    options = ("--sentencepiece-model", str(tokenizer))
    return Start(settings, writes=True, weights=(folder / "demo_model.pt").resolve(), tokenizer=options)


def _fetched(name: str) -> Path:
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith(".pt"):
        raise ConversionError(f"{name}: no such file or folder")
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise ConversionError(
            f"{name}: no such file or folder, and not an architecture of this project; names on the Hub need "
            "pip install 'fairseq-poolingformer[huggingface]'"
        ) from None
    try:
        patterns = ["*.json", "*.txt", "*.safetensors", "*.model", "*.md"]
        folder = Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns="*/*"))
        if not any(folder.glob("*.safetensors")):  # many models are there in both forms
            snapshot_download(name, allow_patterns="pytorch_model*.bin", ignore_patterns="*/*")
        return folder
    except (OSError, ValueError, RuntimeError) as error:  # of the network, and of names that cannot be
        why = f"cannot be reached, or has none of this name ({type(error).__name__})"
        raise ConversionError(f"{name}: no such file or folder, and the Hub {why}") from error


def _of_transformers(source: Path, task: str, folder: Path, labels_of_data: Callable[[], Sequence[str]]) -> Start:
    config = files.read_config(source)
    if config.get("model_type") not in convert.FAMILIES:
        raise ConversionError(
            f"{source}: a {config.get('model_type')}, and fairseq trains {', '.join(convert.FAMILIES)}; train others "
            "with transformers' Trainer: docs/huggingface.md"
        )
    labels, notes = config.get("labels") or [], ()
    keeps = any(head.task == task and config["class_name"].endswith(head.end) for head in HEADS)
    if keeps and task in LABELLED:
        keeps, notes = _same_labels(labels, labels_of_data())
    if not folder.exists():
        write_fairseq(source, folder, drop_heads=not keeps)
    words = (*("--drop-heads",) * (not keeps), str(source), str(folder))
    start = _of_checkpoint(folder / "model.pt", task)
    kept = tuple(labels) if keeps and task in LABELLED else ()
    return replace(start, labels=kept, notes=tuple(notes), command=("poolingformer", "convert", "to-fairseq", *words))


def _of_fairseq(path: Path, task: str, folder: Path, labels_of_data: Callable[[], Sequence[str]]) -> Start:
    if path.is_dir():
        names = [name for name in ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt") if (path / name).is_file()]
        if not names:
            raise ConversionError(
                f"{path}: a folder with neither config.json nor model.pt; name a model's folder or file"
            )
        path = path / names[0]
    start = _of_checkpoint(path, task)
    if task not in LABELLED or not start.has_head:
        return start
    keeps, notes = _same_labels(start.settings.get("labels") or [], labels_of_data())
    if keeps:
        return replace(start, labels=tuple(start.settings["labels"]), notes=tuple(notes))
    settings, state, _ = files.read_training(path)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value for name, value in state.items() if not name.startswith(f"{task}_head.")}
    files.write_checkpoint(folder / "headless.pt", {k: v for k, v in settings.items() if k != "labels"}, weights)
    return replace(start, weights=(folder / "headless.pt").resolve(), notes=tuple(notes))


def _same_labels(own: Sequence[str], wanted: Sequence[str]) -> tuple[bool, tuple[str, ...]]:
    """Whether a model's head is kept, and why not."""
    if sorted(own) == sorted(wanted):
        return True, (f"the model's head for {', '.join(own)} is kept",)
    named = ", ".join(own[:5]) or "labels without names"
    return False, (f"the model's head is for {named}, the data have {', '.join(wanted[:5])}: a new head is trained",)


def _of_checkpoint(path: Path, task: str) -> Start:
    settings, state, training = files.read_training(path)
    tokenizer = _tokenizer(path, settings)
    has_head = any(name.startswith(f"{task}_head.") for name in state)
    # where nothing was chosen, and how this machine is to compute, is not of the model
    settings = {key: value for key, value in settings.items() if value is not None and key != "attention_backend"}
    kind = convert.default_model_type(settings, sentencepiece=tokenizer[0] == "--sentencepiece-model")
    family = convert.FAMILIES[kind]
    if missing := sorted(set(family.needed) - set(settings)):
        raise ConversionError(f"{path}: its settings lack {', '.join(missing)}")
    trained = training.updates is not None and settings["arch"].startswith(OWN_ARCHS)
    return Start(settings, family.seq2seq, family, trained, path.resolve(), tokenizer, has_head=has_head)


def _tokenizer(checkpoint: Path, settings: Settings) -> tuple[str, ...]:
    """The options that preprocess with a checkpoint's tokenizer."""
    folder = checkpoint.parent
    if not all((folder / name).is_file() for name in GPT2_FILES) and sentencepiece_model.find(folder) is None:
        folder = files.find_tokenizer(checkpoint, settings)
    model = sentencepiece_model.find(folder)
    if model is not None:
        return ("--sentencepiece-model", str(model.resolve()))
    return ("--gpt2-bpe", str(folder.resolve()))

"""The model that a training begins with: what MODEL names, in its own length or made long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.cli.models import checkpoint_of, is_of_transformers
from fairseq_poolingformer.huggingface import opening
from fairseq_poolingformer.huggingface.families import FAMILIES, family_of
from fairseq_poolingformer.huggingface.short_models import UNLIMITED, longest_input, why_not
from fairseq_poolingformer.settings import as_text, layer_numbers, per_layer
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.weights import files, sentencepiece_model

DEMO = "demo"  # the small model that comes with the package
DEMO_FOLDER = Path(huggingface.__file__).parent.parent / "demo_model"
DEMO_LEVELS = {"window_size": "4,16,32,32", "pooled_layers": "2-3", "pooled_window_size": "256"}
LONG = 4096  # tokens that a model is made to read at most, unless --length says more
SHORT, WINDOW, TWO_LEVELS = SYSTEMS = ("short", "window", "long")
SUMMARIES, LABELS = "summarization", "classification"
ENDS = {SUMMARIES: "ForConditionalGeneration", LABELS: "ForSequenceClassification"}  # of the classes for a task


@dataclass
class Base:
    """A model of transformers before its training."""

    name: str  # as the user named it
    place: str  # what transformers opens: a folder, or a name on the Hub
    task: str  # a key of ENDS

    def __post_init__(self) -> None:
        writes = self.task == SUMMARIES
        if Path(self.place).is_dir():
            opening.check(Path(self.place))
        self.config = config_of(self.name, self.place)
        with opening.explained(self.name, "its tokenizer"):
            # a <s> in a text is text
            self.tokenizer = AutoTokenizer.from_pretrained(self.place, split_special_tokens=True)
            if len(self.tokenizer) <= len(self.tokenizer.all_special_ids):
                raise opening.FolderError(f"{self.name}: has no tokenizer; put its files beside config.json")
            if self.tokenizer.pad_token is None:
                self.tokenizer.pad_token = self.tokenizer.eos_token
        self.auto = AutoModelForSeq2SeqLM if writes else AutoModelForSequenceClassification
        kind = self.config.model_type
        if type(self.config) not in self.auto._model_mapping:
            needed = "a decoder, as BART and T5 have" if writes else f"a class …{ENDS[self.task]}"
            raise ValueError(f"{self.name}: a {kind}, and {self.task} needs {needed}; take another model")
        family = family_of(kind)
        self.is_long = kind in FAMILIES
        end = family.generating if family and writes else ENDS[self.task]
        self.long_class = family and getattr(huggingface, f"Poolingformer{family.name}{end}", None)
        self.why_not_long = f"no long {family.name} is for {self.task}" if family else why_not(kind)
        with opening.explained(self.name):
            self.length = longest_input(self.config, self.tokenizer, self.config.is_encoder_decoder and not writes)
        # positions that the configuration counts beside the tokens'
        self.unused = family.layout.first_position(self.config) if family else 0

    def reads(self, longest: int, asked: int | None, keep_short: bool) -> int:
        """Decide how many tokens are read of documents, most of which have up to ``longest``."""
        if self.is_long or keep_short or not self.long_class:
            if asked and asked > self.length:
                reason = "--keep-short" if keep_short else "as it is" if self.is_long else self.why_not_long
                raise ValueError(f"--length {asked}: {self.name} reads {self.length:,} tokens ({reason})")
            return asked or min(self.length, LONG if self.length == UNLIMITED else self.length)
        if asked or longest <= self.length:
            return asked or self.length
        return max(self.length, min(LONG, 2 ** (longest - 1).bit_length()))

    def build(self, system: str, length: int, labels: list[str]) -> nn.Module:
        """Load it as one of SYSTEMS, in float32; a head for the same labels is kept."""
        own_labels = list(self.config.id2label.values()) if ENDS[self.task] in str(self.config.architectures) else []
        names = own_labels if sorted(own_labels) == sorted(labels) else labels
        options: dict[str, Any] = {"dtype": torch.float32}
        if labels:
            options |= {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
        model = opening.load(self.auto, self.place, new_head=True, new_level=self.name == DEMO, **options)
        if system != SHORT and not self.is_long:
            settings = {"max_position_embeddings": max(length, self.length) + self.unused}
            made = self.long_class.from_short(model, **settings)
            if system == WINDOW:
                window = {"pooled_layers": "none", "window_size": equal_cost(made.config)}
                made = self.long_class.from_short(model, **settings, **window)
            model = made
        if self.task == LABELS:
            model.config.problem_type = "single_label_classification"
        model.config.pad_token_id = self.tokenizer.pad_token_id
        return model.train()


def config_of(name: str, place: str) -> Any:
    """The configuration of a folder or a name on the Hub."""
    missing = "" if Path(place).exists() else ", neither here nor on the Hub,"
    with opening.explained(name, f"{opening.CONFIG}{missing}"):
        config = AutoConfig.from_pretrained(place)
        labels = config.id2label or {}
        if any(not isinstance(label, str) for label in labels.values()):
            raise opening.FolderError(f"{name}: id2label of {opening.CONFIG} must have names alone")
    return config


def find(name: str, task: str, scratch: Path) -> Base:
    """Find the model that a folder, a checkpoint of fairseq, or a name on the Hub is; conversions go to ``scratch``."""
    path = Path(name)
    if name == DEMO and not path.exists():
        place = scratch / DEMO
        if not place.exists():
            _write_demo(place)
        print("the demo model comes with the package; it knows made documents alone")
    elif is_of_transformers(path):
        place = path if path.exists() else name
    else:
        checkpoint, place = checkpoint_of(path), scratch / "converted"
        if not place.exists():
            args = convert.make_parser().parse_args(["to-huggingface", str(checkpoint), str(place)])
            args.convert(args)
        print(f"{name} is a checkpoint of fairseq, and is converted first: poolingformer convert to-huggingface")
    return Base(name, str(place), task)


def _write_demo(folder: Path) -> None:
    norms = {"encoder_normalize_before": True, "decoder_normalize_before": True, "dropout": 0.0}  # of its architecture
    settings = read_json_file(DEMO_FOLDER / "config.json") | norms
    state = {name: value.float() for name, value in load_file(DEMO_FOLDER / "model.safetensors").items()}
    converted = convert.conversion.to_huggingface(settings, state, model_type="poolingformer-mbart")
    with files.new_folder(folder) as unfinished:
        model = DEMO_FOLDER / "tokenizer" / "sentencepiece.model"
        rows, longest = converted.settings["vocab_size"], settings["max_source_positions"]
        sentencepiece_model.write_huggingface(unfinished, model, rows, longest, [])
        files.write_json(unfinished / "config.json", converted.settings | DEMO_LEVELS)
        files.save_safetensors(converted.state, unfinished / files.WEIGHTS[0])


def equal_cost(config: Any) -> str:
    """The one-level windows that cost as much as a model's two levels, by layer."""
    # level two costs its keys, and three projections of its own as much as 0.75 · width keys (docs/quickstart.md)
    projections = 0.375 * config.hidden_size * (config.pool_merge == "sum")
    layers = config.num_hidden_layers
    level_one = per_layer("window_size", as_text(config.window_size), layers)
    level_two = per_layer("pooled_window_size", as_text(config.pooled_window_size), layers)
    pooled = layer_numbers(config.pooled_layers)
    more = [round(level_two[layer] / config.pool_stride + projections) for layer in range(layers)]
    return ",".join(str(level_one[layer] + more[layer] * (layer in pooled)) for layer in range(layers))

"""The classes of every family, made from its row of :data:`~.families.FAMILIES` and registered with ``AutoModel…``."""

from __future__ import annotations

import sys
from typing import Any

import transformers

from fairseq_poolingformer.huggingface.bart import Seq2SeqDecoder
from fairseq_poolingformer.huggingface.encoders import WithParts
from fairseq_poolingformer.huggingface.families import FAMILIES, HEADS, LongFamily
from fairseq_poolingformer.huggingface.short_models import ONE_SOFTMAX, FromShort
from fairseq_poolingformer.settings import Layers, LevelSettings

TYPES = {"pooled_layers": Layers, "layer_norm_eps": float}  # of settings that are no whole numbers


def make(name: str, doc: str, *bases: type, **common: Any) -> type:
    """Make a class of this module, where pickles find it."""
    globals()[name] = type(name, bases, {"__module__": __name__, "__doc__": doc, **common})
    return globals()[name]


def make_family(family: LongFamily) -> None:
    """Make a family's configuration and classes, and register them."""
    start, theirs = f"Poolingformer{family.name}", sys.modules[getattr(transformers, f"{family.name}Model").__module__]
    config = make(
        f"{start}Config",
        f"{family.name}'s configuration with the settings of the two levels, named as fairseq-train's flags.",
        *(*family.config, LevelSettings, getattr(transformers, f"{family.name}Config")),
        __annotations__={name: TYPES.get(name, int) for name in family.defaults},
        model_type=family.model_type,
        **family.defaults,
    )
    own, transformers_name = {"config_class": config}, f"Poolingformer-{family.name}"
    transformers.AutoConfig.register(family.model_type, config, exist_ok=True)
    parts = _parts(family, start, theirs, own) if family.has_decoder else ()
    for end, before in family.ends.items():
        head, base = HEADS[end], getattr(transformers, family.name + end)
        if end == "Model":
            bases = (WithParts if family.has_decoder else family.encoder,)
            common: dict[str, Any] = {"parts": parts} if family.has_decoder else {"layout": family.layout}
        else:
            bases = (before,)
            common = {"parts": (globals()[f"{start}Model"],)}
        kinds = {kind: getattr(transformers, name + end, None) for kind, name in family.short.items()}
        common["short_classes"] = {kind: short for kind, short in kinds.items() if short is not None}
        doc = f"{transformers_name} {head.does}.\n\nA long model of from_short has {ONE_SOFTMAX}."
        cls = make(start + end, doc, FromShort, *bases, base, **own, **common)
        getattr(transformers, head.auto or f"AutoModel{end}").register(config, cls, exist_ok=True)


def _parts(family: LongFamily, start: str, theirs: Any, common: dict[str, Any]) -> tuple[type, ...]:
    """Make the encoder and the decoder of a family that has both."""
    kinds = {"Encoder": family.encoder, "Decoder": Seq2SeqDecoder}
    named = {end: getattr(theirs, family.name + end) for end in kinds}
    return tuple(
        make(start + end, f"{family.name}'s {end.lower()}.", kind, named[end], **common) for end, kind in kinds.items()
    )


for each in FAMILIES.values():
    make_family(each)

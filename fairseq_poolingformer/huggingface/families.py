"""The families of transformers' models that have two levels here: a row of FAMILIES is a family, HEADS what they do.

``classes.py`` makes the classes of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import transformers
from transformers import PreTrainedConfig

from fairseq_poolingformer.huggingface.attention import BERT_NAMES, PROJECTIONS, AttentionLayout
from fairseq_poolingformer.huggingface.bart import Seq2SeqEncoder, Seq2SeqHead, Seq2SeqReader, Seq2SeqSpanHead
from fairseq_poolingformer.huggingface.configuration import (
    AbsoluteSettings,
    BothLabels,
    DecoderSettings,
    RotarySettings,
)
from fairseq_poolingformer.huggingface.encoders import (
    ChoiceHead,
    EncoderSpanHead,
    LabelHead,
    RelativeEncoder,
    TextEncoder,
    TextHead,
)
from fairseq_poolingformer.huggingface.modernbert import (
    ModernBertChoiceHead,
    ModernBertEncoder,
    ModernBertSelfAttention,
)
from fairseq_poolingformer.settings import PAPER_LAYERS, RelativeSettings
from fairseq_poolingformer.weights.loading import OFFSET
from fairseq_poolingformer.weights.names import ENCODER, NAMES, Names


@dataclass(frozen=True)
class End:
    """A class-name suffix (…ForTokenClassification), its mixin and its Auto class."""

    does: str  # the end of "Poolingformer-BERT …"
    encoder: type | None = None  # comes before transformers' own class in families of encoders; None for no class
    decoder: type | None = None  # the same in families that have a decoder, too
    auto: str = ""  # transformers' Auto class, where it is not called after the end


HEADS = {  # the end of a class's name ->
    "Model": End("without a head", object, object, "AutoModel"),
    "ForConditionalGeneration": End("that writes, such as summaries", None, Seq2SeqHead, "AutoModelForSeq2SeqLM"),
    "ForMaskedLM": End("that fills in masked tokens", LabelHead),
    "ForSequenceClassification": End("that gives a class to a text", TextHead, Seq2SeqReader),
    "ForTokenClassification": End("that gives a class to each token", LabelHead),
    "ForQuestionAnswering": End("that finds spans", EncoderSpanHead, Seq2SeqSpanHead),
    "ForMultipleChoice": End("that chooses one of several texts", ChoiceHead),
}


LONG_POSITIONS = {"max_position_embeddings": 4096}  # of most families


@dataclass(frozen=True)
class LongFamily:
    """A family of transformers' models."""

    name: str  # begins transformers' names of its classes, after which ours and the model_type are named
    layout: AttentionLayout  # where its encoder has the self-attention
    defaults: Mapping[str, Any] = field(
        default_factory=lambda: LONG_POSITIONS
    )  # other than transformers' or the levels'
    config: tuple[type, ...] = ()  # what its configuration has beside the settings of the two levels
    also: Mapping[str, str] = field(default_factory=dict)  # model_type of other short models -> start of their names
    encoder: type = TextEncoder  # comes before transformers' own encoder
    heads: Mapping[str, type] = field(default_factory=dict)  # the same by their ends, where it is not what HEADS has

    @property
    def model_type(self) -> str:
        """The ``model_type`` of its configuration here."""
        return f"poolingformer-{self.name.lower()}"

    @property
    def short(self) -> dict[str, str]:
        """The ``model_type`` of the short models that become one -> the beginning of their classes' names."""
        return {self.name.lower(): self.name, **self.also}

    @property
    def has_decoder(self) -> bool:
        """Whether its models have a decoder beside the encoder."""
        return issubclass(self.encoder, Seq2SeqEncoder)

    @property
    def generating(self) -> str | None:
        """The end of the name of its class that writes; None without any."""
        return "ForConditionalGeneration" if self.has_decoder else None

    @property
    def ends(self) -> dict[str, type]:
        """The ends of its classes' names -> what comes before transformers' own."""
        bases = {end: head.decoder if self.has_decoder else head.encoder for end, head in HEADS.items()}
        theirs = {end: base for end, base in bases.items() if base and hasattr(transformers, self.name + end)}
        return {end: self.heads.get(end, base) for end, base in theirs.items()}

    @property
    def names(self) -> Names:
        """The names of its parameters beside this project's own; those that are not here are the same on both sides."""
        letters = zip(self.layout.names, ("q", "k", "v", "out"), strict=True)
        theirs, ours = f"{self.layout.layers}.#.{self.layout.attention}", "encoder.layers.#.self_attn"
        if self.has_decoder:
            theirs, lines = f"encoder.{theirs}", []
        else:
            ours = f"{ENCODER}.layers.#.self_attn"
            lines = [("embeddings.position_embeddings.weight", f"{ENCODER}.embed_positions.weight")]
        lines += [(f"{theirs}.{name}.*", f"{ours}.{letter}_proj.*") for name, letter in letters if name]
        return Names(*lines, (f"{theirs}.*", f"{ours}.*"))

    def rows_before(self, config: PreTrainedConfig) -> int:
        """The rows of the encoder's table of positions before the first token's."""
        return OFFSET if self.has_decoder else self.layout.first_position(config)


_BERT = AttentionLayout("encoder.layer", "attention.self", BERT_NAMES, "attention_probs_dropout_prob")
_ROBERTA = replace(_BERT, after_padding=True)
_BART: dict[str, Any] = {"layout": Seq2SeqEncoder.layout, "config": (DecoderSettings,), "encoder": Seq2SeqEncoder}
FAMILIES = {
    family.model_type: family
    for family in (
        LongFamily("Bart", **{**_BART, "config": (BothLabels, DecoderSettings)}, also={"led": "LED"}),
        LongFamily("MBart", **_BART),
        LongFamily(
            "Roberta",
            _ROBERTA,
            {
                "max_position_embeddings": 4096 + OFFSET,  # counts those before the first token's
                "type_vocab_size": 1,
                "layer_norm_eps": 1e-5,
                "pooled_layers": PAPER_LAYERS["roberta_base"],
            },
            (AbsoluteSettings, RelativeSettings),
            also={"xlm-roberta": "XLMRoberta", "camembert": "Camembert", "longformer": "Longformer"},
            encoder=RelativeEncoder,
        ),
        LongFamily("Bert", _BERT),
        LongFamily("Electra", _BERT),
        LongFamily(
            "DistilBert",
            AttentionLayout(
                "transformer.layer", "attention", ("q_lin", "k_lin", "v_lin", "out_lin"), "attention_dropout"
            ),
            {**LONG_POSITIONS, "pooled_layers": "3-5"},
        ),
        LongFamily(
            "ModernBert",
            AttentionLayout(
                "layers", "attn", PROJECTIONS, "attention_dropout", attention_class=ModernBertSelfAttention
            ),
            {},
            (RotarySettings,),
            encoder=ModernBertEncoder,
            heads={"ForMultipleChoice": ModernBertChoiceHead},
        ),
    )
}


def family_of(kind: str | None) -> LongFamily | None:
    """Return the family that short models of a ``model_type`` become, or that has it."""
    return FAMILIES.get(kind) or next((family for family in FAMILIES.values() if kind in family.short), None)


def names_of(kind: str) -> Names:
    """Return the names of the parameters in models of a ``model_type``."""
    return NAMES[kind] if kind in NAMES else family_of(kind).names

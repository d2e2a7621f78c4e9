"""transformers' configurations with the settings of the two levels, named as fairseq-train's flags."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import (
    BartConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    MarianConfig,
    MBartConfig,
    ModernBertConfig,
    MPNetConfig,
    PegasusConfig,
    RobertaConfig,
    T5Config,
)

from fairseq_poolingformer.huggingface.peft_targets import PeftAsks
from fairseq_poolingformer.settings import PAPER_LAYERS, Layers, LevelSettings, RelativeSettings, as_text

OLDEST = (5, 5)  # older ones lose the settings that a configuration inherits, or refuse mBART's own
if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:
    needed = ".".join(map(str, OLDEST))
    raise ImportError(
        f"Poolingformers need transformers {needed} or later, and this is {transformers.__version__}: "
        f"pip install 'transformers>={needed}'"
    )


class PoolingformerBartConfig(PeftAsks, LevelSettings, BartConfig):
    """BART's configuration with the two levels.

    ``max_position_embeddings`` is the encoder's, ``max_decoder_position_embeddings`` the decoder's.
    """

    model_type = "poolingformer-bart"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the settings to save, two classes too: transformers leaves them out, and BART reads that as three."""
        return {"id2label": self.id2label, "label2id": self.label2id, **super().to_diff_dict()}


class PoolingformerMBartConfig(PeftAsks, LevelSettings, MBartConfig):
    """mBART's configuration with the two levels; positions as in :class:`PoolingformerBartConfig`."""

    model_type = "poolingformer-mbart"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024


class PoolingformerRobertaConfig(PeftAsks, RelativeSettings, LevelSettings, RobertaConfig):
    """RoBERTa's configuration with the two levels, and with DeBERTa's relative positions where they are asked for.

    As in RoBERTa, ``max_position_embeddings`` is two more than the tokens that the model reads.
    """

    model_type = "poolingformer-roberta"

    max_position_embeddings: int = 4098
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pooled_layers: Layers = PAPER_LAYERS["roberta_base"]
    absolute_positions: bool = True


class PoolingformerBertConfig(PeftAsks, LevelSettings, BertConfig):
    """BERT's configuration with the two levels."""

    model_type = "poolingformer-bert"

    max_position_embeddings: int = 4096


class PoolingformerElectraConfig(PeftAsks, LevelSettings, ElectraConfig):
    """ELECTRA's configuration with the two levels."""

    model_type = "poolingformer-electra"

    max_position_embeddings: int = 4096


class PoolingformerDistilBertConfig(PeftAsks, LevelSettings, DistilBertConfig):
    """DistilBERT's configuration with the two levels."""

    model_type = "poolingformer-distilbert"

    max_position_embeddings: int = 4096
    pooled_layers: Layers = "3-5"


class PoolingformerMPNetConfig(PeftAsks, LevelSettings, MPNetConfig):
    """MPNet's configuration with the two levels.

    As in MPNet, ``max_position_embeddings`` is two more than the tokens that the model reads.
    """

    model_type = "poolingformer-mpnet"

    max_position_embeddings: int = 4098


class PoolingformerPegasusConfig(PeftAsks, LevelSettings, PegasusConfig):
    """Pegasus' configuration with the two levels; positions as in :class:`PoolingformerBartConfig`."""

    model_type = "poolingformer-pegasus"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024


class PoolingformerMarianConfig(PeftAsks, LevelSettings, MarianConfig):
    """Marian's configuration with the two levels; positions as in :class:`PoolingformerBartConfig`."""

    model_type = "poolingformer-marian"

    max_position_embeddings: int = 4096
    max_decoder_position_embeddings: int = 1024


class PoolingformerT5Config(PeftAsks, LevelSettings, T5Config):
    """T5's configuration with the two levels; ``max_position_embeddings`` bounds the input, and no table."""

    model_type = "poolingformer-t5"

    max_position_embeddings: int = 16384
    pooled_layers: Layers = "3-5"


class PoolingformerModernBertConfig(PeftAsks, LevelSettings, ModernBertConfig):
    """ModernBERT's configuration with the two levels, which by default its layers of full attention have.

    One ``window_size`` is that of these layers; the others keep ``local_attention // 2`` tokens on each side.

    ``rope_type`` says what becomes of the rotary positions in layers of full attention where the model is longer than
    the ``original_max_position_embeddings`` that it was made from: ``default`` leaves them as they are, ``linear`` and
    ``yarn`` are transformers', ``ntk`` multiplies ``rope_theta`` by the power D / (D - 2) of the growth, D the
    dimensions of a head. The base's own are in ``rope_parameters``.
    """

    model_type = "poolingformer-modernbert"

    pooled_layers: Layers | None = None
    rope_type: str = "default"
    original_max_position_embeddings: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.complete()

    def complete(self) -> None:
        """Write out the windows and layers that follow from ``layer_types``, which ``from_pretrained`` may have set."""
        is_full = [kind == "full_attention" for kind in self.layer_types]
        if self.pooled_layers is None:
            self.pooled_layers = as_text(layer for layer, full in enumerate(is_full) if full) or "none"
        if "," not in (window := as_text(self.window_size)):
            self.window_size = as_text(window if full else self.local_attention // 2 for full in is_full)

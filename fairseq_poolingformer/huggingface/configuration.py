"""Configurations of transformers with the settings of the two levels, named as fairseq-train's flags."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import BartConfig, MBartConfig, ModernBertConfig, RobertaConfig

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
        is_full = [kind == "full_attention" for kind in self.layer_types]
        if self.pooled_layers is None:
            self.pooled_layers = as_text(layer for layer, full in enumerate(is_full) if full) or "none"
        if "," not in (window := as_text(self.window_size)):
            self.window_size = as_text(window if full else self.local_attention // 2 for full in is_full)

"""Mixins of the families' configurations, beside transformers' own and the settings of the two levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers

from fairseq_poolingformer.extras import TRANSFORMERS, is_too_old
from fairseq_poolingformer.settings import Layers, as_text

if is_too_old(transformers.__version__, TRANSFORMERS):
    raise ImportError(
        f"Poolingformers need {TRANSFORMERS}, and this is {transformers.__version__}: install a newer one"
    )


@dataclass(repr=False)
class DecoderSettings:
    """Settings of encoder-decoder models; ``max_position_embeddings`` is the encoder's."""

    max_decoder_position_embeddings: int = 1024


class BothLabels:
    """BART reads a configuration without names of labels as one of three."""

    def to_diff_dict(self) -> dict[str, Any]:
        """Return the settings to save, two classes too, which transformers leaves out."""
        return {"id2label": self.id2label, "label2id": self.label2id, **super().to_diff_dict()}


@dataclass(repr=False)
class AbsoluteSettings:
    """Settings of RoBERTa, where DeBERTa's relative positions join or replace the absolute ones."""

    absolute_positions: bool = True


@dataclass(repr=False)
class RotarySettings:
    """Settings of ModernBERT: by default its layers of full attention have two levels.

    One ``window_size`` is that of these layers; the others keep ``local_attention // 2`` tokens on each side.

    ``rope_type`` says what becomes of the rotary positions in layers of full attention where the model is longer than
    the ``original_max_position_embeddings`` that it was made from: ``default`` leaves them as they are, ``linear`` and
    ``yarn`` are transformers', ``ntk`` multiplies ``rope_theta`` by the power D / (D - 2) of the growth, D the
    dimensions of a head. The base's own are in ``rope_parameters``.
    """

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

"""Make long models from short ones: ``from_short``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from fairseq_poolingformer.models.loading import extend_positions

logger = logging.getLogger(__name__)

OFFSET = 2  # rows of the position tables before position 0, in BART and in RoBERTa
LEVEL_TWO = ".pooled_"
PROJECTIONS = {"q": (".q_proj.", ".query."), "k": (".k_proj.", ".key."), "v": (".v_proj.", ".value.")}
NOT_COPIED = ("model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "max_position_embeddings")


class FromShort:
    """Adds :meth:`from_short` to a model.

    Attributes:
        short_class: transformers' model of the same kind.
        short_types: the ``model_type`` of the short models that it takes.
    """

    short_class: type[PreTrainedModel]
    short_types: tuple[str, ...] = ("roberta", "xlm-roberta")

    @classmethod
    def from_short(cls, model: str | Path | PreTrainedModel, **settings: Any) -> PreTrainedModel:
        """Make a long model with the weights of a short one.

        Positions are repeated in a loop, as everywhere in this package. Level two starts with random values,
        N(0, 0.02²); with ``pooled_init="level-one"`` its projections start as copies of level one's. Separate
        projections of global tokens start as copies of the ordinary ones.

        Args:
            model: a loaded BART, RoBERTa or XLM-R, or its folder or name for ``from_pretrained``.
            settings: of the configuration, such as ``max_position_embeddings=16384, pooled_layers="3-5"``. The others
                come from the short model or, for the two levels, from the configuration's defaults, but level two is in
                the upper half of the layers.

        Returns:
            The model, in eval mode.

        Raises:
            ValueError: the short model is of another kind.
        """
        short = model if isinstance(model, PreTrainedModel) else cls.short_class.from_pretrained(model)
        if short.config.model_type not in cls.short_types:
            raise ValueError(
                f"the short model is a {short.config.model_type}; {cls.__name__} takes {' or '.join(cls.short_types)}"
            )
        shared = {name: value for name, value in short.config.to_dict().items() if name not in NOT_COPIED}
        if hasattr(cls.config_class, "max_decoder_position_embeddings"):
            shared["max_decoder_position_embeddings"] = short.config.max_position_embeddings
        layers = short.config.num_hidden_layers
        shared["pooled_layers"] = f"{layers // 2}-{layers - 1}"
        config = cls.config_class(**{**shared, **settings})
        long = cls(config).to(short.dtype).eval()
        copies = ["global"] + ["pooled"] * (config.pooled_init == "level-one")
        long.load_state_dict(_extended(short.state_dict(), long.state_dict(), copies))
        long.tie_weights()
        if short.can_generate():
            long.generation_config = short.generation_config
        return long


def _extended(short: dict[str, Tensor], long: dict[str, Tensor], copies: list[str]) -> dict[str, Tensor]:
    """Return the state of a long model: the short one's with repeated positions, and the long one's for the rest.

    Args:
        short, long: states of the two models.
        copies: kinds of projections ("global", "pooled") that start as copies of the ordinary ones.
    """
    state, fresh = {}, []
    for name, own in long.items():
        given = next((short[source] for source in [name, *_copied_from(name, copies)] if source in short), None)
        if given is None:
            fresh.append(name)
            given = own
        if name.endswith(("embed_positions.weight", "position_embeddings.weight")) and given.size(0) != own.size(0):
            given = extend_positions(given, own.size(0), OFFSET)
        state[name] = given
    if odd := [name for name in fresh if LEVEL_TWO not in name]:
        raise ValueError(f"the short model lacks {', '.join(odd)}: give one of the same kind as the long model")
    if unused := sorted(set(short) - set(long) - {"final_logits_bias"}):
        logger.warning("left out, since the long model has no place for them: %s", ", ".join(unused))
    logger.info("newly initialized: %s", ", ".join(fresh) or "nothing")
    return state


def _copied_from(name: str, copies: list[str]) -> list[str]:
    """Return the names that the ordinary projection beside one of these kinds may have."""
    return [
        name.replace(f".{kind}_{letter}_proj.", ordinary)
        for kind in copies
        for letter, names in PROJECTIONS.items()
        for ordinary in names
        if f".{kind}_{letter}_proj." in name
    ]

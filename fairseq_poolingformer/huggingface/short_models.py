"""Make long models from short ones, and two-level models from LED and Longformer: ``from_short``."""

from __future__ import annotations

import copy
import logging
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from fairseq_poolingformer.huggingface import card
from fairseq_poolingformer.settings import upper_half
from fairseq_poolingformer.weights.loading import extend_positions

logger = logging.getLogger(__name__)

OFFSET = 2  # rows of the position tables before position 0, in BART and in RoBERTa
FRESH = (".pooled_", ".relative_projections.", "relative_positions.", "pooler.")  # parameters that short models lack
PROJECTIONS = {"q": (".q_proj.", ".query."), "k": (".k_proj.", ".key."), "v": (".v_proj.", ".value.")}
POSITIONS = ("embed_positions.weight", "position_embeddings.weight")
NOT_COPIED = (  # settings of the short model that say nothing about the long one
    *("model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "max_position_embeddings"),
    "source",
)
LABELS = ("num_labels", "id2label", "label2id")  # settings that say how wide a new classifier is
WINDOWED = ("led", "longformer")  # their positions, windows and global projections are kept
LARGEST = (  # settings that are sizes, and the largest
    (r"(num_hidden|encoder|decoder)_layers", 1000),
    (r".*_heads", 4096),
    (r".*_dim|d_model|(hidden|intermediate|vocab)_size", 2**22),
    (r"max_.*position_embeddings", 2**27),
)
# names of LED's and Longformer's parameters -> names here
RENAMED = (
    (r"^led\.", "model."),
    (r"^longformer\.", "roberta."),
    (r"\.longformer_self_attn\.(query|key|value)\.", lambda match: f".{match[1][0]}_proj."),
    (r"(\.longformer_self_attn|(?<=\.self))\.(query|key|value)_global\.", lambda match: f".global_{match[2][0]}_proj."),
    (r"(encoder\.layers\.\d+\.self_attn)\.output\.", r"\1.out_proj."),
)


class FromShort:
    """Adds :meth:`from_short` to a model.

    Attributes:
        short_classes: the ``model_type`` of each short model that it takes -> transformers' class of the same kind.
    """

    short_classes: dict[str, type[PreTrainedModel]]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> PreTrainedModel:
        """Load a Poolingformer, or a LED or Longformer as :meth:`from_short` makes it.

        Raises:
            ValueError: it is a short model.
        """
        model = pretrained_model_name_or_path
        if isinstance(config := kwargs.get("config"), PreTrainedConfig):  # from AutoModel…
            check_sizes(model, config.to_dict())
        if model is not None and not args and "config" not in kwargs:
            kind = _model_type(model, **kwargs)
            if kind in WINDOWED:
                names = {field.name for field in fields(cls.config_class)}.difference(LABELS)
                settings = {name: value for name, value in kwargs.items() if name in names}
                loading = {name: value for name, value in kwargs.items() if name not in names}
                return cls.from_short(cls._short_class(kind).from_pretrained(model, **loading), **settings)
            if kind in cls.short_classes:
                raise ValueError(f"{model} is a {kind}: {cls.__name__}.from_short makes a long model of it")
        return super().from_pretrained(model, *args, **kwargs)

    @classmethod
    def from_short(
        cls, model: str | Path | PreTrainedModel, *, dtype: torch.dtype | str = "auto", **settings: Any
    ) -> PreTrainedModel:
        """Make a long model with the weights of a short one.

        Positions are repeated in a loop, as everywhere in this package. Level two starts with random values,
        N(0, 0.02²); with ``pooled_init="level-one"`` its projections start as copies of level one's. Separate
        projections of global tokens start as copies of the ordinary ones. A LED or Longformer keeps its positions, its
        windows, its global projections and their first global token, and has no level two unless ``pooled_layers``
        asks for it.

        Args:
            model: a loaded BART, mBART, LED, RoBERTa, XLM-R or Longformer, or its folder or name for
                ``from_pretrained``.
            dtype: of the long model, such as ``torch.bfloat16`` or ``"bfloat16"``; ``"auto"`` is the short one's.
            settings: of the configuration, such as ``max_position_embeddings=16384, pooled_layers="3-5"``, and
                ``num_labels``, ``id2label``, ``label2id`` of a classifier. The others come from the short model or, for
                the two levels, from the configuration's defaults, but level two is in the upper half of the layers.

        Returns:
            The model, in eval mode, on the short one's device and with its ``attn_implementation``, which the decoder's
            attention uses.

        Raises:
            ValueError: the short model is of another kind or has adapters, a loaded one has labels other than those of
                ``settings``, or a setting is unknown.
        """
        labels = {name: settings.pop(name) for name in LABELS if name in settings}
        if unknown := sorted(set(settings) - {field.name for field in fields(cls.config_class)}):
            raise ValueError(
                f"{cls.config_class.__name__} has no setting {', '.join(unknown)}; arguments of from_pretrained are "
                "the short model's: load it with them, and give it to from_short in place of its name"
            )
        if getattr(model, "peft_config", None) or getattr(model, "_hf_peft_config_loaded", False):
            raise ValueError(
                "the short model has adapters of PEFT: merge them first, with model.merge_and_unload() of a PeftModel, "
                "and give from_short the result"
            )
        loaded = isinstance(model, PreTrainedModel)
        kind = model.config.model_type if loaded else _model_type(model)
        short_class = cls._short_class(kind)
        if loaded:
            _check_labels(model.config, labels)
        short = model if loaded else short_class.from_pretrained(model, **labels)
        config = cls.config_class(**{**_shared_settings(cls, short.config), **settings})
        config.source = card.source_of(short.name_or_path if loaded else str(model), local_files_only=loaded)
        config._attn_implementation = short.config._attn_implementation
        dtype = short.dtype if dtype in (None, "auto") else getattr(torch, dtype) if isinstance(dtype, str) else dtype
        long = cls(config).to(short.device, dtype).eval()
        copies = ["global"] + ["pooled"] * (config.pooled_init == "level-one")
        state = _renamed(short)
        has_head, short_has_head = (model.base_model is not model for model in (long, short))
        if has_head and not short_has_head:
            raise ValueError(
                f"the short model is a {type(short).__name__}, without the head of a {cls.__name__}: load it as a "
                f"{short_class.__name__}"
            )
        if short_has_head and not has_head:
            state = {name.removeprefix(f"{long.base_model_prefix}."): value for name, value in state.items()}
        long.load_state_dict(_extended(state, long.state_dict(), copies))
        long.tie_weights()
        if short.can_generate():
            long.generation_config = copy.deepcopy(short.generation_config)
        return long

    @classmethod
    def _short_class(cls, kind: str | None) -> type[PreTrainedModel]:
        if kind not in cls.short_classes:
            raise ValueError(
                f"the short model is a {kind}; {cls.__name__} takes {' or '.join(cls.short_classes) or 'none'}"
            )
        return cls.short_classes[kind]


def _check_labels(config: PreTrainedConfig, labels: dict[str, Any]) -> None:
    """Raise ``ValueError`` where the short model has other labels than those asked for."""
    for name, asked in labels.items():
        if (own := getattr(config, name)) != asked:
            raise ValueError(f"the loaded short model's {name} is {own}, not {asked}: load it with {name}={asked}")


def _model_type(folder: Any, **kwargs: Any) -> str | None:
    """Return the ``model_type`` in a folder's or a hub model's ``config.json``; ``kwargs`` as ``from_pretrained``'s.

    Raises:
        ValueError: of :func:`check_sizes`.
    """
    config = PreTrainedConfig.get_config_dict(folder, **kwargs)[0]
    check_sizes(folder, config)
    return config.get("model_type")


def check_sizes(folder: Any, config: dict[str, Any]) -> None:
    """Check the sizes in a model's settings.

    Raises:
        ValueError: one is not a whole number or beyond reason, so that building the model would never end.
    """
    for name, value in config.items():
        most = next((most for pattern, most in LARGEST if re.fullmatch(pattern, name)), None)
        if most is not None and value is not None and not (type(value) is int and 0 <= value <= most):
            raise ValueError(
                f"{folder}: its setting {name} is {value!r:.100}, and must be a whole number up to {most:,}"
            )


def _shared_settings(cls: type[FromShort], config: PreTrainedConfig) -> dict[str, Any]:
    """Return the settings of the long model that follow from the short one's configuration."""
    kind, layers = config.model_type, config.num_hidden_layers
    own = {name: value for name, value in config.to_dict().items() if name not in NOT_COPIED}
    if kind not in WINDOWED:
        own["pooled_layers"] = upper_half(layers)
        if hasattr(cls.config_class, "max_decoder_position_embeddings"):
            own["max_decoder_position_embeddings"] = config.max_position_embeddings
        return own
    both_sides = own.pop("attention_window")
    both_sides = [both_sides] * layers if isinstance(both_sides, int) else both_sides
    own.pop("onnx_export", None)
    longest = own.pop("max_encoder_position_embeddings", getattr(config, "max_position_embeddings", None))
    return {
        **own,
        "window_size": ",".join(str(window // 2) for window in both_sides),
        "pooled_layers": "none",
        "separate_global_projections": True,
        "max_position_embeddings": longest,
    }


def _renamed(short: PreTrainedModel) -> dict[str, Tensor]:
    """Return the short model's state with the names, and the rows of position tables, that BART and RoBERTa have."""
    state = {}
    for name, value in short.state_dict().items():
        if short.config.model_type in WINDOWED:
            for pattern, replacement in RENAMED:
                name = re.sub(pattern, replacement, name)
        if short.config.model_type == "led" and name.endswith(POSITIONS):
            value = torch.cat([value.new_zeros(OFFSET, value.size(1)), value])
        state[name] = value
    return state


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
        if name.endswith(POSITIONS) and given.size(0) != own.size(0):
            given = extend_positions(given, own.size(0), OFFSET)
        state[name] = given
    if odd := [name for name in fresh if not any(part in name for part in FRESH)]:
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

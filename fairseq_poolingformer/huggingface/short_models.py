"""Make long models from short ones, and two-level models from LED and Longformer: ``from_short``."""

from __future__ import annotations

import copy
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from typing_extensions import Self

from fairseq_poolingformer.huggingface import card
from fairseq_poolingformer.huggingface.families import FAMILIES, family_of, names_of
from fairseq_poolingformer.settings import DEFAULTS, TwoLevels, as_text, upper_half, with_pools
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.weights import State
from fairseq_poolingformer.weights.files import check_counts
from fairseq_poolingformer.weights.loading import fit, one_sided, split_projections, with_unused_rows

logger = logging.getLogger(__name__)

BART_POSITIONS = "embed_positions.weight"
SHORT_POSITIONS = 512  # tokens of BERT and RoBERTa; of windows that see each repeated position once, the widest has 255
POOLER = "pooler."  # transformers alone has one; where the short model lacks it, it keeps its random values
NOT_COPIED = (  # settings of the short model that say nothing about the long one
    *("model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "max_position_embeddings"),
    *("source", "auto_map", "task_specific_params"),  # the last: searches beside generation_config.json's
)
LABELS = ("num_labels", "id2label", "label2id")  # settings that say how wide a new classifier is
OF_THE_PAPERS = ("pool_alignment", "pool_mix", "pool_share_weights", "pooled_init", "relative_attention")
ONE_SOFTMAX = 'one softmax, not the papers\' level two; pool_merge="sum" gives that'
REFUSED = {  # model_type -> why no long model is made of it
    "albert": "its layers share their parameters, and level two is in some of them",
    "big_bird": "it has windows of its own, beside random keys that ours do not have",
    "deberta": "poolingformer convert to-fairseq makes a fairseq model of it, and to-huggingface one for transformers",
    "deberta-v2": "its scores by distance use the projections of the contents, which ours do not",
    "funnel": "it shortens the text from block to block",
    "longt5": "it has windows of its own",
    **dict.fromkeys(("t5", "mt5", "umt5"), "it has scores by distance in place of positions"),
    "xlnet": "its attention has two streams and a memory",
}
ROTARY = ("modernbert", "poolingformer-modernbert")
WINDOWED = ("led", "longformer")  # their positions, windows and global projections are kept
LONGFORMER_GLOBALS = {  # class of transformers -> its first tokens that are global; others: none, None: by separators
    "LongformerForSequenceClassification": 1,
    "LongformerForQuestionAnswering": None,
    "LongformerForMultipleChoice": None,
}


class FromShort:
    """Comes first among a model's bases: :meth:`from_short`, and folders with a tokenizer and a card."""

    short_classes: ClassVar[dict[str, type[PreTrainedModel]]] = {}  # model_type of a short model -> its class
    tokenizer: PreTrainedTokenizerBase | None = None  # of a model made by from_short, which save_pretrained writes

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Self:
        """Load a Poolingformer, or a LED or Longformer as :meth:`from_short` makes it.

        Raises:
            ValueError: it is a short model.
        """
        model = pretrained_model_name_or_path
        if model is not None and not args and "config" not in kwargs:
            kind = model_type_of(model, **kwargs)
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
        cls, model: str | Path | PreTrainedModel, /, *, dtype: torch.dtype | str = "auto", **settings: Any
    ) -> Self:
        """Make a long model with the weights of a short one.

        Positions are repeated in a loop, so that tokens the short model's length apart have the same and can pass for
        neighbours. Where a window or w2 reaches so far, ``position_init="interpolate"`` avoids that: the positions are
        spread evenly over the longer input, and the model has to learn them. ``random_position_offsets=True`` lets
        fine-tuning on shorter documents train all of them.

        Level two is pools of four tokens in one softmax with the window (``pool_merge="softmax"``), and has no
        projections: the long model equals the short one where the window holds the text, and reads further from there.
        The window has 255 tokens a side where the short model has 512 learned positions, and otherwise 128.
        What it learns is which tokens count in a pool (LDConv); it begins close to means.
        The papers' level two, with ``pool_merge="sum"`` or a value that one softmax cannot have, such as
        ``pool_mix=True`` or ``pool_type="max"``, starts with copies of level one's projections whose values are zero,
        so that it adds nothing before training; with ``pooled_init="copy"`` the values are copies, too, which is worse
        before training and, with ``pool_mix``, better after some hundred updates; ``pool_merge="sum"`` with
        ``pooled_init="random"`` makes all N(0, 0.02²). Separate projections of global tokens start as copies of the
        ordinary ones. A LED or Longformer keeps its positions, windows and global projections, and has no level two
        unless ``pooled_layers`` asks for it. A LED's first token is global; a Longformer's global tokens are those of
        transformers' class.

        Args:
            model: a loaded model of one of ``short_classes``, or its folder or name for ``from_pretrained``.
            dtype: of the long model, such as ``torch.bfloat16`` or ``"bfloat16"``; ``"auto"`` is the short one's.
            settings: of the configuration, such as ``max_position_embeddings=16384, pooled_layers="3-5"``, and
                ``num_labels``, ``id2label``, ``label2id`` of a classifier. The others come from the short model or, for
                the two levels, from the configuration's defaults, but level two is in the upper half of the layers, or
                in ModernBERT's layers of full attention.

        Returns:
            The model, in eval mode, on the short one's device and with its ``attn_implementation``, which the decoder's
            attention uses; its ``tokenizer`` is the short one's, with the long model's ``model_max_length``.

        Raises:
            ValueError: the short model is of another kind or has adapters, a loaded one has labels other than those of
                ``settings``, a setting is unknown, or a Longformer's head needs ``global_tokens``.
        """
        labels = {name: settings.pop(name) for name in LABELS if name in settings}
        wanted = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if dtype not in (None, "auto") and not isinstance(wanted, torch.dtype):
            raise ValueError(f'dtype is {dtype!r}, and must be "auto" or one of torch\'s, such as "bfloat16"')
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
        short: Any = model  # here a loaded model, or a name
        kind = short.config.model_type if loaded else model_type_of(model)
        short_class = cls._short_class(kind)
        if loaded:
            for name, asked in labels.items():
                if (value := getattr(short.config, name)) != asked:
                    raise ValueError(
                        f"the loaded short model's {name} is {value}, not {asked}: load it with {name}={asked}"
                    )
        else:
            short = short_class.from_pretrained(short, **labels)
        merged = {**_shared_settings(cls, short.config), **settings}
        if merged.get("global_tokens", 0) is None:
            raise ValueError(
                f"transformers' {short_class.__name__} makes the question or the choices global, and {cls.__name__} "
                "only first tokens: give global_tokens=0 (--global-tokens 0) and each batch a global_attention_mask, "
                "or the number of first tokens that you fine-tune with"
            )
        if merged.get("pooled_layers") != "none" and merged.get("pool_merge") is None:
            merged["pool_merge"] = "softmax" if _fits_one_softmax(merged) else "sum"
            if merged["pool_merge"] == "softmax":
                logger.info("the %s has %s", cls.__name__, ONE_SOFTMAX)
        if merged.get("pool_merge") == "sum" and not merged.get("pool_share_weights"):
            merged.setdefault("pooled_init", "copy-zero-values")
        merged = with_pools(merged)
        if getattr(cls, "decoder_reads_input", False) and "max_decoder_position_embeddings" not in settings:
            longest = merged.get("max_position_embeddings", cls.config_class.max_position_embeddings)
            merged["max_decoder_position_embeddings"] = longest
        _check_length(merged.get("max_position_embeddings"), short.config)
        config = cls.config_class(**merged)
        config.source = card.source_of(short.name_or_path if loaded else str(model), local_files_only=loaded)
        config._attn_implementation = short.config._attn_implementation
        dtype = short.dtype if dtype in (None, "auto") else wanted
        long = cls(config).to(short.device, dtype).eval()
        if long.base_model is not long and short.base_model is short:
            raise ValueError(
                f"the short model is a {type(short).__name__}, without the head of a {cls.__name__}: load it as a "
                f"{short_class.__name__}"
            )
        long.tie_weights()
        _load(long, short)
        if short.can_generate():
            long.generation_config = copy.deepcopy(short.generation_config)
        if place := short.name_or_path if loaded else str(model):
            long.tokenizer = _tokenizer(place, longest_input(long), local_files_only=loaded)
        return long

    @classmethod
    def _short_class(cls, kind: str | None) -> type[PreTrainedModel]:
        if kind not in cls.short_classes:
            takes = f"the short model is a {kind}; {cls.__name__} takes {' or '.join(cls.short_classes) or 'none'}"
            raise ValueError(takes if family_of(kind) else why_not(kind))
        return cls.short_classes[kind]

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Save as transformers does, with the tokenizer that :meth:`from_short` keeps, and a card."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            self._complete(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Upload a folder, which transformers does before ``save_pretrained`` returns."""
        self._complete(Path(working_dir))
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _complete(self, folder: Path) -> None:
        if self.tokenizer is not None and not (folder / "tokenizer_config.json").exists():  # a user's own one stays
            self.tokenizer.save_pretrained(folder)
        card.write(folder, self)


def longest_input(model: PreTrainedModel | PreTrainedConfig) -> int:
    """Return how many tokens a model or configuration with ``max_position_embeddings`` takes."""
    config: Any = getattr(model, "config", model)
    return config.max_position_embeddings - family_of(config.model_type).layout.first_position(config)


def _tokenizer(place: str, longest: int, local_files_only: bool) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of a short model's folder or name for a longer one; None, and a warning, without any."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, model_max_length=longest, local_files_only=local_files_only)
        if len(tokenizer) > len(tokenizer.all_special_ids):  # without files, transformers makes one without words
            return tokenizer
        why = "it has no words"
    except (OSError, ValueError, ImportError) as error:  # no files, files of another kind, a library that is missing
        why = str(error).partition("\n")[0].rstrip(": ")
    logger.warning(
        "%s: its tokenizer is not kept beside the long model, since it cannot be read (%s); "
        "save one there yourself: tokenizer.save_pretrained(FOLDER)",
        place,
        why,
    )
    return None


def why_not(kind: str | None) -> str:
    """Return the sentence that says why no long model is made of models of this ``model_type``."""
    known = [kind for family in FAMILIES.values() for kind in family.short]
    return (
        f"models of type {kind} are not made long: {REFUSED.get(kind, 'those that are have type ' + ', '.join(known))}"
    )


def _check_length(longest: Any, config: PreTrainedConfig) -> None:
    """Raise ``ValueError`` where the long model would read nothing, or cut the short one's table of positions."""
    lengths = ("max_encoder_position_embeddings", "max_position_embeddings")
    tables = () if config.model_type in ROTARY else lengths  # rotary positions have none that could be cut
    least = next((getattr(config, name) for name in tables if hasattr(config, name)), 1)
    if longest is not None and not (type(longest) is int and longest >= max(1, least)):
        raise ValueError(
            f"max_position_embeddings is {longest!r}, and must be a whole number of {least} or more, so that none of "
            "the short model's positions is lost; leave it out for the default"
        )


def model_type_of(model: Any, **kwargs: Any) -> str | None:
    """Return the ``model_type`` in a folder's or a hub model's ``config.json``; ``kwargs`` as ``from_pretrained``'s.

    Raises:
        ValueError: the configuration has more layers or labels than the weights beside it.
    """
    folder = Path(model, kwargs.get("subfolder") or "")
    path = folder / "config.json"
    config = read_json_file(path) if path.is_file() else PreTrainedConfig.get_config_dict(model, **kwargs)[0]
    check_counts(config, folder)
    return config.get("model_type")


def _fits_one_softmax(settings: dict[str, Any]) -> bool:
    """Whether one softmax can have these settings of level two; otherwise they ask for the papers'."""
    levels = TwoLevels.of({**settings, "pool_merge": "softmax"})
    usual = [getattr(levels, name) == DEFAULTS[name] for name in OF_THE_PAPERS]
    usual += [part.strip() == "1" for part in as_text(levels.dilation).split(",")]
    return all(usual) and levels.pool_kernel_size == levels.pool_stride and levels.pool_type != "max"


def _shared_settings(cls: type[FromShort], config: PreTrainedConfig) -> dict[str, Any]:
    """Return the settings of the long model that follow from the short one's configuration."""
    kind, layers = config.model_type, config.num_hidden_layers
    copied = {name: value for name, value in config.to_dict().items() if name not in NOT_COPIED}
    if kind in ROTARY:
        lengths = ("max_position_embeddings", "original_max_position_embeddings")
        return copied | dict.fromkeys(lengths, config.max_position_embeddings)
    if kind not in WINDOWED:
        copied["pooled_layers"] = upper_half(layers)
        if longest_input(config) == SHORT_POSITIONS:
            copied["window_size"] = str(SHORT_POSITIONS // 2 - 1)
        if hasattr(cls.config_class, "max_decoder_position_embeddings"):
            copied["max_decoder_position_embeddings"] = config.max_position_embeddings
        return copied
    windows = one_sided(copied.pop("attention_window"), layers)
    copied.pop("onnx_export", None)
    longest = copied.pop("max_encoder_position_embeddings", getattr(config, "max_position_embeddings", None))
    if kind == "longformer":
        copied["global_tokens"] = LONGFORMER_GLOBALS.get(cls._short_class(kind).__name__, 0)
    return {
        **copied,
        "window_size": ",".join(map(str, windows)),
        "pooled_layers": "none",
        "separate_global_projections": True,
        "max_position_embeddings": longest,
    }


def _own_names(model: PreTrainedModel) -> dict[str, str]:
    """Return the names of a model's parameters -> this project's own."""
    names, prefix = names_of(model.config.model_type), f"{model.base_model_prefix}."
    return {name: names.own(name.removeprefix(prefix)) for name in model.state_dict()}


def _load(long: PreTrainedModel, short: PreTrainedModel) -> None:
    """Load a short model's parameters into a long one, as fairseq loads them: :func:`~.loading.fit`."""
    names, short_state, values = _own_names(long), short.state_dict(), long.state_dict()
    converted: State = {ours: values[name] for name, ours in names.items()}
    state: State = {ours: short_state[name] for name, ours in _own_names(short).items()}
    if short.config.model_type == "led":
        state |= {name: with_unused_rows(table) for name, table in state.items() if name.endswith(BART_POSITIONS)}
    split_projections(state)
    config = long.config
    if getattr(config, "sinusoidal_pos_embds", False):
        for name in [name for name in converted if name.endswith(BART_POSITIONS)]:
            state[name] = torch.cat([state[name], converted[name][len(state[name]) :]])[: len(converted[name])]
    fit(
        converted,
        state,
        family_of(short.config.model_type).rows_before(config),
        pooled_init=config.pooled_init,
        position_init=config.position_init,
        new=(POOLER,),
    )
    if lacking := [name for name, ours in names.items() if ours not in state]:
        raise ValueError(f"the short model lacks {', '.join(lacking)}: give one of the same kind as the long model")
    if unused := sorted(set(state) - set(converted) - {"final_logits_bias"}):
        logger.warning("left out, since the long model has no place for them: %s", ", ".join(unused))
    for name, source in list(long.all_tied_weights_keys.items()):
        if not _same(state[names[name]], state[names[source]]):  # transformers unties what a checkpoint has twice
            module, _, leaf = name.rpartition(".")
            setattr(long.get_submodule(module), leaf, nn.Parameter(values[name].clone()))
            del long.all_tied_weights_keys[name]
    long.load_state_dict({name: state[ours] for name, ours in names.items()})


def _same(x: Tensor, y: Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() or torch.equal(x, y)

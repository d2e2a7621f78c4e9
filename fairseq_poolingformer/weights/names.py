"""The names of parameters: this project's own, which are those of fairseq, and those of each Hugging Face family.

A new family is a value of :class:`Names` in ``NAMES``; a new head is a line in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from fairseq_poolingformer.levels import global_bucket
from fairseq_poolingformer.settings import TwoLevels
from fairseq_poolingformer.weights import Settings

ENCODER = "encoder.sentence_encoder"  # of RoBERTa; BART's is "encoder"
POOLED, GLOBAL, RELATIVE = "pooled", "global", "relative"  # what a family may have beside one level of attention
NO_ABSOLUTE = "no_token_positional_embeddings"  # fairseq's setting of a model without a table of positions

_Lines = tuple[tuple[str, str], ...]


class Names:
    """The names in one Hugging Face family, without the prefix of its models with a head, beside this project's own."""

    def __init__(self, *lines: tuple[str, str]) -> None:
        self._to_own = [(_pattern(theirs), ours) for theirs, ours in lines]
        self._from_own = [(_pattern(ours), theirs) for theirs, ours in lines]

    def own(self, name: str) -> str:
        """Return this project's name of a parameter of Hugging Face's."""
        return _renamed(name, self._to_own)

    def theirs(self, name: str) -> str:
        """Return Hugging Face's name of a parameter of this project's."""
        return _renamed(name, self._from_own)


def _pattern(template: str) -> re.Pattern:
    return re.compile(re.escape(template).replace(r"\#", r"(?P<layer>\d+)").replace(r"\*", "(?P<rest>.+)"))


def _renamed(name: str, lines: Iterable[tuple[re.Pattern, str]]) -> str:
    for pattern, template in lines:
        if match := pattern.fullmatch(name):
            parts = {"layer": "", "rest": "", **match.groupdict()}
            return template.replace("#", parts["layer"]).replace("*", parts["rest"])
    return name


def _projections(theirs: str, ours: str) -> _Lines:
    """Return the lines of W_q, W_k and W_v, whose templates say ``query`` and ``q_proj``."""
    words = {"q": "query", "k": "key", "v": "value"}
    return tuple((theirs.replace("query", word), ours.replace("q_", f"{x}_")) for x, word in words.items())


_LED_ATTENTION, _ATTENTION = "encoder.layers.#.self_attn", "encoder.layer.#.attention"
_OWN_ATTENTION = f"{ENCODER}.layers.#.self_attn"
_LED: _Lines = (
    *_projections(f"{_LED_ATTENTION}.longformer_self_attn.query.*", f"{_LED_ATTENTION}.q_proj.*"),
    *_projections(f"{_LED_ATTENTION}.longformer_self_attn.query_global.*", f"{_LED_ATTENTION}.global_q_proj.*"),
    (f"{_LED_ATTENTION}.output.*", f"{_LED_ATTENTION}.out_proj.*"),
)
_BERT: _Lines = (
    ("embeddings.word_embeddings.weight", f"{ENCODER}.embed_tokens.weight"),
    ("embeddings.position_embeddings.weight", f"{ENCODER}.embed_positions.weight"),
    ("embeddings.LayerNorm.*", f"{ENCODER}.layernorm_embedding.*"),
    *_projections(f"{_ATTENTION}.self.query.*", f"{_OWN_ATTENTION}.q_proj.*"),
    (f"{_ATTENTION}.output.dense.*", f"{_OWN_ATTENTION}.out_proj.*"),
    (f"{_ATTENTION}.output.LayerNorm.*", f"{ENCODER}.layers.#.self_attn_layer_norm.*"),
    ("encoder.layer.#.intermediate.dense.*", f"{ENCODER}.layers.#.fc1.*"),
    ("encoder.layer.#.output.dense.*", f"{ENCODER}.layers.#.fc2.*"),
    ("encoder.layer.#.output.LayerNorm.*", f"{ENCODER}.layers.#.final_layer_norm.*"),
)
_ROBERTA: _Lines = (
    *_BERT,
    ("lm_head.decoder.weight", "encoder.lm_head.weight"),
    *((f"lm_head.{part}", f"encoder.lm_head.{part}") for part in ("bias", "dense.*", "layer_norm.*")),
)
_LONGFORMER = (*_ROBERTA, *_projections(f"{_ATTENTION}.self.query_global.*", f"{_OWN_ATTENTION}.global_q_proj.*"))
_DEBERTA: _Lines = (
    *_BERT,
    ("cls.predictions.decoder.weight", "encoder.lm_head.weight"),
    ("cls.predictions.bias", "encoder.lm_head.bias"),
    ("cls.predictions.transform.dense.*", "encoder.lm_head.dense.*"),
    ("cls.predictions.transform.LayerNorm.*", "encoder.lm_head.layer_norm.*"),
    ("encoder.rel_embeddings.weight", f"{ENCODER}.relative_positions.weight"),
    (f"{_ATTENTION}.self.pos_proj.*", f"{ENCODER}.layers.#.relative_projections.k_proj.*"),
    (f"{_ATTENTION}.self.pos_q_proj.*", f"{ENCODER}.layers.#.relative_projections.q_proj.*"),
)
_TWO_LEVELS = (
    *_ROBERTA,
    *((f"{_ATTENTION}.self.{kind}_*", f"{_OWN_ATTENTION}.{kind}_*") for kind in (POOLED, GLOBAL)),
    (f"{_ATTENTION}.self.relative_projections.*", f"{ENCODER}.layers.#.relative_projections.*"),
    *((f"encoder.{table}.*", f"{ENCODER}.{table}.*") for table in ("relative_positions", "global_relative_positions")),
)
_MODERNBERT: _Lines = tuple(
    (f"layers.#.attn.{theirs}*", f"layers.#.self_attn.{ours}*")
    for theirs, ours in (("Wqkv.", "in_proj_"), ("Wo.", "out_proj."), ("", ""))
)

NAMES = {  # model_type ->
    **dict.fromkeys(("bart", "mbart", "poolingformer-bart", "poolingformer-mbart"), Names()),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), Names(*_ROBERTA)),
    "led": Names(*_LED),
    "longformer": Names(*_LONGFORMER),
    "deberta": Names(*_DEBERTA),
    **dict.fromkeys(("modernbert", "poolingformer-modernbert"), Names(*_MODERNBERT)),
    "poolingformer-roberta": Names(*_TWO_LEVELS),
}


def parameters(settings: Settings, kinds: Collection[str], decoder: bool) -> list[str]:
    """Return this project's names of all parameters of a BART or RoBERTa; the tied token embedding appears once."""
    if decoder:
        names = [*_stack("encoder", settings, kinds), *_stack("decoder", settings, ())]
        return [name for name in names if name != "decoder.embed_tokens.weight"]
    head = ["encoder.lm_head.bias", *_both("encoder.lm_head.dense", "encoder.lm_head.layer_norm")]
    return [*_stack(ENCODER, settings, kinds), *head, *(_relative(settings) if RELATIVE in kinds else [])]


def _stack(stack: str, settings: Settings, kinds: Collection[str]) -> list[str]:
    """Return the names of an encoder's or a decoder's parameters."""
    side = stack.partition(".")[0]
    attentions = ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",)
    parts = [f"{attention}.{x}_proj" for attention in attentions for x in ("q", "k", "v", "out")]
    parts += [*(f"{attention}_layer_norm" for attention in attentions), "fc1", "fc2", "final_layer_norm"]
    layers = range(settings[f"{side}_layers"])
    tables = ["embed_tokens"] + ["embed_positions"] * (not settings.get(NO_ABSOLUTE))
    norms = ["layernorm_embedding"] + ["layer_norm"] * bool(settings.get(f"{side}_normalize_before"))
    modules = [*norms, *(f"layers.{layer}.{part}" for layer in layers for part in parts)]
    names = [f"{stack}.{table}.weight" for table in tables] + _both(*(f"{stack}.{module}" for module in modules))
    return names + [f"{stack}.layers.{n}.self_attn.{part}" for n in layers for part in _levels(settings, n, kinds)]


def _levels(settings: Settings, layer: int, kinds: Collection[str]) -> list[str]:
    """Return the names of the parameters of level two, and of global tokens, in one layer's attention."""
    if not kinds:
        return []
    flags = TwoLevels.of(settings)
    two = POOLED in kinds and layer in flags.layers_with_level_two()
    pooled = [POOLED] * (two and not flags.pool_share_weights and flags.pool_merge == "sum")
    pooled += [GLOBAL] * (GLOBAL in kinds and flags.separate_global_projections)
    names = _both(*(f"{kind}_{letter}_proj" for kind in pooled for letter in "qkv"))
    return names + ["pooled_k_pool_weight", "pooled_v_pool_weight"] * (two and flags.pool_type.endswith("ldconv"))


def _relative(settings: Settings) -> list[str]:
    """Return the names of the tables of relative positions, and of each layer's projections of them."""
    flags = TwoLevels.of(settings)
    if flags.relative_attention == "none":
        return []
    coarse = global_bucket(flags, settings["max_positions"]) is not None
    names = [f"{ENCODER}.relative_positions.weight"]
    names += [f"{ENCODER}.global_relative_positions.{part}" for part in ("weight", "tokens_per_row")] * coarse
    parts = ["k_proj.weight"] * ("c2p" in flags.relative_attention)
    parts += ["q_proj.weight", "q_proj.bias"] * ("p2c" in flags.relative_attention)
    parts += [f"global_{part}" for part in parts] * coarse
    layers = range(settings["encoder_layers"])
    return names + [f"{ENCODER}.layers.{layer}.relative_projections.{part}" for layer in layers for part in parts]


def _both(*modules: str) -> list[str]:
    return [f"{module}.{part}" for module in modules for part in ("weight", "bias")]

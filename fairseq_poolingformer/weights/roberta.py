"""RoBERTa and those made of it: XLM-R, Longformer with windows and global tokens, and this package's with two levels.

fairseq's RoBERTa has no token types, and Hugging Face's may have no head.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairseq_poolingformer.settings import DEFAULTS, PAPER_LAYERS
from fairseq_poolingformer.weights import Settings, State, listed
from fairseq_poolingformer.weights.family import Family, SharedSettings
from fairseq_poolingformer.weights.loading import OFFSET, split_projections
from fairseq_poolingformer.weights.names import ENCODER, GLOBAL, NAMES, NO_ABSOLUTE, POOLED, RELATIVE

EMBEDDING = "embeddings.word_embeddings.weight"
POSITION_TABLE = "embeddings.position_embeddings.weight"
TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
POSITION_IDS = "embeddings.position_ids"  # 0, 1, 2, …: a buffer that older versions saved
LENGTH, EPSILON = "max_positions", "layer_norm_eps"
ROBERTA_SETTINGS = SharedSettings(
    theirs="Hugging Face's RoBERTa has",
    ours="fairseq's RoBERTa",
    sizes={
        "vocab_size": "vocab_size",
        "hidden_size": "encoder_embed_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_embed_dim",
    },
    rates={"hidden_dropout_prob": ("dropout", 0.1), "attention_probs_dropout_prob": ("attention_dropout", 0.1)},
    lengths={LENGTH: ("max_position_embeddings", OFFSET, None)},
    fixed={
        "activation_fn": "gelu",
        "encoder_normalize_before": False,
        "encoder_learned_pos": True,
        "layernorm_embedding": True,
        NO_ABSOLUTE: False,
        "no_scale_embedding": True,
        "untie_weights_roberta": False,
        "adaptive_input": False,
    },
    # Hugging Face's head always has gelu, fairseq's head what the layers have.
    their_fixed={"hidden_act": "gelu", EPSILON: 1e-5, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    forgotten={"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
    written={"type_vocab_size": 1, "tie_word_embeddings": True},
    refusals={
        GLOBAL: "RoBERTa has no separate global projections; convert to Longformer with --model-type longformer",
        RELATIVE: "the model has relative attention ({}), which RoBERTa, XLM-R and Longformer lack; convert to DeBERTa "
        "with --model-type deberta",
    },
    absent={EPSILON: 1e-12},
)


def absorb(settings: Settings, state: State) -> list[str]:
    """Remove the pooler and the token types from the state, and add a head where the model has none."""
    notes = []
    state.pop(POSITION_IDS, None)
    pooler = [name for name in state if name.startswith("pooler.")]
    for name in pooler:
        del state[name]
    if pooler:
        notes.append(f"left out the pooler, which only Hugging Face's pooler_output uses: {listed(pooler)}")
    types = state.pop(TOKEN_TYPES, None)
    if types is not None:
        notes += absorb_token_types(types, state, OFFSET)
    return notes + fill_in_head("roberta", state)


def fill_in_head(model_type: str, state: State) -> list[str]:
    """Add a random head for masked language modelling, initialized as BERT's, to a state without one."""
    theirs = NAMES[model_type].theirs
    first = theirs("encoder.lm_head.bias").removesuffix("bias")
    if any(name.startswith(first) for name in state):
        return []
    embedding = state.get(EMBEDDING)
    if embedding is not None and embedding.dim() == 2:  # another one is named later
        rows, width = embedding.shape
        # a fixed seed, so that every conversion gives the same weights
        dense = torch.empty(width, width).normal_(std=0.02, generator=torch.Generator().manual_seed(0))
        head = {
            "dense.weight": dense.to(embedding.dtype),
            "dense.bias": embedding.new_zeros(width),
            "layer_norm.weight": embedding.new_ones(width),
            "layer_norm.bias": embedding.new_zeros(width),
            "bias": embedding.new_zeros(rows),
        }
        state.update({theirs(f"encoder.lm_head.{part}"): value for part, value in head.items()})
    return [
        "the folder has no head for masked language modelling: a random one is filled in; "
        "features do not depend on it, but train it before you use predictions of <mask>"
    ]


def absorb_token_types(types: Tensor, state: State, offset: int) -> list[str]:
    """Add the embedding of type 0, (types, C)[0], which every token has, to every position from row ``offset`` on."""
    notes = []
    if bool(types[0].any()) and POSITION_TABLE in state:
        state[POSITION_TABLE] = torch.cat([state[POSITION_TABLE][:offset], state[POSITION_TABLE][offset:] + types[0]])
        notes.append("added the embedding of token type 0 to the positions, since fairseq has no token types")
    if bool(types[1:].any()):
        notes.append(
            f"left out the embeddings of token types 1 to {len(types) - 1}, which only inputs with token_type_ids use: "
            "fairseq has no token types"
        )
    return notes


def complete(settings: Settings, state: State) -> list[str]:
    """Add one token type, whose embedding is zero."""
    state[TOKEN_TYPES] = state[EMBEDDING].new_zeros(1, settings["encoder_embed_dim"])
    return []


def modernize(state: State) -> None:
    """Rename the parameters of fairseq's checkpoints of 2019, such as ``roberta.base``, to today's names."""
    for name in list(state):
        new = name.replace("emb_layer_norm.", "layernorm_embedding.")
        if new.startswith("decoder."):
            new = "encoder." + new.removeprefix("decoder.")
        state[new] = state.pop(name)
    split_projections(state)


def without(shared: SharedSettings, *names: str) -> SharedSettings:
    """Return the shared settings of a family in which these are not fixed."""
    fixed, theirs = ({k: v for k, v in each.items() if k not in names} for each in (shared.fixed, shared.their_fixed))
    return replace(shared, fixed=fixed, their_fixed=theirs)


def _read_two_levels(config: Settings, settings: Settings) -> Settings:
    epsilon = config.get(EPSILON, ROBERTA_SETTINGS.absent[EPSILON])
    return {EPSILON: epsilon, NO_ABSOLUTE: not config.get("absolute_positions", True)}


def _write_two_levels(settings: Settings) -> Settings:
    return {EPSILON: settings.get(EPSILON, 1e-5), "absolute_positions": not settings.get(NO_ABSOLUTE)}


def _arch_sizes(layers: int, width: int) -> dict[str, int]:
    return {
        "encoder_layers": layers,
        "encoder_embed_dim": width,
        "encoder_ffn_embed_dim": 4 * width,
        "encoder_attention_heads": width // 64,
    }


ROBERTA = Family(
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    prefix="roberta.",
    shared=ROBERTA_SETTINGS,
    huggingface_tied=((EMBEDDING, "lm_head.decoder.weight"), ("lm_head.bias", "lm_head.decoder.bias")),
    fairseq_tied=(f"{ENCODER}.embed_tokens.weight", "encoder.lm_head.weight"),
    position_tables={f"{ENCODER}.embed_positions.weight": LENGTH},
    arch="roberta",
    poolingformer_arch="poolingformer_roberta",
    arch_sizes={"base": _arch_sizes(12, 768), "large": _arch_sizes(24, 1024)},
    arch_defaults=dict(ROBERTA_SETTINGS.rates.values()),
    pooled_layers={size: PAPER_LAYERS[f"roberta_{size}"] for size in ("base", "large")},
    task="masked_lm",
    dictionaries=("dict.txt",),
    absorb=absorb,
    complete=complete,
    modernize=modernize,
    buffers={f"{ENCODER}.version": 3.0},
    heads=("classifier.", "qa_outputs."),
    unprefixed=("lm_head.",),
)
XLM_ROBERTA = replace(
    ROBERTA, model_type="xlm-roberta", architecture="XLMRobertaForMaskedLM", poolingformer_arch="poolingformer_xlmr"
)
LONGFORMER = replace(
    ROBERTA,
    model_type="longformer",
    architecture="LongformerForMaskedLM",
    prefix="longformer.",
    shared=replace(ROBERTA_SETTINGS, written={**ROBERTA_SETTINGS.written, "sep_token_id": 2}),
    arch="longformer_roberta",
    poolingformer_arch="",
    kinds=(GLOBAL,),
)
POOLINGFORMER_ROBERTA = replace(
    ROBERTA,
    model_type="poolingformer-roberta",
    architecture="PoolingformerRobertaForMaskedLM",
    shared=without(ROBERTA_SETTINGS, EPSILON, NO_ABSOLUTE),
    read_more=_read_two_levels,
    write_more=_write_two_levels,
    arch="poolingformer_roberta",
    poolingformer_arch="",
    arch_defaults={**ROBERTA.arch_defaults, **DEFAULTS, EPSILON: 1e-5, NO_ABSOLUTE: False},
    kinds=(POOLED, GLOBAL, RELATIVE),
)

"""Longformer: RoBERTa with a window, global tokens, and projections of their own for these."""

from __future__ import annotations

from dataclasses import replace

from fairseq_poolingformer.weights import roberta
from fairseq_poolingformer.weights.family import Settings, State
from fairseq_poolingformer.weights.led import copy_global_projections, read_attention, two_sided

GLOBAL_PROJECTIONS = {
    "attention.self.query_global": "self_attn.global_q_proj",
    "attention.self.key_global": "self_attn.global_k_proj",
    "attention.self.value_global": "self_attn.global_v_proj",
}


def names(settings: Settings) -> dict[str, str]:
    """Return Hugging Face name -> fairseq name: those of RoBERTa, and the global projections where separate."""
    separate = settings.get("separate_global_projections")
    return roberta.names_with(settings, {**roberta.LAYER, **(GLOBAL_PROJECTIONS if separate else {})})


def _complete(settings: Settings, state: State) -> list[str]:
    return roberta.complete(settings, state) + copy_global_projections(settings, state)


def _read_config(config: Settings) -> Settings:
    settings = roberta.read_config(config)
    return {**settings, **read_attention(config, settings["encoder_layers"])}


def _write_config(settings: Settings) -> Settings:
    return {**roberta.write_shared_config(settings), "attention_window": two_sided(settings), "sep_token_id": 2}


LONGFORMER = replace(
    roberta.ROBERTA,
    model_type="longformer",
    architecture="LongformerForMaskedLM",
    prefix="longformer.",
    names=names,
    read_config=_read_config,
    write_config=_write_config,
    arch="longformer_roberta",
    poolingformer_arch="",
    sliding_window=True,
    complete=_complete,
)

"""The table of names: every name of every family goes there and back, and there is one for every parameter."""

import itertools

import pytest
import torch

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.weights.convert import FAMILIES
from fairseq_poolingformer.weights.names import NAMES
from tests.models import tiny_huggingface

TWO_LEVELS = {
    "poolingformer-bart": ("bart", huggingface.PoolingformerBartForConditionalGeneration),
    "poolingformer-mbart": ("mbart", huggingface.PoolingformerMBartForConditionalGeneration),
    "poolingformer-roberta": ("roberta", huggingface.PoolingformerRobertaForMaskedLM),
}
# what Hugging Face alone has, and DeBERTa's parameters before and after its projections are split
THEIRS = ("token_type_embeddings", "lm_head.decoder", "predictions.decoder", "final_logits_bias", "in_proj", "_bias")
SPLIT = ("self.query.", "self.key.", "self.value.")


def settings_of(family, **levels):
    return {**dict.fromkeys(family.needed, 40), "encoder_layers": 3, "decoder_layers": 2, **levels}


def variants(kind):
    """Settings of the two levels, with every parameter that there can be, and with fewer."""
    for layers, separate, pool in itertools.product(("none", "1-2"), (True, False), ("ldconv", "mean")):
        yield {"pooled_layers": layers, "separate_global_projections": separate, "pool_type": pool}
    if kind == "roberta":
        for products, tokens, absolute in itertools.product(("c2p", "c2p,p2c"), (0, 1), (True, False)):
            yield {"relative_attention": products, "global_tokens": tokens, "absolute_positions": absolute}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_names_go_there_and_back(model_type):
    family, names = FAMILIES[model_type], NAMES[model_type]
    for levels in ({}, *variants("roberta" if "rob" in model_type else "bart")):
        settings = settings_of(family, **levels)
        table = family.names(settings)
        assert len(table) == len(set(table.values())) == len(family.parameters(settings))
        for theirs, ours in list(table.items())[1:]:
            assert (names.own(theirs), names.theirs(ours)) == (ours, theirs)


@pytest.mark.parametrize("model_type", tiny_huggingface.MODELS)
def test_every_parameter_of_transformers_has_one(model_type):
    family = FAMILIES[model_type]
    settings = {"relative_attention": "c2p,p2c", "no_token_positional_embeddings": True, "global_tokens": 0}
    settings = settings if model_type == "deberta" else {"separate_global_projections": True}
    settings |= dict.fromkeys(("encoder_normalize_before", "decoder_normalize_before"), model_type == "mbart")
    check(family, settings_of(family, **settings), tiny_huggingface.model(model_type))


@pytest.mark.parametrize("model_type", TWO_LEVELS)
def test_every_parameter_of_two_levels_has_one(model_type):
    kind, cls = TWO_LEVELS[model_type]
    sizes = {**tiny_huggingface.config(kind).to_dict(), "pooled_layers": "none", "separate_global_projections": False}
    for levels in variants(kind):
        with torch.device("meta"):
            model = cls(cls.config_class(**{**sizes, **levels}))
        before = dict.fromkeys(("encoder_normalize_before", "decoder_normalize_before"), kind == "mbart")
        positions = {"no_token_positional_embeddings": not levels.get("absolute_positions", True)}
        settings = {"pooled_layers": "none", **levels, **(before if kind != "roberta" else positions)}
        check(FAMILIES[model_type], settings_of(FAMILIES[model_type], **settings), model)


def check(family, settings, model):
    names = {name.removeprefix(f"{model.base_model_prefix}.") for name in model.state_dict()}
    expected = set(family.names(settings))
    if family.model_type == "deberta":
        expected = {name for name in expected if not any(part in name for part in SPLIT)}
    tied = {name for group in family.huggingface_tied for name in group[1:]}
    assert {name for name in names if not any(part in name for part in THEIRS)} - tied == expected

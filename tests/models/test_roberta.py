"""RoBERTa-shaped models: their sizes, their equality with fairseq's RoBERTa, pretrained weights, freezing."""

import logging

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from fairseq_poolingformer.attention import Pooling, Window
from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead
from tests.models.tiny_roberta import PAD, SIZES, build, parse, sentences, write_dictionary

WIDE = ["--window-size", "64", "--pooled-layers", "none", "--global-tokens", "0"]


@pytest.mark.parametrize(
    ("arch", "layers", "width", "pooled"),
    [
        ("poolingformer_roberta_base", 12, 768, range(6, 9)),
        ("poolingformer_xlmr_base", 12, 768, range(6, 9)),
        ("longformer_roberta_base", 12, 768, ()),
        ("longformer_roberta_tiny", 2, 64, ()),
        ("poolingformer_roberta_large", 24, 1024, range(15, 21)),
        ("poolingformer_xlmr_large", 24, 1024, range(15, 21)),
        ("longformer_roberta_large", 24, 1024, ()),
    ],
)
def test_architectures_are_the_papers(folder, arch, layers, width, pooled):
    args = parse(folder, arch=arch)
    assert (args.encoder_embed_dim, args.encoder_attention_heads) == (width, max(4, width // 64))
    assert args.encoder_ffn_embed_dim == 4 * width
    narrow = ("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "32", "--encoder-attention-heads", "4")
    _, model = build(folder, *narrow, arch=arch)
    attentions = [layer.self_attn for layer in model.encoder.sentence_encoder.layers]
    assert len(attentions) == layers
    longformer = arch.startswith("longformer")
    for number, attention in enumerate(attentions):
        assert attention.window == Window(256 if longformer else 128)
        assert (attention.global_q_proj is not None) == longformer
        assert attention.pooling == (Pooling(5, 4, "grid") if number in pooled else None)
        if number in pooled:
            assert attention.pooled_window == Window(512)
            assert attention.pool_type == "ldconv"
    assert model.max_positions() == 4096
    assert model.encoder.sentence_encoder.embed_positions.weight.shape == (4098, 32)


def test_equals_roberta_when_the_window_is_wide_and_level_two_is_off(folder):
    flags = [*SIZES, "--max-positions", "64"]
    task, ours = build(folder, *flags, *WIDE)
    theirs = RobertaModel.build_model(parse(folder, *flags, arch="roberta"), task).eval()
    theirs.load_state_dict(ours.state_dict())
    tokens = sentences([50, 31, 64])
    with torch.no_grad():
        expected, _ = theirs(tokens)
        actual, _ = ours(tokens)
        masked = tokens.eq(7)
        of_masked, _ = ours(tokens, masked_tokens=masked)
    real = tokens != PAD
    torch.testing.assert_close(actual[real], expected[real], atol=2e-6, rtol=0)
    torch.testing.assert_close(of_masked, expected[masked], atol=2e-6, rtol=0)


@pytest.fixture
def roberta_state(folder):
    """The state dict of a fairseq RoBERTa with 20 positions."""
    task, _ = build(folder, *SIZES)
    torch.manual_seed(7)
    return RobertaModel.build_model(parse(folder, *SIZES, "--max-positions", "20", arch="roberta"), task).state_dict()


def as_of_2019(state):
    """The names that fairseq's published ``roberta.*`` and ``xlmr.*`` have."""
    old = {}
    for name, value in state.items():
        name = name.replace("encoder.sentence_encoder", "decoder.sentence_encoder")
        name = name.replace("encoder.lm_head", "decoder.lm_head").replace("layernorm_embedding", "emb_layer_norm")
        if ".self_attn.q_proj." in name:
            parts = [name.replace("q_proj", f"{letter}_proj") for letter in "qkv"]
            parts = [part.replace("decoder.", "encoder.", 1) for part in parts]
            old[name.replace(".q_proj.", ".in_proj_")] = torch.cat([state[part] for part in parts])
        elif ".self_attn.k_proj." not in name and ".self_attn.v_proj." not in name:
            old[name] = value
    return old


@pytest.mark.parametrize("old", [False, True])
def test_a_roberta_checkpoint_loads_into_a_longer_two_level_model(folder, roberta_state, old, caplog):
    _, model = build(folder, *SIZES, "--max-positions", "50", "--pooled-layers", "2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(as_of_2019(roberta_state) if old else dict(roberta_state), strict=True)
    for name, value in model.state_dict().items():
        if name.endswith("embed_positions.weight"):
            rows = roberta_state[name]
            torch.testing.assert_close(value, torch.cat([rows[:2], rows[2:].repeat(3, 1)])[:52], atol=0, rtol=0)
        elif "pooled_" in name:
            assert torch.equal(value, before[name])
        else:
            assert torch.equal(value, roberta_state[name]), name
    assert "20 positions -> 50" in caplog.text


def test_a_longformer_starts_with_copies_of_the_projections(folder, roberta_state):
    _, model = build(folder, *SIZES, "--pooled-layers", "none", "--separate-global-projections")
    model.load_state_dict(dict(roberta_state), strict=True)
    attention = model.encoder.sentence_encoder.layers[1].self_attn
    for letter in "qkv":
        ordinary, own = getattr(attention, f"{letter}_proj"), getattr(attention, f"global_{letter}_proj")
        assert torch.equal(ordinary.weight, own.weight)
        assert ordinary.weight.data_ptr() != own.weight.data_ptr()


def test_a_dictionary_of_another_size_is_named(folder, tmp_path, roberta_state):
    _, model = build(write_dictionary(tmp_path, 29), *SIZES)
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        model.load_state_dict(roberta_state)


def test_task_heads_come_and_go_with_the_task(folder, caplog):
    _, with_head = build(folder, *SIZES)
    with_head.register_head("question_answering", QuestionAnsweringHead(with_head.args.encoder_embed_dim))
    _, without = build(folder, *SIZES, seed=1)
    state = with_head.state_dict()
    with caplog.at_level(logging.INFO):
        without.load_state_dict(dict(state), strict=True)
    assert "question_answering_head" in caplog.text
    untrained = {name: value.clone() for name, value in with_head.question_answering_head.state_dict().items()}
    with_head.load_state_dict(without.state_dict(), strict=True)
    for name, value in with_head.question_answering_head.state_dict().items():
        assert torch.equal(value, untrained[name])


FREEZE = ["--max-positions", "50", "--freeze-pretrained", "--pretrained-positions", "20"]


def test_freezing_trains_nothing_but_what_is_new(folder, roberta_state):
    """Under every optimizer: weight decay and momentum reach no frozen weight."""
    _, model = build(folder, *SIZES, *FREEZE, "--pooled-layers", "2")
    model.load_state_dict(dict(roberta_state), strict=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.5)
    tokens = sentences([50, 12])
    for _ in range(2):
        model(tokens)[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name for name in changed if "pooled_" not in name} == {"encoder.sentence_encoder.embed_positions.weight"}
    assert any("pooled_" in name for name in changed)
    name = "encoder.sentence_encoder.embed_positions.weight"
    rows = (model.state_dict()[name] != before[name]).any(1)
    assert not rows[:22].any()
    assert rows[22:].all()


def test_a_frozen_model_computes_and_saves_what_the_other_does(folder):
    _, plain = build(folder, *SIZES, "--max-positions", "50")
    _, frozen = build(folder, *SIZES, *FREEZE, seed=3)
    assert list(frozen.state_dict()) == list(plain.state_dict())
    frozen.load_state_dict(plain.state_dict(), strict=True)
    for name, value in frozen.state_dict().items():
        assert torch.equal(value, plain.state_dict()[name]), name
    tokens = sentences([48, 20])
    with torch.no_grad():
        torch.testing.assert_close(frozen(tokens)[0], plain(tokens)[0], atol=1e-6, rtol=0)

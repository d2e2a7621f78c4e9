"""RoBERTa-shaped models: sizes, equality with fairseq's RoBERTa, heads, freezing."""

import copy
import logging

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from fairseq_poolingformer.attention import Pooling, Window
from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead
from tests.models.tiny_roberta import PAD, SIZES, build, parse, pretrained, sentences

WIDE = ["--window-size", "64", "--pooled-layers", "none", "--global-tokens", "0"]


@pytest.mark.parametrize(
    ("arch", "layers", "width", "pooled"),
    [
        ("poolingformer_roberta_base", 12, 768, range(6, 9)),
        ("poolingformer_xlmr_base", 12, 768, range(6, 9)),
        ("poolingformer_deberta_base", 12, 768, range(6, 9)),
        ("longformer_roberta_base", 12, 768, ()),
        ("longformer_roberta_tiny", 2, 64, ()),
        ("poolingformer_roberta_large", 24, 1024, range(15, 21)),
        ("poolingformer_xlmr_large", 24, 1024, range(15, 21)),
        ("longformer_roberta_large", 24, 1024, ()),
        ("poolingformer_deberta_large", 24, 1024, range(15, 21)),
    ],
)
def test_architectures_are_the_papers(folder, arch, layers, width, pooled):
    args = parse(folder, arch=arch)
    assert (args.encoder_embed_dim, args.encoder_attention_heads) == (width, max(4, width // 64))
    assert args.encoder_ffn_embed_dim == 4 * width
    narrow = ("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "32", "--encoder-attention-heads", "4")
    _, model = build(folder, *narrow, arch=arch)
    encoder = model.encoder.sentence_encoder
    assert len(encoder.layers) == layers
    longformer, deberta = arch.startswith("longformer"), "deberta" in arch
    for number, layer in enumerate(encoder.layers):
        attention = layer.self_attn
        assert attention.window == Window(256 if longformer else 128)
        assert (attention.global_q_proj is not None) == longformer
        assert attention.pooling == (Pooling(5, 4, "grid") if number in pooled else None)
        if number in pooled:
            assert (attention.pooled_window, attention.pool_type) == (Window(512), "ldconv")
        if deberta:
            assert attention.scale == pytest.approx((3 * 8) ** -0.5)
            assert layer.relative_projections.global_bucket == 64
            assert layer.relative_projections.products == ("c2p", "p2c")
    assert model.max_positions() == 4096
    if deberta:
        assert encoder.embed_positions is None
        assert encoder.relative_positions.weight.shape == (2 * 512, 32)
        assert encoder.global_relative_positions.weight.shape == (2 * 64, 32)
        assert 0.01 < encoder.relative_positions.weight.std() < 0.03
    else:
        assert encoder.embed_positions.weight.shape == (4098, 32)


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


def test_task_heads_come_and_go_with_the_task(folder, caplog):
    _, reader = build(folder, *SIZES)
    reader.register_head("question_answering", QuestionAnsweringHead(reader.args.encoder_embed_dim))
    _, plain = build(folder, *SIZES, seed=1)
    with caplog.at_level(logging.INFO):
        plain.load_state_dict(dict(reader.state_dict()), strict=True)
    assert "question_answering_head" in caplog.text
    untrained = copy.deepcopy(reader.question_answering_head.state_dict())
    reader.load_state_dict(plain.state_dict(), strict=True)
    torch.testing.assert_close(reader.question_answering_head.state_dict(), untrained, rtol=0, atol=0)


FREEZE = ["--max-positions", "50", "--freeze-pretrained", "--pretrained-positions", "20"]


def test_freezing_trains_nothing_but_what_is_new(folder):
    """Under every optimizer: weight decay and momentum reach no frozen weight."""
    _, model = build(folder, *SIZES, *FREEZE, "--pooled-layers", "2")
    model.load_state_dict(dict(pretrained(folder)), strict=True)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.5)
    tokens = sentences([50, 12])
    for _ in range(2):
        model(tokens)[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    name = "encoder.sentence_encoder.embed_positions.weight"
    assert {name for name in changed if "pooled_" not in name} == {name} < changed
    rows = (model.state_dict()[name] != before[name]).any(1)
    assert not rows[:22].any()
    assert rows[22:].all()


def test_a_frozen_model_computes_and_saves_what_the_other_does(folder):
    _, plain = build(folder, *SIZES, "--max-positions", "50")
    _, frozen = build(folder, *SIZES, *FREEZE, seed=3)
    assert list(frozen.state_dict()) == list(plain.state_dict())
    frozen.load_state_dict(plain.state_dict(), strict=True)
    torch.testing.assert_close(frozen.state_dict(), plain.state_dict(), rtol=0, atol=0)
    tokens = sentences([48, 20])
    with torch.no_grad():
        torch.testing.assert_close(frozen(tokens)[0], plain(tokens)[0], atol=1e-6, rtol=0)

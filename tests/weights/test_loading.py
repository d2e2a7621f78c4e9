"""Pretrained weights into longer, two-level models."""

import logging

import pytest
import torch
from fairseq.models.bart import BARTModel

from fairseq_poolingformer.weights.loading import extend_positions, fit, split_projections
from tests.models import tiny_bart, tiny_roberta
from tests.models.tiny_bart import SIZES, build, parse, write_data_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data"))


def test_positions_are_copied_in_a_loop_with_the_offset_rows_kept():
    table = torch.tensor([[-2.0], [-1.0], [0.0], [1.0], [2.0]])  # rows 0 and 1 are no positions
    assert extend_positions(table, 10, 2).flatten().tolist() == [-2, -1, 0, 1, 2, 0, 1, 2, 0, 1]
    assert extend_positions(table, 4, 2).flatten().tolist() == [-2, -1, 0, 1]


def test_positions_are_interpolated_with_the_ends_on_the_ends():
    table = torch.tensor([[-2.0, 8.0], [-1.0, 8.0], [0.0, 5.0], [1.0, 8.0], [4.0, 2.0]])
    longer = extend_positions(table, 9, 2, "interpolate")
    assert longer[:2].equal(table[:2])
    expected = [[0.0, 5.0], [1 / 3, 6.0], [2 / 3, 7.0], [1.0, 8.0], [2.0, 6.0], [3.0, 4.0], [4.0, 2.0]]
    torch.testing.assert_close(longer[2:], torch.tensor(expected))
    long = extend_positions(table.to(torch.bfloat16), 2 + 30_000, 2, "interpolate")
    assert long.dtype == torch.bfloat16
    assert long[[0, 1, 2, -1]].equal(table[[0, 1, 2, -1]].to(torch.bfloat16))
    assert (long[2:, 0].diff() >= 0).all()
    for same in (5, 4):  # as long, or cut
        assert extend_positions(table, same, 2, "interpolate").equal(table[:same])
    assert extend_positions(table[:3], 6, 2, "interpolate").equal(table[[0, 1, 2, 2, 2, 2]])


def test_random_positions_are_the_models_own_behind_the_pretrained_ones():
    name, own = "encoder.embed_positions.weight", {"encoder.embed_positions.weight": torch.randn(9, 4)}
    pretrained = torch.randn(5, 4, dtype=torch.float16)
    fit(own, state := {name: pretrained}, position_init="random")
    assert state[name].equal(torch.cat([pretrained, own[name][5:].half()]))
    fit({name: own[name][:4]}, state := {name: pretrained}, position_init="random")
    assert state[name].equal(pretrained[:4])


@pytest.fixture
def bart_state(folder):
    """The state dict of a fairseq BART with 20 source and 1,024 target positions."""
    task, _ = build(folder, *SIZES)
    torch.manual_seed(7)
    return BARTModel.build_model(parse(folder, *SIZES, "--max-source-positions", "20"), task).state_dict()


def test_a_bart_checkpoint_loads_into_a_longer_two_level_model(folder, bart_state, caplog):
    _, model = build(folder, *SIZES, "--max-source-positions", "50", "--pooled-layers", "2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    original = {name: value.clone() for name, value in bart_state.items()}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(bart_state, strict=True)
    after = model.state_dict()
    for name, value in after.items():
        if name == "encoder.embed_positions.weight":
            expected = torch.cat([original[name][:2], original[name][2:].repeat(3, 1)])[:52]
            torch.testing.assert_close(value, expected, atol=0, rtol=0)
        elif "pooled_" in name:
            assert torch.equal(value, before[name])
        else:
            assert torch.equal(value, original[name]), name
    assert "embed_positions.weight: 20 positions -> 50" in caplog.text
    new = [name for name in after if "pooled_" in name]
    assert len(new) == 8
    assert all(name in caplog.text for name in new)


def test_a_checkpoint_may_load_with_interpolated_positions(folder, bart_state, caplog):
    """The decoder's, as long as the checkpoint's, stay; so do all when the longer model is loaded again."""
    flags = (*SIZES, "--max-source-positions", "39", "--pooled-layers", "none", "--position-init", "interpolate")
    _, model = build(folder, *flags)
    table, name = bart_state["encoder.embed_positions.weight"].clone(), "encoder.embed_positions.weight"
    with caplog.at_level(logging.INFO):
        model.load_state_dict(bart_state, strict=True)
    found = model.state_dict()[name]
    assert found[:2].equal(table[:2])
    assert found[2::2].equal(table[2:])
    torch.testing.assert_close(found[3::2], (table[2:-1] + table[3:]) / 2)
    assert "embed_positions.weight: 20 positions -> 39, by interpolating them" in caplog.text
    assert model.state_dict()["decoder.embed_positions.weight"].equal(bart_state["decoder.embed_positions.weight"])
    _, again = build(folder, *flags, seed=3)
    again.load_state_dict(model.state_dict(), strict=True)
    assert again.state_dict()[name].equal(found)


def test_global_projections_start_as_copies_not_aliases(folder, bart_state):
    _, model = build(folder, *SIZES, "--pooled-layers", "none", "--separate-global-projections")
    model.load_state_dict(bart_state, strict=True)
    attention = model.encoder.layers[1].self_attn
    for letter in "qkv":
        ordinary, own = getattr(attention, f"{letter}_proj"), getattr(attention, f"global_{letter}_proj")
        assert torch.equal(ordinary.weight, own.weight)
        assert torch.equal(ordinary.bias, own.bias)
        assert ordinary.weight.data_ptr() != own.weight.data_ptr()


@pytest.mark.parametrize(("family", "sizes"), [(tiny_bart, SIZES), (tiny_roberta, tiny_roberta.SIZES)])
def test_level_two_starts_from_level_one_where_the_checkpoint_has_none(tmp_path, family, sizes):
    folder = write_data_folder(tmp_path) if family is tiny_bart else tiny_roberta.write_dictionary(tmp_path)
    flags = [*sizes, "--pool-type", "mean", "--pooled-init", "copy"]
    _, one_level = family.build(folder, *sizes, "--pooled-layers", "none", seed=1)
    _, model = family.build(folder, *flags, "--pooled-layers", "0,2", seed=2)
    model.load_state_dict(one_level.state_dict(), strict=True)
    encoder = model.encoder if family is tiny_bart else model.encoder.sentence_encoder
    assert encoder.layers[1].self_attn.pooling is None
    for layer in (encoder.layers[0], encoder.layers[2]):
        for letter in "qkv":
            pooled = getattr(layer.self_attn, f"pooled_{letter}_proj")
            ordinary = getattr(layer.self_attn, f"{letter}_proj")
            for kind in ("weight", "bias"):
                assert torch.equal(getattr(pooled, kind), getattr(ordinary, kind))
                assert getattr(pooled, kind).data_ptr() != getattr(ordinary, kind).data_ptr()
    _, trained = family.build(folder, *flags, "--pooled-layers", "0,2", seed=3)
    model.load_state_dict(trained.state_dict(), strict=True)  # its own second level stays
    for name, value in trained.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize("mix", [[], ["--pool-mix"]])
@pytest.mark.parametrize(("family", "sizes"), [(tiny_bart, SIZES), (tiny_roberta, tiny_roberta.SIZES)])
def test_a_silent_level_two_changes_no_output_and_learns(tmp_path, family, sizes, mix):
    folder = write_data_folder(tmp_path) if family is tiny_bart else tiny_roberta.write_dictionary(tmp_path)
    flags = [*sizes, "--window-size", "2", "--pooled-window-size", "8", *mix]
    _, one_level = family.build(folder, *flags, "--pooled-layers", "none", seed=1)
    _, model = family.build(folder, *flags, "--pooled-layers", "1-2", "--pooled-init", "copy-zero-values", seed=2)
    model.load_state_dict(one_level.state_dict(), strict=True)
    tokens = tiny_roberta.sentences([24, 17])
    found, expected = (
        built.encoder if family is tiny_bart else built.encoder.sentence_encoder for built in (model, one_level)
    )
    output = found(tokens)["encoder_out"][0]
    assert torch.equal(output, expected(tokens)["encoder_out"][0])
    output.square().sum().backward()
    attention = found.layers[2].self_attn
    assert torch.equal(attention.pooled_q_proj.weight, attention.q_proj.weight)
    for parameter in (attention.pooled_v_proj.weight, attention.pooled_v_proj.bias):
        assert not parameter.any()
        assert parameter.grad.any()


def test_own_checkpoints_load_unchanged(folder):
    _, trained = build(folder, *SIZES, seed=1)
    _, fresh = build(folder, *SIZES, seed=2)
    state = {name: value.clone() for name, value in trained.state_dict().items()}
    fresh.load_state_dict(state, strict=True)
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, trained.state_dict()[name])


def test_nothing_is_dropped_silently(folder, bart_state, caplog):
    _, model = build(folder, *SIZES, "--pooled-layers", "none")
    missing = {name: value for name, value in bart_state.items() if "layers.1.fc1" not in name}
    with pytest.raises(RuntimeError, match=r"layers\.1\.fc1"):
        model.load_state_dict(missing, strict=True)
    assert "missing in the checkpoint: encoder.layers.1.fc1.weight" in caplog.text
    _, two_level = build(folder, *SIZES, "--pooled-layers", "0")
    with pytest.raises(RuntimeError, match="pooled_q_proj"):
        model.load_state_dict(two_level.state_dict(), strict=True)


def test_another_dictionary_is_explained(folder, bart_state, tmp_path):
    write_data_folder(tmp_path, num_words=50)
    _, model = build(tmp_path, *SIZES)
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        model.load_state_dict(bart_state, strict=True)


def test_joint_projections_are_split_into_q_k_and_v():
    """In this order, as fairseq's first RoBERTas have them."""
    weight, bias = torch.arange(24.0).view(6, 4), torch.arange(6.0)
    state = {"layer.self_attn.in_proj_weight": weight, "layer.self_attn.in_proj_bias": bias, "other": bias}
    split_projections(state)
    assert state.keys() == {"other"} | {
        f"layer.self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")
    }
    for number, letter in enumerate("qkv"):
        rows = slice(2 * number, 2 * number + 2)
        assert torch.equal(state[f"layer.self_attn.{letter}_proj.weight"], weight[rows])
        assert torch.equal(state[f"layer.self_attn.{letter}_proj.bias"], bias[rows])

"""Pretrained weights into longer, two-level models."""

import copy
import itertools
import logging

import pytest
import torch

from fairseq_poolingformer.weights.loading import extend_positions, fit
from tests import lab
from tests.models import tiny_bart, tiny_roberta
from tests.models.tiny_bart import SIZES, build

FAMILIES = [tiny_bart, tiny_roberta]


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
    name, state_of_model = "encoder.embed_positions.weight", {"encoder.embed_positions.weight": torch.randn(9, 4)}
    pretrained = torch.randn(5, 4, dtype=torch.float16)
    fit(state_of_model, state := {name: pretrained}, position_init="random")
    assert state[name].equal(torch.cat([pretrained, state_of_model[name][5:].half()]))
    fit({name: state_of_model[name][:4]}, state := {name: pretrained}, position_init="random")
    assert state[name].equal(pretrained[:4])


@pytest.fixture(scope="module")
def folder():
    return lab.words()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_of_fairseqs_loads_into_a_longer_two_level_model(folder, family, old, caplog):
    """And RoBERTa's of 2019 under its former names."""
    _, model = family.build(folder, *family.SIZES, family.POSITIONS, "50", "--pooled-layers", "2")
    before, state = copy.deepcopy(model.state_dict()), family.pretrained(folder)
    with caplog.at_level(logging.INFO):
        model.load_state_dict(tiny_roberta.as_of_2019(state) if old and family is tiny_roberta else dict(state))
    after = model.state_dict()
    new = {name: before[name] for name in after if "pooled_" in name}
    (name,) = (name for name in after if "encoder" in name and name.endswith("embed_positions.weight"))
    positions = torch.cat([state[name][:2], state[name][2:].repeat(3, 1)])[:52]
    torch.testing.assert_close(after, {**state, **new, name: positions}, rtol=0, atol=0)
    assert "embed_positions.weight: 20 positions -> 50" in caplog.text
    assert len(new) == 8
    assert all(name in caplog.text for name in new)


def test_a_checkpoint_may_load_with_interpolated_positions(folder, caplog):
    """The decoder's, as long as the checkpoint's, stay; so do all when the longer model is loaded again."""
    flags = (*SIZES, "--max-source-positions", "39", "--pooled-layers", "none", "--position-init", "interpolate")
    _, model = build(folder, *flags)
    name, state = "encoder.embed_positions.weight", tiny_bart.pretrained(folder)
    table = state[name].clone()
    with caplog.at_level(logging.INFO):
        model.load_state_dict(state, strict=True)
    loaded = model.state_dict()[name]
    assert loaded[:2].equal(table[:2])
    assert loaded[2::2].equal(table[2:])
    torch.testing.assert_close(loaded[3::2], (table[2:-1] + table[3:]) / 2)
    assert "embed_positions.weight: 20 positions -> 39, by interpolating them" in caplog.text
    assert model.state_dict()["decoder.embed_positions.weight"].equal(state["decoder.embed_positions.weight"])
    _, again = build(folder, *flags, seed=3)
    again.load_state_dict(model.state_dict(), strict=True)
    assert again.state_dict()[name].equal(loaded)


@pytest.mark.parametrize("family", FAMILIES)
def test_global_projections_start_as_copies_not_aliases(folder, family):
    _, model = family.build(folder, *family.SIZES, "--pooled-layers", "none", "--separate-global-projections")
    model.load_state_dict(family.pretrained(folder), strict=True)
    assert_copied(family.encoder_of(model).layers[1].self_attn, "global")


def assert_copied(attention, prefix):
    """Projections that have the values of level one's, and memory of their own."""
    for letter, kind in itertools.product("qkv", ("weight", "bias")):
        ordinary = getattr(getattr(attention, f"{letter}_proj"), kind)
        copied = getattr(getattr(attention, f"{prefix}_{letter}_proj"), kind)
        assert torch.equal(ordinary, copied)
        assert ordinary.data_ptr() != copied.data_ptr()


@pytest.mark.parametrize("family", FAMILIES)
def test_level_two_starts_from_level_one_where_the_checkpoint_has_none(folder, family):
    flags = [*family.SIZES, "--pool-type", "mean", "--pooled-init", "copy"]
    _, one_level = family.build(folder, *family.SIZES, "--pooled-layers", "none", seed=1)
    _, model = family.build(folder, *flags, "--pooled-layers", "0,2", seed=2)
    model.load_state_dict(one_level.state_dict(), strict=True)
    layers = family.encoder_of(model).layers
    assert layers[1].self_attn.pooling is None
    for layer in layers[::2]:
        assert_copied(layer.self_attn, "pooled")
    _, trained = family.build(folder, *flags, "--pooled-layers", "0,2", seed=3)
    model.load_state_dict(trained.state_dict(), strict=True)  # its own second level stays
    torch.testing.assert_close(model.state_dict(), trained.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("mix", [[], ["--pool-mix"]])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_silent_level_two_changes_no_output_and_learns(folder, family, mix):
    flags = [*family.SIZES, "--window-size", "2", "--pooled-window-size", "8", *mix]
    _, one_level = family.build(folder, *flags, "--pooled-layers", "none", seed=1)
    _, model = family.build(folder, *flags, "--pooled-layers", "1-2", "--pooled-init", "copy-zero-values", seed=2)
    model.load_state_dict(one_level.state_dict(), strict=True)
    tokens = tiny_roberta.sentences([24, 17])
    output, expected = (family.encoder_of(x)(tokens)["encoder_out"][0] for x in (model, one_level))
    assert torch.equal(output, expected)
    output.square().sum().backward()
    attention = family.encoder_of(model).layers[2].self_attn
    assert torch.equal(attention.pooled_q_proj.weight, attention.q_proj.weight)
    for parameter in (attention.pooled_v_proj.weight, attention.pooled_v_proj.bias):
        assert not parameter.any()
        assert parameter.grad.any()


def test_nothing_is_dropped_silently(folder, caplog):
    _, model = build(folder, *SIZES, "--pooled-layers", "none")
    missing = {name: value for name, value in tiny_bart.pretrained(folder).items() if "layers.1.fc1" not in name}
    with pytest.raises(RuntimeError, match=r"layers\.1\.fc1"):
        model.load_state_dict(missing, strict=True)
    assert "missing in the checkpoint: encoder.layers.1.fc1.weight" in caplog.text
    _, two_level = build(folder, *SIZES, "--pooled-layers", "0")
    with pytest.raises(RuntimeError, match="pooled_q_proj"):
        model.load_state_dict(two_level.state_dict(), strict=True)


@pytest.mark.parametrize(("family", "num_words"), [(tiny_bart, 50), (tiny_roberta, 29)])
def test_another_dictionary_is_explained(folder, tmp_path, family, num_words):
    tiny_bart.write_dictionaries(tmp_path, num_words, "dict.txt", "dict.source.txt", "dict.target.txt")
    _, model = family.build(tmp_path, *family.SIZES)
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        model.load_state_dict(family.pretrained(folder), strict=True)

"""Flags of the two levels."""

import torch

from fairseq_poolingformer.models.attention_flags import AttentionFlags
from tests.models import tiny_bart


def test_an_unlimited_pooled_window_shows_every_token_the_whole_sequence():
    """``all`` equals a window as long as the sequence, where half of that on each side leaves out something."""
    torch.manual_seed(0)
    x = torch.randn(40, 2, 16)
    flags = {name: AttentionFlags(window_size="4", pooled_window_size=name) for name in ("all", "40", "20")}
    layers = {name: value.build(6, 12, 16, 2, 0.0) for name, value in flags.items()}
    for layer in layers.values():
        layer.load_state_dict(layers["all"].state_dict())
    outputs = {name: layer(x) for name, layer in layers.items()}
    torch.testing.assert_close(outputs["all"], outputs["40"])
    assert (outputs["all"] - outputs["20"]).abs().max() > 1e-3


def test_a_second_level_that_sees_less_than_the_first_is_named(tmp_path, caplog):
    flags = AttentionFlags(window_size="8,8,all", pooled_window_size="4,8,16", pooled_layers="0-2")
    assert flags.narrower_second_levels(3) == [0, 2]
    assert AttentionFlags(pooled_layers="none", pooled_window_size="1").narrower_second_levels(3) == []
    folder = tiny_bart.write_data_folder(tmp_path)
    tiny_bart.build(folder, *tiny_bart.SIZES, "--pooled-layers", "1-2", "--window-size", "8")
    assert "level two sees less" not in caplog.text
    tiny_bart.build(
        folder, *tiny_bart.SIZES, "--pooled-layers", "1-2", "--window-size", "8", "--pooled-window-size", "8,8,7"
    )
    assert "--pooled-window-size is less than --window-size in layers 2: level two sees less" in caplog.text

"""Flags of the two levels."""

import torch

from fairseq_poolingformer.modules.attention_flags import AttentionFlags


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

"""What the settings of the two levels build."""

import pytest
import torch

from fairseq_poolingformer.attention import TwoLevelAttention
from fairseq_poolingformer.levels import attention_arguments, global_bucket
from fairseq_poolingformer.settings import TwoLevels


def test_an_unlimited_pooled_window_shows_every_token_the_whole_sequence():
    """``all`` equals a window as long as the sequence, where half of that on each side leaves out something."""
    torch.manual_seed(0)
    x = torch.randn(2, 40, 16)
    settings = {name: TwoLevels(window_size="4", pooled_window_size=name) for name in ("all", "40", "20")}
    layers = {name: TwoLevelAttention(16, 2, **attention_arguments(value, 6, 12)) for name, value in settings.items()}
    for layer in layers.values():
        layer.load_state_dict(layers["all"].state_dict())
    outputs = {name: layer(x) for name, layer in layers.items()}
    torch.testing.assert_close(outputs["all"], outputs["40"])
    assert (outputs["all"] - outputs["20"]).abs().max() > 1e-3


def test_level_two_is_in_the_named_layers_alone():
    settings = TwoLevels(pooled_layers="1,3", window_size="1,2,3,4", pooled_window_size="5,6,7,8", pool_stride=3)
    arguments = [attention_arguments(settings, layer, 4) for layer in range(4)]
    assert [values["window"].left for values in arguments] == [1, 2, 3, 4]
    assert [values["pooled_window"].left if "pooling" in values else None for values in arguments] == [None, 6, None, 8]
    assert arguments[1]["pooling"].stride == 3
    with pytest.raises(ValueError, match="names layer 3, but the encoder has layers 0 to 2"):
        attention_arguments(TwoLevels(pooled_layers="1,3"), 0, 3)


@pytest.mark.parametrize(("positions", "rows", "expected"), [(4096, 64, 64), (100, 64, 2), (64, 64, 1), (100, 0, None)])
def test_a_coarse_position_serves_as_many_tokens_as_the_longest_input_needs(positions, rows, expected):
    settings = TwoLevels(relative_attention="c2p", global_relative_positions=rows)
    assert global_bucket(settings, positions) == expected

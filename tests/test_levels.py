import pytest
import torch

from fairseq_poolingformer import levels
from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, band_attention
from fairseq_poolingformer.settings import TwoLevels


def test_an_unlimited_pooled_window_shows_every_token_the_whole_sequence():
    """``all`` equals a window as long as the sequence, where half of that on each side leaves out something."""
    torch.manual_seed(0)
    x = torch.randn(2, 40, 16)
    settings = {name: TwoLevels(window_size="4", pooled_window_size=name) for name in ("all", "40", "20")}
    layers = {
        name: TwoLevelAttention(16, 2, **levels.attention_arguments(value, 6, 12, 2))
        for name, value in settings.items()
    }
    for layer in layers.values():
        layer.load_state_dict(layers["all"].state_dict())
    outputs = {name: layer(x) for name, layer in layers.items()}
    torch.testing.assert_close(outputs["all"], outputs["40"])
    assert (outputs["all"] - outputs["20"]).abs().max() > 1e-3


def test_level_two_is_in_the_named_layers_alone():
    settings = TwoLevels(pooled_layers="1,3", window_size="1,2,3,4", pooled_window_size="5,6,7,8", pool_stride=3)
    arguments = [levels.attention_arguments(settings, layer, 4, 2) for layer in range(4)]
    assert [values["window"].left for values in arguments] == [1, 2, 3, 4]
    assert [values["pooled_window"].left if "pooling" in values else None for values in arguments] == [None, 6, None, 8]
    with pytest.raises(ValueError, match="names layer 3, but the encoder has layers 0 to 2"):
        levels.attention_arguments(TwoLevels(pooled_layers="1,3"), 0, 3, 2)


def test_every_setting_reaches_the_attention():
    settings = TwoLevels(
        **{"pooled_layers": "0", "window_size": 4, "pooled_window_size": 9, "pool_kernel_size": 3, "pool_stride": 2},
        **{"pool_type": "max", "pool_alignment": "query", "ldconv_heads": 2, "pool_share_weights": True},
        **{"separate_global_projections": True, "attention_backend": "block"},
    )
    expected = {"window": Window(4), "separate_global_projections": True, "backend": "block"}
    level_two = {"pooled_window": Window(9), "pooling": Pooling(3, 2, "query"), "pool_type": "max", "ldconv_heads": 2}
    arguments = levels.attention_arguments(settings, 0, 2, 2)
    assert arguments == {**expected, **level_two, "mix": False, "share_weights": True, "pool_merge": "sum"}
    assert levels.attention_arguments(settings, 1, 2, 2) == expected
    assert levels.attention_arguments(TwoLevels(pooled_layers="0", pool_mix=True), 0, 2, 2)["mix"] is True
    softmax = TwoLevels.of({"pooled_layers": "0", "pool_merge": "softmax", "dilation": "1,2", "dilated_layers": "1"})
    assert levels.attention_arguments(softmax, 0, 2, 2)["pool_merge"] == "softmax"
    assert levels.attention_arguments(softmax, 1, 2, 2)["window"] == Window(128, dilation=(1, 2))


@pytest.mark.parametrize(("window", "reach"), [("3,5", 5), ("all", None)])
def test_every_setting_reaches_the_relative_positions(window, reach):
    settings = TwoLevels(relative_attention="p2c", window_size=window, global_relative_positions=4)
    layer = levels.relative_projections(settings, 1, 2, 8, 2, 0.25, 30)
    assert (layer.products, layer.reach, layer.global_bucket, layer.dropout.p) == (("p2c",), reach, 8, 0.25)
    assert (layer.embed_dim, layer.num_heads) == (8, 2)
    assert levels.relative_projections(TwoLevels(), 1, 2, 8, 2, 0.25, 30) is None
    fine, coarse = levels.relative_tables(settings, 8, 30)
    assert (fine.weight.shape, coarse.weight.shape, int(coarse.tokens_per_row)) == ((1024, 8), (8, 8), 8)
    assert levels.relative_tables(TwoLevels(), 8, 30) == (None, None)


def test_relative_positions_reach_as_far_as_dilated_windows():
    """With the rows that the window needs, the scores are those with all of them."""
    torch.manual_seed(1)
    settings = TwoLevels(
        relative_attention="c2p,p2c", window_size="1", dilation="1,2", global_tokens=0, pooled_layers="none"
    )
    query, key, value = torch.randn(3, 1, 2, 7, 4, dtype=torch.float64)
    table = torch.randn(2 * settings.max_relative_positions, 8, dtype=torch.float64)
    relative = levels.relative_projections(settings, 0, 2, 8, 2, 0.0, 30).double()
    window = levels.attention_arguments(settings, 0, 2, 2)["window"]
    output = band_attention(query, key, value, window=window, score_terms=(relative(table),))
    relative.reach = None
    expected = band_attention(query, key, value, window=window, score_terms=(relative(table),))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("positions", "rows", "expected"), [(4096, 64, 64), (100, 64, 2), (64, 64, 1), (100, 0, None)])
def test_a_coarse_position_serves_as_many_tokens_as_the_longest_input_needs(positions, rows, expected):
    settings = TwoLevels(relative_attention="c2p", global_relative_positions=rows)
    assert levels.global_bucket(settings, positions) == expected

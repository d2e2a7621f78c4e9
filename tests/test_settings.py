import argparse

import pytest

from fairseq_poolingformer.choices import UNLIMITED
from fairseq_poolingformer.settings import (
    DEFAULTS,
    PAPER_LAYERS,
    TABLE,
    TwoLevelFlags,
    TwoLevels,
    layer_numbers,
    per_layer,
    set_defaults,
    upper_half,
)
from tests.models import tiny_bart


@pytest.mark.parametrize(
    ("value", "layers"),
    [
        *(("6-11", range(6, 12)), ("0,2, 4-6", (0, 2, 4, 5, 6)), ("9-9", (9,)), ("none", ()), (" ", ())),
        *((3, (3,)), ([1, "3-4"], (1, 3, 4)), (range(6, 9), (6, 7, 8)), ([], ())),
    ],
)
def test_layers_are_text_or_lists(value, layers):
    assert layer_numbers(value) == frozenset(layers)


@pytest.mark.parametrize(
    "value", ["9-6", "-6", "a", "²", -1, [[1]], "6-", "6--9", "1,", "1.5", [3, -1], "0-9999999999"]
)
def test_other_layers_are_refused(value):
    """A reversed range would be no layers at all, and an endless one would never end."""
    with pytest.raises(ValueError, match=r"^--pooled-layers must be none, or 0-based .* such as 0,3,6-11; got "):
        layer_numbers(value, "--pooled-layers")


def test_one_number_or_one_a_layer_as_text_or_a_list():
    assert per_layer("w", "4", 3) == per_layer("w", 4, 3) == per_layer("w", [4], 3) == (4, 4, 4)
    assert per_layer("w", "1, 2,all", 3) == per_layer("w", [1, 2, "all"], 3) == (1, 2, UNLIMITED)
    for value in ("-1", "1.5", "none", "²", "", [1.5], [True, 1, 1]):
        with pytest.raises(ValueError, match=r"^w must be a number, all, or one of these a layer"):
            per_layer("w", value, 3)
    with pytest.raises(ValueError, match=r"^w has 2 values for 3 layers; give one, or one a layer"):
        per_layer("w", [1, 2], 3)
    lists = TwoLevels.of({"window_size": [4, "all"], "pooled_layers": (0, 1), "pooled_window_size": 8, "other": 1})
    assert (lists.window_size, lists.pooled_layers, lists.pooled_window_size) == ("4,all", "0,1", 8)
    assert TwoLevels.of({"pooled_layers": None}) == TwoLevels() == TwoLevels.of(argparse.Namespace(**DEFAULTS))


@pytest.mark.parametrize(
    ("settings", "flags", "arguments"),
    [
        ({"pooled_layers": "9"}, "--pooled-layers 9 names layer 9, but", "pooled_layers='9' names layer 9, but"),
        ({"window_size": "x"}, "--window-size must be a number", "window_size must be a number"),
        ({"pooled_window_size": "1,2"}, "--pooled-window-size has 2 values", "pooled_window_size has 2 values"),
        ({"pooled_init": "x"}, "--pooled-init must be one of", "pooled_init must be one of"),
        (
            {"pooled_init": "copy-zero-values", "pool_share_weights": True},
            "--pooled-init copy-zero-values and --pool-share-weights do not go together",
            "pooled_init='copy-zero-values' and pool_share_weights=True do not go together",
        ),
        ({"global_tokens": -1}, "--global-tokens must be 0 or more", "global_tokens must be 0 or more"),
    ],
)
def test_messages_name_what_the_user_gave(settings, flags, arguments):
    for kind, words in ((TwoLevelFlags, flags), (TwoLevels, arguments)):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are compared
            kind.of({"pooled_layers": "none", **settings}).check(3)
        assert str(error.value).startswith(words)


def test_unused_projections_are_refused_where_no_batch_has_a_mask():
    """Models of transformers may have them."""
    settings = {"pooled_layers": "none", "separate_global_projections": True, "global_tokens": 0}
    TwoLevels.of(settings).check(3)
    with pytest.raises(ValueError, match=r"-projections with --global-tokens 0 would never .* give --global-tokens 1"):
        TwoLevelFlags.of(settings).check(3)


@pytest.mark.parametrize(
    ("settings", "pools"),
    [
        ({"pool_merge": "softmax", "pool_stride": 8, "pool_type": None}, ("ldconv", 8, 8)),
        ({"pool_merge": "softmax", "pool_kernel_size": 5}, ("ldconv", 5, 4)),
        ({"pool_stride": 8}, (TwoLevels().pool_type, 5, 8)),
    ],
)
def test_one_softmax_has_its_own_pools_unless_something_else_is_said(settings, pools):
    for levels in (TwoLevels.of(settings), TwoLevels.of(argparse.Namespace(**settings))):
        assert (levels.pool_type, levels.pool_kernel_size, levels.pool_stride) == pools


def test_dilations_are_those_of_groups_of_heads_in_some_layers():
    settings = TwoLevels(dilation="1,2,3", dilated_layers="1-2")
    assert [settings.dilations(layer, 6) for layer in range(3)] == [1, (1, 1, 2, 2, 3, 3), (1, 1, 2, 2, 3, 3)]
    assert TwoLevels(dilation=2).dilations(0, 5) == 2
    with pytest.raises(ValueError, match=r"^dilation has 3 values, and must divide 4 heads"):
        settings.dilations(1, 4)
    with pytest.raises(ValueError, match=r"^--dilation must be a number"):
        TwoLevelFlags(dilation="x").dilations(0, 4)


@pytest.mark.parametrize(
    ("settings", "flags", "arguments"),
    [
        ({"max_relative_positions": 0}, "--max-relative-positions must be 1", "max_relative_positions must be 1"),
        ({"max_relative_positions": 5}, "--window-size 8 with --dilation 3 (l", "window_size=8 with dilation=3 (l"),
        (
            {"global_relative_positions": 0},
            "--global-relative-positions 0 leaves global tokens without positions; give some, or --global-tokens 0",
            "global_relative_positions=0 leaves global tokens without positions; give some, or global_tokens=0",
        ),
        (
            {"max_relative_positions": 23},
            "--window-size 8 with --dilation 3 (layer 1) reaches beyond --max-relative-positions 23: give a window of "
            "at most 7",
            "window_size=8 with dilation=3 (layer 1) reaches beyond max_relative_positions=23",
        ),
        ({"separate_global_projections": True}, "--relative-attention and --sep", "relative_attention and separate_"),
    ],
)
def test_messages_about_relative_positions_do_so_too(settings, flags, arguments):
    for kind, words in ((TwoLevelFlags, flags), (TwoLevels, arguments)):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are compared
            kind.of({"relative_attention": "c2p", **settings}).check_relative(8, 1, 3)
        assert str(error.value).startswith(words)


def test_the_widest_settings_that_go_together_are_taken():
    TwoLevels(pooled_layers="2", window_size="all").check(3)
    widest = TwoLevels(relative_attention="c2p", max_relative_positions=8, global_relative_positions=0, global_tokens=0)
    widest.check_relative(8, 1)
    widest.check_relative(4, 1, 2)
    with pytest.raises(ValueError, match=r"^window_size=9 \(layer 1\) reaches"):
        widest.check_relative(9, 1)
    widest.check_relative(UNLIMITED, 1)


def test_every_setting_is_a_flag_without_a_default():
    parser = argparse.ArgumentParser()
    TwoLevelFlags.add_args(parser)
    assert vars(parser.parse_args([])) == dict.fromkeys(TABLE)
    helps = {action.dest: action.help for action in parser._actions}
    assert helps["pool_stride"].endswith(" (default: 4)")
    assert helps["pool_mix"].endswith(" (default: no)")
    assert [name for name in TABLE if "(default: " not in helps[name]] == ["attention_backend"]
    args = parser.parse_args(["--pool-mix", "--no-separate-global-projections", "--pool-stride", "3"])
    assert (args.pool_mix, args.separate_global_projections, args.pool_stride) == (True, False, 3)
    set_defaults(args, **DEFAULTS)
    assert (args.pool_mix, args.window_size) == (True, "128")


def test_layers_of_the_papers():
    """BART's are the upper half, RoBERTa's begin in the middle (RoBERTa-base 6-8, RoBERTa-large 15-20)."""
    assert (upper_half(6), upper_half(12)) == (PAPER_LAYERS["bart_base"], PAPER_LAYERS["bart_large"])
    assert layer_numbers(PAPER_LAYERS["roberta_base"]) == {6, 7, 8}
    assert layer_numbers(PAPER_LAYERS["roberta_large"]) == set(range(15, 21))
    assert upper_half(3) == "1-2"


def test_settings_without_effect_and_narrow_second_levels_are_said(tmp_path, caplog):
    narrow = TwoLevels(window_size="8,8,all", pooled_window_size="4,8,16", pooled_layers="0-2")
    assert narrow.remarks(3) == ["pooled_window_size is less than window_size in layers 0, 2: level two sees less than "
        "level one"]  # fmt: skip
    assert TwoLevels(pooled_layers="none", pooled_window_size="1").remarks(3) == []
    assert TwoLevelFlags(max_relative_positions=5).remarks(12) == [
        "--max-relative-positions does nothing without --relative-attention"
    ]
    folder = tiny_bart.write_data_folder(tmp_path)
    flags = ("--pooled-layers", "1-2", "--window-size", "8")
    tiny_bart.build(folder, *tiny_bart.SIZES, *flags)
    assert "level two sees less" not in caplog.text
    tiny_bart.build(folder, *tiny_bart.SIZES, *flags, "--pooled-window-size", "8,8,7")
    assert "--pooled-window-size is less than --window-size in layers 2: level two sees less" in caplog.text

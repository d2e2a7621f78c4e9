"""``attn_implementation="band"`` beside transformers' own attention, in models with random weights."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers import masking_utils as masks

from fairseq_poolingformer import band
from fairseq_poolingformer.attention import Window
from fairseq_poolingformer.choices import UNLIMITED
from run_scripts import scan_band

LAYER = nn.Linear(1, 1)  # whose name refusals have


def pair(name: str, **changes) -> tuple[nn.Module, nn.Module]:
    """A tiny model of a type with windows of 5, with sdpa and with band; the same weights."""
    config = scan_band.tiny(CONFIG_MAPPING[name], 5)
    config.update(changes)
    model_class = scan_band.class_of(type(config))
    theirs, ours = (scan_band.build(model_class, config, implementation) for implementation in ("sdpa", "band"))
    assert ours.config._attn_implementation == "band"
    return theirs, ours


def check_equal(ours: nn.Module, theirs: nn.Module, padding: str) -> None:
    """Outputs and gradients, for 24 tokens."""
    for numbers in (scan_band.plain, scan_band.gradients):
        assert scan_band.difference(numbers(ours, padding), numbers(theirs, padding)) <= 1e-12


def heads(length: int = 12) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(2, 4, length, 8, dtype=torch.float64, generator=generator) for _ in range(3)]


def mask_of(mask_function: Callable, length: int = 12, keys: int | None = None, model: str = "mistral", **flags):
    """The mask that transformers would get from ``band`` for two rows."""
    window = flags.get("local_size")
    config = SimpleNamespace(model_type=model, sliding_window=window, to_dict=lambda: {"sliding_window": window})
    return band.window_mask(2, length, keys or length, mask_function=mask_function, config=config, **flags)


def visible(mask_function: Callable, length: int = 12, keys: int | None = None, offset: int = 0) -> Tensor:
    """(2, 1, T, S) bool, every pair of a mask function."""
    batch, queries, places = (torch.arange(n) for n in (2, length, keys or length))
    shown = mask_function(batch[:, None, None, None], 0, queries[:, None] + offset, places)
    return shown.expand(2, 1, length, keys or length)


def softmax(query: Tensor, key: Tensor, value: Tensor, shown: Tensor, bias: Tensor | float = 0.0, sinks=None) -> Tensor:
    """Attention by its definition, (B, T, H, D)."""
    scores = (query @ key.transpose(2, 3) / query.size(-1) ** 0.5 + bias).masked_fill(~shown, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:3], 1)], -1)
    return (scores.softmax(-1)[..., : key.size(2)] @ value).transpose(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor, mask, **arguments) -> Tensor:
    return band.band_attention_forward(LAYER, query, key, value, mask, **arguments)[0]


@pytest.fixture
def calls(monkeypatch) -> list[tuple[Window, torch.Size]]:
    """The windows of all calls of the operator, and the queries' shapes."""
    windows = []
    operator = band.band_attention

    def recorded(*tensors: Tensor, **arguments) -> Tensor:
        windows.append((arguments["window"], tensors[0].shape))
        return operator(*tensors, **arguments)

    monkeypatch.setattr(band, "band_attention", recorded)
    return windows


@pytest.fixture
def scan(monkeypatch):
    """A comparison by the scan; what it puts between transformers and band is taken out again."""
    for name in ("VERIFIED", "band_attention"):
        monkeypatch.setattr(band, name, getattr(band, name))
    yield scan_band.compared
    transformers.AttentionInterface.register("band", band.band_attention_forward)
    transformers.AttentionMaskInterface.register("band", band.window_mask)


TABLE = json.loads(band.TABLE.read_text(encoding="utf-8"))
WINDOWS = ["gemma3_text", "gemma4_text", "gpt_oss", "inkling_text", "mistral", "modernbert", "phimoe", "qwen2_moe"]
UNVERIFIED = ["deepseek_v4", "doge", "t5gemma"]


@pytest.mark.parametrize("name", [*WINDOWS, *UNVERIFIED])
def test_the_table_has_what_the_scan_finds(name, scan):
    """Outputs, gradients, caches and packed rows of some of the types; ``scan_band.py`` compares all of them."""
    result = scan(name)
    assert (result.kind == "equal") == (name in TABLE["types"]) == (name in WINDOWS), result
    if name == "gemma4_text":  # whose layers with shared keys compute the last queries alone
        assert "window 40, logits_to_keep: attn_implementation='band' cannot run Gemma4TextAttention" in result.why


def test_the_scan_says_where_no_window_ran(scan, monkeypatch):
    monkeypatch.setattr(band, "_pattern", lambda *_: None)
    assert scan("mistral").kind == "no window"


@pytest.mark.parametrize("name", ["doge", "t5gemma", "my_type"])
def test_types_whose_windows_were_not_verified_are_refused(name):
    """At a mask of full attention, too, where a setting of the type says that it has windows."""
    message = f"cannot run model type '{name}', whose windows were not verified: .*scan_band.py {name}` "
    for local_size in (5, None):
        with pytest.raises(ValueError, match=message):
            mask_of(WINDOW_5, model=name, local_size=local_size)


@pytest.mark.parametrize("name", ["bert", "llama", "siglip_vision_model"])
def test_types_without_windows_are_refused(name):
    """Vision towers ask for no mask, and are refused in their first layer."""
    ours = scan_band.build(scan_band.class_of(config := CONFIG_MAPPING[name]), scan_band.tiny(config, 5), "band")
    pixels = {"pixel_values": torch.randn(1, 3, 32, 32).double()}
    inputs = pixels if ours.main_input_name == "pixel_values" else {"input_ids": torch.ones(1, 4, dtype=torch.long)}
    message = f"cannot run model type '{name}': it has no windows, .*'text_config': 'band', 'vision_config': 'sdpa'"
    with pytest.raises(ValueError, match=message):
        ours(**inputs)


def test_the_text_part_of_a_composite_model_has_windows(calls):
    config = scan_band.tiny(CONFIG_MAPPING["gemma3"], 5)
    parts = {"text_config": "band", "vision_config": "sdpa"}
    ours, theirs = (scan_band.build(scan_band.class_of(type(config)), config, each) for each in (parts, "sdpa"))
    check_equal(ours, theirs, "holes")
    assert {window for window, _ in calls} == {Window(4, 0)}


def test_importing_it_builds_no_family():
    above = (
        "('fairseq.', 'fairseq_poolingformer.huggingface', 'fairseq_poolingformer.weights', 'transformers.models.b')"
    )
    check = f"assert not [name for name in sys.modules if name.startswith({above})]"
    subprocess.run([sys.executable, "-c", f"import sys, fairseq_poolingformer.band; {check}"], check=True)


# packed rows: three documents and one
POSITIONS = torch.stack([torch.cat([torch.arange(n) for n in (7, 1, 12)]), torch.arange(20)])
DOCUMENTS = torch.tensor([[0] * 7 + [1] + [2] * 12, [0] * 20])
WINDOW_5, CAUSAL = masks.sliding_window_causal_mask_function(5), masks.causal_mask_function
BOTH = {"allow_is_bidirectional_skip": True}


def packed(inside: Callable, last: bool = True) -> Callable:
    """As transformers packs, with the documents last since 5.24."""
    parts = [masks.packed_sequence_mask_function(DOCUMENTS)]
    parts.insert(1 - last, lambda b, h, q, k: inside(b, h, POSITIONS[b, q], POSITIONS[b, k]))
    return masks.and_masks(*parts)


PATTERNS = [  # mask function, flags of the call, the window
    (WINDOW_5, {"local_size": 5}, Window(4, 0)),
    (masks.sliding_window_causal_mask_function(1), {"local_size": 1}, Window(0, 0)),
    (masks.sliding_window_bidirectional_mask_function(5), {"local_size": 5, **BOTH}, Window(5)),
    (masks.or_masks(WINDOW_5, lambda b, h, q, k: abs(q - k) < 5), {"local_size": 5}, Window(4)),  # Gemma 3
    *((packed(WINDOW_5, last), {"local_size": 5}, Window(4, 0)) for last in (False, True)),
    *((packed(CAUSAL, last), {}, Window(UNLIMITED, 0)) for last in (False, True)),
    (masks.chunked_causal_mask_function(4, torch.tensor([0, 6])), {"local_size": 4}, Window(3, 0)),
    # no windows: others than the call says, documents seen in both directions, images, sinks, gaps, no tensors
    *((WINDOW_5, {"local_size": local_size}, None) for local_size in (4, 6, None)),
    (masks.sliding_window_bidirectional_mask_function(4), {"local_size": 5, **BOTH}, None),
    (lambda b, h, q, k: (q - k <= 5) & (k - q <= 6), {"local_size": 5, **BOTH}, None),
    (packed(masks.bidirectional_mask_function), {"local_size": 5, **BOTH}, None),
    (masks.or_masks(WINDOW_5, masks.packed_sequence_mask_function(DOCUMENTS)), {"local_size": 5}, None),
    (masks.or_masks(WINDOW_5, lambda b, h, q, k: k < 1), {"local_size": 5}, None),
    (masks.and_masks(WINDOW_5, lambda b, h, q, k: (q - k) % 2 == 0), {"local_size": 5}, None),
    (masks.and_masks(CAUSAL, lambda b, h, q, k: (k > 0) | (q < 9)), {}, None),
    (lambda b, h, q, k: k.expand(()) <= q.expand(()), {"use_vmap": True}, None),
]


@pytest.mark.parametrize(("mask_function", "flags", "window"), PATTERNS)
def test_a_window_is_what_a_mask_function_shows(mask_function, flags, window, caplog, calls):
    """Where one is recognized, it shows what the mask function does, pair by pair; else sdpa's mask, with a warning."""
    band._warn_once.cache_clear()
    is_token = torch.ones(2, 20, dtype=torch.bool)
    is_token[1, :6] = False
    mask = mask_of(mask_function, 20, allow_is_causal_skip=False, attention_mask=is_token, **flags)
    if window is None:
        assert isinstance(mask, Tensor)
        assert "mistral: the masks show more than windows" in caplog.text
        return
    assert (mask.window, caplog.text) == (window, "")
    document = torch.zeros(2, 20) if mask.starts is None else mask.starts.cumsum(1)
    distance = torch.arange(20)[:, None] - torch.arange(20)
    shown = (document[:, :, None] == document[:, None]) & (distance <= window.left) & (-distance <= window.right)
    assert torch.equal(shown[:, None], visible(mask_function, 20))
    shown = shown[:, None] & is_token[:, None, None]
    assert torch.equal(shown, mask.dense().expand(2, 1, 20, 20))
    tensors = heads(20)
    torch.testing.assert_close(attend(*tensors, mask)[is_token], softmax(*tensors, shown)[is_token])
    if window == Window(3, 0):  # documents: one call for each power of two of their lengths, not for each
        assert [shape[::2] for _, shape in calls] == [(2, 2), (9, 4)]


@pytest.mark.parametrize(("queries", "keys", "offset"), [(4, 12, 5), (12, 16, 0), (4, 8, 8)])
def test_caches_of_a_fixed_length_have_sdpas_mask(queries, keys, offset):
    """The last query is not that of the last key: a layer would not know from its tensors where they stand."""
    for function, local_size in ((WINDOW_5, 5), (CAUSAL, None)):
        mask = mask_of(function, queries, keys, q_offset=offset, local_size=local_size)
        assert torch.equal(mask, visible(function, queries, keys, offset))
    mask, (query, key, value) = mask_of(WINDOW_5, 4, 12, q_offset=8, local_size=5), heads()
    actual = attend(query[:, :, -4:], key, value, mask)
    torch.testing.assert_close(actual, softmax(query[:, :, -4:], key, value, visible(WINDOW_5, 4, 12, 8)))


def test_what_a_layer_cannot_know_is_refused():
    """Both were wrong without a word: keys that a layer adds or shares, queries that it leaves out."""
    query, key, value = heads()
    mask = mask_of(WINDOW_5, local_size=5)
    attend(query[:, :, -3:], key, value, None, is_causal=False)
    attend(query[:, :, -1:], key, value, None, use_cache=True, num_items_in_batch=torch.ones(1), unused=None)
    for agreeing in (None, 4, 5):
        attend(query, key, value, mask, sliding_window=agreeing)
    refused = {
        r"it is causal and has no mask for its 3 queries and 12 keys": ((query[:, :, -3:], key, value, None), {}),
        r"its sliding_window is 7, and its mask shows 4": ((query, key, value, mask), {"sliding_window": 7}),
        r"it has \(12, 11\) queries and keys, and": ((query, key[:, :, 1:], value[:, :, 1:], mask), {}),
        r"it adds a bias to its scores beside sinks": ((query, key, value, mask), {"s_aux": 1, "position_bias": 1}),
        r"it hands over 'indices', which may change": ((query, key, value, mask), {"indices": torch.ones(1)}),
        r"it hands over 'softcap', which may change": ((query, key, value, None), {"softcap": 50.0}),
        r"it has a paged cache": ((query, key, value, None), {"read_index": [1]}),
    }
    for message, (tensors, arguments) in refused.items():
        with pytest.raises(ValueError, match=f"cannot run Linear: {message}"):
            attend(*tensors, **arguments)
    last = mask[:, :, slice(-3, None), :]
    torch.testing.assert_close(attend(query[:, :, -3:], key, value, last), attend(query, key, value, mask)[:, -3:])
    assert torch.equal(last.dense(), mask.dense()[:, :, -3:])
    rows = mask_of(packed(WINDOW_5), 20, local_size=5)
    assert rows[:, :, slice(0, None), :] is rows
    with pytest.raises(ValueError, match="it leaves out queries of packed rows"):
        rows[:, :, slice(-3, None), :]


def test_the_mask_of_a_window_can_be_moved_and_passed_on_and_nothing_else():
    mask, scores = mask_of(WINDOW_5, local_size=5), torch.zeros(2, 4, 12, 12)
    computed = [lambda: scores + mask, lambda: 1.0 - mask, lambda: torch.where(mask, 0.0, -math.inf), lambda: mask == 0]
    computed += [lambda: mask[:, :, :, :4], lambda: mask[:, :, :4, :], lambda: mask.expand(2, 4, -1, -1), mask.__bool__]
    for function in computed:
        with pytest.raises((ValueError, AttributeError), match=r"'band' cannot run .*: it computes"):
            function()
    mask = mask_of(WINDOW_5, 12, 14, q_offset=2, local_size=5)
    assert mask.shape == mask.size() == (2, 1, 12, 14)
    assert mask.to(torch.float16).window == mask.to("cpu", torch.float32).contiguous().window == Window(4, 0)
    assert mask.to(torch.device("meta")).is_token.device.type == "meta"
    assert mask_of(WINDOW_5, 12, 14, attention_mask=mask) is mask


@pytest.mark.parametrize("padded", [False, True])
def test_full_attention_goes_to_sdpa(padded, calls):
    """A mask that shows all keys keeps PyTorch from its fastest kernels, and costs a sixth of a model's time."""
    is_token = torch.ones(2, 12, dtype=torch.bool)
    is_token[0, 9:] = not padded
    for function, local_size in ((CAUSAL, None), (masks.sliding_window_causal_mask_function(12), 12)):
        mask = mask_of(function, attention_mask=is_token, local_size=local_size)
        is_needed = padded or local_size
        assert torch.equal(mask, visible(CAUSAL) & is_token[:, None, None]) if is_needed else mask is None
        attend(*heads(), mask)
    mask = mask_of(masks.bidirectional_mask_function, attention_mask=is_token, **BOTH)
    assert torch.equal(mask, is_token[:, None, None].expand(2, 1, 12, 12)) if padded else mask is None
    assert calls == []


@pytest.mark.parametrize("mask_function", [None, WINDOW_5, lambda b, h, q, k: k < 9])
@pytest.mark.parametrize("is_causal", [None, True, False])
def test_sinks_equal_their_definition(mask_function, is_causal):
    """sdpa's function swallows them; where there is no mask, a layer that is not causal sees everything."""
    query, key, value = heads()
    sinks, value = torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64), value[..., :5]
    mask = mask_function and mask_of(mask_function, local_size=5, allow_is_causal_skip=False)
    shown = visible(mask_function or (masks.bidirectional_mask_function if is_causal is False else CAUSAL))
    actual = attend(query, key, value, mask, s_aux=sinks, is_causal=is_causal)
    torch.testing.assert_close(actual, softmax(query, key, value, shown, sinks=sinks))


def test_a_bias_in_a_window_is_added_and_weights_are_not_promised(caplog):
    band._warn_of_weights_once.cache_clear()
    bias = torch.randn(1, 4, 12, 12, dtype=torch.float64)
    actual = attend(*heads(), mask_of(WINDOW_5, local_size=5), position_bias=bias, output_attentions=True)
    torch.testing.assert_close(actual, softmax(*heads(), visible(WINDOW_5), bias))
    assert "load the model with attn_implementation='eager' to have them" in caplog.text


def test_an_encoder_whose_distances_are_less_than_its_window(calls, caplog):
    """EmbeddingGemma's window is what its configuration says, halved."""
    band._warn_once.cache_clear()
    theirs, ours = pair("gemma3_text", use_bidirectional_attention=True, sliding_window=3)
    check_equal(ours.model, theirs.model, "holes")
    assert {window for window, _ in calls} == {Window(2)}
    assert caplog.text == ""


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static", "disable_compile": True}])
def test_greedy_decoding_and_checkpointing(cache):
    """A padded prompt with holes, a change of the implementation; checkpointing recomputes the same."""
    theirs, ours = pair("mistral")
    tokens, is_token = scan_band.tokens_of(40), torch.ones(2, 40, dtype=torch.long)
    is_token[1, :7] = is_token[0, 20:23] = 0
    arguments = {"attention_mask": is_token, "max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, **cache}
    expected = theirs.generate(tokens, **arguments)
    theirs.set_attn_implementation("band")
    for model in (ours, theirs):
        assert torch.equal(model.generate(tokens, **arguments), expected)
    theirs.train().gradient_checkpointing_enable()
    check_equal(theirs, ours, "holes")


def in_one_graph(model: Callable) -> tuple[Callable, list[str]]:
    """The model compiled without a break, and the operators of its graphs."""
    called = []

    def backend(graph, inputs):
        called.extend(str(node.target) for node in graph.graph.nodes)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend=backend), called


@pytest.mark.full
@pytest.mark.parametrize(("name", "padding"), [("mistral", "holes"), ("modernbert", "holes"), ("modernbert", "none")])
def test_graphs_keep_the_windows(name, padding):
    """Whole graphs of the compiler, forward and backward, and exported ones."""
    theirs, ours = pair(name)
    theirs.config.use_cache = ours.config.use_cache = False
    compiled, called = in_one_graph(ours)
    check_equal(compiled, theirs, padding)
    assert any("poolingformer.attention" in operator for operator in called)
    inputs, mask = scan_band.inputs_of(ours, 24, scan_band.mask_of(padding)), scan_band.mask_of(padding)
    actual = scan_band.numbers(torch.export.export(ours, (), inputs).module()(**inputs), mask)
    assert scan_band.difference(actual, scan_band.plain(theirs, padding)) <= 1e-12


def test_in_a_graph_the_flags_decide(monkeypatch):
    """It cannot look at a mask function, which is the window alone where a skip is allowed."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for may_skip in (True, False):
        mask = mask_of(WINDOW_5, local_size=5, allow_is_causal_skip=may_skip)
        assert isinstance(mask, Tensor) != may_skip


def test_sinks_stay_in_a_graph():
    mask = mask_of(WINDOW_5, local_size=5)
    sinks = torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64)
    compiled, _ = in_one_graph(lambda *tensors: attend(*tensors, mask, s_aux=sinks))
    expected, actual = ([x.requires_grad_() for x in heads()] for _ in range(2))
    attend(*expected, mask, s_aux=sinks).sin().sum().backward()
    compiled(*actual).sin().sum().backward()
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_memory_is_linear_in_the_length():
    """No tensor has n × n bytes: the greatest storage of a long row, in a small window and packed."""
    sizes = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            sizes.append(result.untyped_storage().nbytes() if isinstance(result, Tensor) else 0)
            return result

    tokens, is_token = scan_band.tokens_of(4096)[:1], torch.ones(1, 4096, dtype=torch.long)
    is_token[0, 4000:] = 0
    encoder = pair("modernbert", layer_types=["sliding_attention"] * 4)[1]
    decoder = pair("mistral")[1].model
    positions = torch.cat([torch.arange(2048), torch.arange(64).repeat(32)])[None]  # one of 33 is long
    with torch.no_grad(), Sizes():
        encoder(input_ids=tokens, attention_mask=is_token)
        decoder(input_ids=tokens, position_ids=positions, use_cache=False)
    assert max(sizes) < 4 * 4096 * 512

"""``attn_implementation="band"`` beside transformers' own attention, in models with random weights."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    blockwise_overlay,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    packed_sequence_compatibility_function,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)
from transformers.models.gemma3.modeling_gemma3 import _bidirectional_window_overlay

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.attention import Window
from fairseq_poolingformer.attention.patterns import UNLIMITED
from fairseq_poolingformer.huggingface import band

ENCODER = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "cls_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "sliding_window": 5}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}
WIDE = {"head_dim": 8, **LAYERS}
CHOSEN = {"use_sliding_window": True, **LAYERS}
DECODERS = {
    "Cohere2": LAYERS,
    "Exaone4": {"sliding_window_pattern": "LG", **LAYERS},
    "Gemma2": {"attn_logit_softcapping": None, **WIDE},
    "Gemma3Text": WIDE,
    "GptOss": {"num_local_experts": 2, "num_experts_per_tok": 1, **WIDE},
    "Ministral": WIDE,
    "Mistral": {},
    "Mixtral": {"num_local_experts": 2},
    "ModernBertDecoder": {"local_attention": 10, **LAYERS},
    "Olmo3": LAYERS,
    "Phi3": {"num_key_value_heads": 1},
    "Qwen2": CHOSEN,
    "Qwen3": {**CHOSEN, "head_dim": 8},
    "SmolLM3": CHOSEN,
    "Starcoder2": {},
}
EXPERTS = ("GptOss", "Mixtral")  # transformers multiplies theirs in 32 bits at most


def pair(family: str, model_class: type = transformers.AutoModelForCausalLM, **settings) -> tuple[nn.Module, nn.Module]:
    """The model with transformers' attention, and with band; the same weights."""
    shared = ENCODER if family in ("ModernBert", "ModernBertDecoder") else DECODER
    config = getattr(transformers, f"{family}Config")(**{**shared, **settings})
    own = "eager" if family in ("GptOss", "Gemma2") else "sdpa"  # transformers gives these two no sdpa
    dtype = torch.float32 if family in EXPERTS else torch.float64
    models = []
    for implementation in (own, "band"):
        torch.manual_seed(0)
        model = model_class.from_config(copy.deepcopy(config), attn_implementation=implementation).to(dtype).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                nn.init.normal_(parameter)
        models.append(model)
    if family == "Gemma2":  # without a cap sdpa can; eager would round to 32 bits
        models[0].config._attn_implementation = "sdpa"
    assert models[1].config._attn_implementation == "band"
    return tuple(models)


def results(model: nn.Module, tokens: Tensor, is_token: Tensor | None = None, **inputs) -> tuple[Tensor, Tensor]:
    """What the model makes of all tokens that are not padding, and the gradients of all its parameters."""
    mask = None if is_token is None else is_token.long()
    found = model(input_ids=tokens, attention_mask=mask, **inputs)[0]
    found = found if is_token is None else found[is_token]
    used = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(found.square().mean(), used, allow_unused=True)
    return found, torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])


def check_equal(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        limit = 1e-12 if theirs.dtype == torch.float64 else 1e-5
        assert (ours - theirs).abs().max() <= limit * theirs.abs().max()


def tokens_of(rows: int = 2, length: int = 40) -> Tensor:
    return torch.randint(3, 99, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def windows(monkeypatch) -> list[Window]:
    """The windows of all calls of the operator."""
    seen: list[Window] = []
    operator = band.band_attention

    def recorded(*tensors: Tensor, **arguments) -> Tensor:
        seen.append(arguments["window"])
        return operator(*tensors, **arguments)

    monkeypatch.setattr(band, "band_attention", recorded)
    return seen


@pytest.mark.parametrize("family", DECODERS)
def test_decoders_equal_transformers_own_attention(family, windows):
    """A padded prompt with holes: logits, gradients, and greedy decoding token by token."""
    own, ours = pair(family, **DECODERS[family])
    tokens, is_token = tokens_of(), torch.ones(2, 40, dtype=torch.bool)
    is_token[1, :7] = is_token[0, 20:23] = False
    check_equal(results(ours, tokens, is_token), results(own, tokens, is_token))
    assert Window(4, 0) in windows
    windows.clear()
    arguments = {"attention_mask": is_token.long(), "max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    assert torch.equal(ours.generate(tokens, **arguments), own.generate(tokens, **arguments))
    assert windows


@pytest.mark.parametrize(
    ("family", "model_class", "settings", "window"),
    [
        ("ModernBert", transformers.AutoModelForMaskedLM, {"local_attention": 10, **LAYERS}, Window(5)),
        ("Gemma3Text", transformers.AutoModel, {"use_bidirectional_attention": True, **WIDE}, None),
        ("EmbeddingGemma2Text", transformers.AutoModel, WIDE, Window(5)),
        ("Ultrabert", transformers.AutoModel, {**LAYERS, "sliding_window": 5}, Window(5)),
    ],
)
def test_encoders_equal_transformers_own_attention(family, model_class, settings, window, windows, caplog):
    band._warn_once.cache_clear()
    own, ours = pair(family, model_class, **settings)
    tokens, is_token = tokens_of(), torch.ones(2, 40, dtype=torch.bool)
    check_equal(results(ours, tokens), results(own, tokens))
    is_token[1, 31:] = is_token[0, 8:15] = False
    check_equal(results(ours, tokens, is_token), results(own, tokens, is_token))
    # EmbeddingGemma's window is what its configuration says, halved
    assert set(windows) == {window or Window(own.config.sliding_window - 1)}
    assert "n × n" not in caplog.text


@pytest.mark.parametrize("family", ["Mistral", "GptOss", "Gemma3Text"])
def test_packed_documents_do_not_see_each_other(family, windows):
    own, ours = pair(family, **DECODERS[family])
    positions = torch.cat([torch.arange(length) for length in (7, 1, 21, 11)]).expand(2, -1)
    positions = torch.stack([positions[0], torch.arange(40)])
    inputs = {"position_ids": positions, "use_cache": False}
    check_equal(results(ours, tokens_of(), **inputs), results(own, tokens_of(), **inputs))
    assert windows
    if family in EXPERTS:  # whose numbers depend on what else is in the batch
        return
    alone = ours(input_ids=tokens_of()[:1, 8:29], position_ids=positions[:1, 8:29], use_cache=False)[0]
    together = ours(input_ids=tokens_of(), **inputs)[0][:1, 8:29]
    torch.testing.assert_close(alone, together)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", ["Mistral", "GptOss", "Qwen3"])
def test_a_prompt_in_chunks_equals_a_prompt_at_once(family, padded):
    """Also where the cache holds the last keys of a window only, some of which are padding."""
    own, ours = pair(family, **DECODERS[family])
    tokens, is_token = tokens_of(), torch.ones(2, 40, dtype=torch.long)
    is_token[0, :4] = is_token[1, 17:19] = is_token[0, 22] = 0
    mask = is_token if padded else None
    with torch.no_grad():
        expected = own(input_ids=tokens, attention_mask=mask)[0]
        cache, parts = None, []
        for first, end in ((0, 3), (3, 20), (20, 21), (21, 40)):
            so_far = mask if mask is None else mask[:, :end]
            found = ours(input_ids=tokens[:, first:end], attention_mask=so_far, past_key_values=cache, use_cache=True)
            cache = found.past_key_values
            parts.append(found.logits)
    real = is_token.bool() if padded else torch.ones(2, 40, dtype=torch.bool)
    check_equal((torch.cat(parts, 1)[real],), (expected[real],))


@pytest.mark.parametrize("family", ["Mistral", "Gemma3Text", "GptOss"])
def test_a_cache_of_a_fixed_length(family):
    own, ours = pair(family, **DECODERS[family])
    arguments = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static", "disable_compile": True}
    assert torch.equal(ours.generate(tokens_of(), **arguments), own.generate(tokens_of(), **arguments))


def test_an_implementation_can_be_changed():
    own, ours = pair("Mistral")
    own.set_attn_implementation("band")
    assert torch.equal(own(tokens_of())[0], ours(tokens_of())[0])


def in_one_graph(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The model compiled without a break, and the operators of its graphs."""
    called: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend=backend), called


@pytest.mark.parametrize("family", ["Mistral", "ModernBert"])
@pytest.mark.parametrize("padded", [False, True])
def test_graphs_keep_the_windows(family, padded):
    """Whole graphs of the compiler, forward and backward, and exported ones, at another length than they were made."""
    own, ours = pair(family, transformers.AutoModel, **({} if family == "Mistral" else {"local_attention": 10}))
    is_token = torch.ones(2, 40, dtype=torch.bool)
    is_token[1, 31:] = False
    given = {} if family == "ModernBert" else {"use_cache": False}
    arguments = (tokens_of(), is_token if padded else None)
    compiled, called = in_one_graph(ours)
    expected = results(own, *arguments, **given)
    check_equal(results(compiled, *arguments, **given), expected)
    # decoders look for packed documents where they have neither mask nor cache
    assert any("window_attention" in name for name in called) == (padded or family == "ModernBert")
    inputs = {"input_ids": tokens_of(), "attention_mask": is_token.long() if padded else None, **given}
    found = torch.export.export(ours, (), inputs).module()(**inputs)[0]
    check_equal((found[is_token] if padded else found.flatten(0, 1),), (expected[0].flatten(0, -2),))


def test_sinks_stay_in_a_graph():
    mask = band.window_mask(2, 12, 12, mask_function=sliding_window_causal_mask_function(3))
    sinks = torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64)

    def attend(*tensors: Tensor) -> Tensor:
        return band.band_attention_forward(nn.Module(), *tensors, mask, s_aux=sinks)[0]

    compiled, _ = in_one_graph(attend)
    expected = [x.requires_grad_() for x in heads()]
    attend(*expected).sin().sum().backward()
    found = [x.requires_grad_() for x in heads()]
    compiled(*found).sin().sum().backward()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_checkpointing_recomputes_the_same():
    _, ours = pair("Mistral")
    expected = results(ours.train(), tokens_of())
    ours.gradient_checkpointing_enable()
    check_equal(results(ours, tokens_of(), use_cache=False), expected)


@pytest.mark.parametrize("kind", ["t5", "poolingformer-t5"])
def test_scores_by_distance_are_added_beside_padding(kind):
    """T5's decoder, whose layers hand over a bias; transformers' own with ``eager`` is the oracle."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
    config_class, model_class = transformers.T5Config, transformers.T5Model
    if kind == "poolingformer-t5":
        config_class, model_class = huggingface.PoolingformerT5Config, huggingface.PoolingformerT5Model
        sizes |= {"window_size": 8, "pooled_window_size": 16, "pooled_layers": "1", "max_position_embeddings": 64}
    tokens, is_token = tokens_of(), torch.ones(2, 40, dtype=torch.bool)
    is_token[0, :6] = is_token[1, 33:] = is_token[1, 9:12] = False
    found = []
    for implementation in ("eager", "band"):
        torch.manual_seed(0)
        model = model_class._from_config(config_class(**sizes), attn_implementation=implementation).double().eval()
        inputs = {"attention_mask": is_token.long(), "decoder_attention_mask": is_token.long()}
        found.append(model(input_ids=tokens, decoder_input_ids=tokens, **inputs).last_hidden_state[is_token])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5 * found[0].abs().max().item())  # eager rounds


def heads(length: int = 12) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(2, 4, length, 8, dtype=torch.float64, generator=generator) for _ in range(3)]


def test_a_bias_in_a_window_is_added():
    query, key, value = heads()
    mask = band.window_mask(2, 12, 12, mask_function=sliding_window_causal_mask_function(3), local_size=3)
    bias = torch.randn(1, 4, 12, 12, dtype=torch.float64)
    found, _ = band.band_attention_forward(nn.Module(), query, key, value, mask, position_bias=bias)
    distance = torch.arange(12)[:, None] - torch.arange(12)
    scores = query @ key.transpose(2, 3) / 8**0.5 + bias
    scores = scores.masked_fill((distance < 0) | (distance > 2), -math.inf)
    torch.testing.assert_close(found, (scores.softmax(-1) @ value).transpose(1, 2))


@pytest.mark.parametrize("mask_function", [None, sliding_window_causal_mask_function(3), lambda b, h, q, k: k < 9])
@pytest.mark.parametrize("is_causal", [None, True, False])
def test_sinks_equal_their_definition(mask_function, is_causal):
    """Where there is no mask, a layer that is not causal sees everything."""
    query, key, value = heads()
    sinks, value = torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=torch.float64), value[..., :5]
    mask, seen = None, torch.ones(12, 12, dtype=torch.bool)
    if mask_function is not None:
        mask = band.window_mask(2, 12, 12, mask_function=mask_function, allow_is_causal_skip=False)
        seen = mask_function(0, 0, torch.arange(12)[:, None], torch.arange(12))
    elif is_causal is not False:
        seen = seen.tril()
    found, _ = band.band_attention_forward(nn.Module(), query, key, value, mask, s_aux=sinks, is_causal=is_causal)
    scores = (query @ key.transpose(2, 3) / 8**0.5).masked_fill(~seen, -math.inf)
    scores = torch.cat([scores, sinks[:, None, None].expand(2, -1, 12, 1)], -1)
    torch.testing.assert_close(found, (scores.softmax(-1)[..., :-1] @ value).transpose(1, 2))


@pytest.mark.parametrize("given", [{"indices": torch.ones(1)}, {"softcap": 50.0}, {"cache": object()}, {"bias": [1]}])
@pytest.mark.parametrize("mask_function", [causal_mask_function, sliding_window_causal_mask_function(3)])
def test_what_may_change_scores_is_refused(given, mask_function):
    mask = band.window_mask(2, 12, 12, mask_function=mask_function)
    arguments = {"sliding_window": 3, "use_cache": True, "num_items_in_batch": torch.ones(1), "unused": None}
    band.band_attention_forward(nn.Linear(1, 1), *heads(), mask, **arguments)
    why = "it has a paged cache" if "cache" in given else f"it hands over '{next(iter(given))}', which may change"
    with pytest.raises(ValueError, match=f"cannot run Linear: {why}"):
        band.band_attention_forward(nn.Linear(1, 1), *heads(), mask, **arguments, **given)


@pytest.mark.parametrize(
    "family", ["BigBird", "Bloom", "ConvBert", "Falcon", "LED", "LongT5", "MPNet", "RoFormer", "XGLM"]
)
def test_models_outside_of_the_attention_interface_are_refused(family):
    """They would add a mask of True and False to their scores, or end in ``KeyError: 'band'``."""
    config = getattr(transformers, f"{family}Config")()
    with (
        torch.device("meta"),
        pytest.raises(ValueError, match=r"'band' cannot run .*: its attention is not, or not all"),
    ):
        transformers.AutoModel.from_config(config, attn_implementation="band")


@pytest.mark.parametrize(
    "computed",
    [
        lambda mask: torch.zeros(2, 4, 12, 12) + mask,
        lambda mask: mask + torch.zeros(2, 4, 12, 12),
        lambda mask: 1.0 - mask,
        lambda mask: torch.where(mask, 0.0, -math.inf),
        lambda mask: torch.zeros(2, 4, 12, 12).masked_fill(mask, 1.0),
        lambda mask: nn.functional.pad(mask, (1, 0)),
        lambda mask: mask[:, :, :, :4],
        lambda mask: mask == 0,
        lambda mask: mask.expand(2, 4, -1, -1),
        lambda mask: mask.float(),
        lambda mask: bool(mask),
    ],
)
def test_computing_with_the_mask_of_a_window_is_refused(computed):
    mask = band.window_mask(2, 12, 12, mask_function=sliding_window_causal_mask_function(3))
    with pytest.raises((ValueError, AttributeError), match=r"'band' cannot run .*: it computes"):
        computed(mask)


def test_the_mask_of_a_window_can_be_moved_and_passed_on():
    mask = band.window_mask(2, 12, 14, mask_function=sliding_window_causal_mask_function(3))
    assert mask.shape == mask.size() == (2, 1, 12, 14)
    assert mask.to(torch.float16).window == mask.to("cpu", torch.float32).contiguous().window == Window(2, 0)
    assert mask.to(torch.device("meta")).is_token.device.type == "meta"
    assert band.window_mask(2, 12, 14, attention_mask=mask) is mask
    with pytest.raises(ValueError, match=r"Linear: it has \(12, 12\) queries and keys, and its mask is for \(12, 14\)"):
        band.band_attention_forward(nn.Linear(1, 1), *heads(), mask)


@pytest.mark.parametrize("mask_function", [causal_mask_function, sliding_window_causal_mask_function(12)])
def test_full_attention_goes_to_sdpa_with_padding_too(mask_function, windows):
    is_token = torch.ones(2, 12, dtype=torch.bool)
    is_token[0, 9:] = False
    mask = band.window_mask(2, 12, 12, mask_function=mask_function, attention_mask=is_token, local_size=12)
    assert torch.equal(mask, torch.ones(12, 12, dtype=torch.bool).tril() & is_token[:, None, None])
    band.band_attention_forward(nn.Module(), *heads(), mask)
    assert windows == []


@pytest.mark.parametrize("padded", [False, True])
def test_full_attention_in_both_directions_has_a_mask_for_padding_alone(padded):
    """A mask that shows all keys keeps PyTorch from its fastest kernels, and costs a sixth of a model's time."""
    is_token = torch.ones(2, 12, dtype=torch.bool)
    is_token[0, 9:] = not padded
    asked = {"attention_mask": is_token, "allow_is_bidirectional_skip": True}
    mask = band.window_mask(2, 12, 12, mask_function=bidirectional_mask_function, **asked)
    assert torch.equal(mask, is_token[:, None, None].expand(2, 1, 12, 12)) if padded else mask is None


def test_weights_are_not_promised(caplog):
    band._warn_of_weights_once.cache_clear()
    _, ours = pair("Mistral")
    ours(input_ids=tokens_of(), output_attentions=True)
    assert "load the model with attn_implementation='eager' for output_attentions=True" in caplog.text


def test_memory_is_linear_in_the_length():
    """No tensor has n × n bytes: the greatest storage of a long row in a small window."""
    _, ours = pair("ModernBert", transformers.AutoModel, local_attention=10, layer_types=["sliding_attention"] * 2)
    sizes: list[int] = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            sizes.append(found.untyped_storage().nbytes() if isinstance(found, Tensor) else 0)
            return found

    is_token = torch.ones(1, 4096, dtype=torch.long)
    is_token[0, 4000:] = 0
    with torch.no_grad(), Sizes():
        ours(input_ids=tokens_of(1, 4096), attention_mask=is_token)
    assert max(sizes) < 4 * 4096 * 512


SCANNED = {
    **dict.fromkeys(
        ["albert", "bart", "bert", "cohere2", "deepseek_v3", "electra", "eurobert", "gemma3_text"], "equal"
    ),
    **dict.fromkeys(["gpt2", "gpt_oss", "inkling_text", "mistral", "modernbert", "mt5", "t5", "umt5"], "equal"),
    **dict.fromkeys(["deepseek_v4", "doge", "hy_v4", "mpnet", "switch_transformers", "t5gemma"], "refused"),
}


@pytest.mark.parametrize("name", SCANNED)
def test_types_of_models(name, monkeypatch):
    """Some of what ``run_scripts/scan_band.py`` asks of every type that transformers has."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "run_scripts"))
    kind, why = importlib.import_module("scan_band").compared(name)
    assert kind == SCANNED[name], why


SEGMENTS = torch.tensor([[0] * 9 + [1] * 11])
MASKS = [
    (causal_mask_function, Window(UNLIMITED, 0)),
    (bidirectional_mask_function, Window(UNLIMITED)),
    (sliding_window_causal_mask_function(1), Window(0, 0)),
    (sliding_window_causal_mask_function(5), Window(4, 0)),
    (sliding_window_bidirectional_mask_function(5), Window(5)),
    (or_masks(sliding_window_causal_mask_function(5), _bidirectional_window_overlay(4)), Window(4, 3)),
    (and_masks(causal_mask_function, lambda b, h, q, k: q - k < 3), Window(2, 0)),
    (or_masks(causal_mask_function, lambda b, h, q, k: k > q + 2), None),  # two intervals
    (or_masks(causal_mask_function, lambda *_: torch.tensor(True)), Window(UNLIMITED)),
    (or_masks(causal_mask_function, lambda *_: torch.tensor(False)), Window(UNLIMITED, 0)),
    (lambda b, h, q, k: k > q + 2, None),  # no window has the token itself outside
    (lambda b, h, q, k: k < 4, None),
    (lambda b, h, q, k: abs(q - k) > 3, None),
    (blockwise_overlay(SEGMENTS), None),
    (chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.long)), None),
    (packed_sequence_compatibility_function(causal_mask_function, torch.arange(20)[None], SEGMENTS), None),
]


@pytest.mark.parametrize(("mask_function", "expected"), MASKS)
def test_windows_are_read_off_mask_functions(mask_function, expected):
    """Where a window is found, it shows what the mask function shows, pair by pair."""
    found = band.window_of(mask_function)
    assert found == expected
    if found is not None:
        zero, positions = torch.zeros((), dtype=torch.long), torch.arange(20)
        shown = torch.stack([mask_function(zero, zero, query, positions).expand(20) for query in positions])
        distance = positions[:, None] - positions
        assert torch.equal(shown, (distance <= found.left) & (-distance <= found.right))


def test_documents_are_read_off_mask_functions():
    packed = packed_sequence_compatibility_function(causal_mask_function, torch.arange(20)[None], SEGMENTS)
    documents, inside = band.documents_of(packed)
    assert documents is SEGMENTS
    assert inside is causal_mask_function
    assert band.documents_of(sliding_window_causal_mask_function(5)) is None
    assert band.documents_of(causal_mask_function) is None


def test_masks_of_the_installed_transformers_are_recognized():
    """Documents are taken out of closures by their code, and a window out of what a function does with positions."""
    installed = f"transformers {transformers.__version__} makes its masks otherwise: window_of and documents_of need it"
    config = transformers.MistralConfig(**DECODER)
    config._attn_implementation = "band"
    hidden, positions = torch.zeros(2, 40, 32), torch.arange(20).repeat(2, 2)
    makers = {
        Window(4, 0): transformers.masking_utils.create_sliding_window_causal_mask,
        Window(5): transformers.masking_utils.create_bidirectional_sliding_window_mask,
    }
    for window, make in makers.items():
        mask = make(config=config, inputs_embeds=hidden, attention_mask=None, past_key_values=None)
        assert getattr(mask, "window", None) == window, installed
    for make in (makers[Window(4, 0)], transformers.masking_utils.create_causal_mask):
        packed = make(config, hidden, attention_mask=None, past_key_values=None, position_ids=positions)
        assert getattr(packed, "documents", None) is not None, installed


def test_images_among_windows_are_warned_of(caplog):
    """Gemma 3's tokens of an image see each other in both directions."""
    band._warn_once.cache_clear()
    config = transformers.Gemma3TextConfig(**DECODER, **WIDE)
    mask = and_masks(or_masks(causal_mask_function, blockwise_overlay(SEGMENTS)), lambda b, h, q, k: q - k < 5)
    assert isinstance(
        band.window_mask(1, 20, 20, mask_function=mask, config=config, allow_is_causal_skip=False), Tensor
    )
    assert "gemma3_text: the masks show more than windows" in caplog.text


def test_other_masks_go_to_sdpa_with_a_warning(caplog):
    band._warn_once.cache_clear()
    is_token = torch.ones(1, 20, dtype=torch.bool)
    mask = chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.long))
    found = band.window_mask(1, 20, 20, mask_function=mask, attention_mask=is_token, local_size=4)
    assert found.shape == (1, 1, 20, 20)
    assert found.sum() == 5 * 10
    assert "the masks show more than windows" in caplog.text


def test_distances_are_joined_where_they_touch():
    assert band.Distances(-math.inf, 0) | band.Distances(1, 3) == band.Distances(-math.inf, 3)
    assert band.NONE | band.Distances(1, 3) == band.Distances(1, 3) | band.NONE == band.Distances(1, 3)
    with pytest.raises(band.NotAWindowError):
        band.Distances(-math.inf, 0) | band.Distances(2, 3)

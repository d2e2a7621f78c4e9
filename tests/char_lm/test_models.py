"""Character language models: the papers' equations, causality, memory, spans, precision."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import build_optimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer

from fairseq_poolingformer.char_lm.adaptive_span import AdaptiveSpans
from tests.char_lm import naive_char_lm
from tests.char_lm.tiny_char_lm import as_parsed, build, parse, text
from tests.dropped import assert_dropped, identity

ARCHS = ["transformer_lm_full", "transformer_xl_lm", "longformer_lm", "adaptive_span_lm", "gaa_lm"]
WITH_MEMORY = {
    "transformer_xl_lm": ("--memory-length", "100"),
    "longformer_lm": ("--memory-length", "100", "--window-size", "5,9"),
    "adaptive_span_lm": ("--max-span", "24"),
    "gaa_lm": ("--max-span", "24"),
}
# the flags of what is not published, and the settings of the naive model of what is
XL_OURS = ("--no-share-position-biases", "--no-share-decoder-input-output-embed", "--no-output-bias")
SPAN_OURS = ("--attend-to-self", "--empty-memory", "none", "--no-output-bias", "--scale-embedding")
SPANS = {"longest": 12, "ramp": 8, "nearest": 1, "zeros": True, "scale": False}


def parameters(model):
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def gradients(model, loss):
    names, wanted = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, wanted, materialize_grads=True), strict=True))


def dilated(number, head, distance, taps=(3, 5)):
    """Windows of so many taps, two of the four heads of the upper layer with every second position."""
    left, step = taps[number], 2 if number == 1 and head >= 2 else 1
    return distance % step == 0 and distance // step <= left


GAA = SPANS | {"activation": F.gelu}
LEARNED = (("adaptive_span_lm", SPANS), ("gaa_lm", GAA))
LONGFORMER = {"pre_norm": True, "activation": F.gelu}
S12, SCALED = ("--max-span", "12"), ("--window-scale", "3", "--window-size")


@pytest.mark.parametrize(
    ("arch", "flags", "settings"),
    [
        ("transformer_lm_full", (), {}),
        ("transformer_xl_lm", (), {}),
        ("longformer_lm", ("--window-size", "3,5"), LONGFORMER | {"sees": dilated}),
        ("longformer_lm", (*SCALED, "1,2"), LONGFORMER | {"sees": partial(dilated, taps=(3, 6))}),
        ("transformer_xl_lm", XL_OURS, {}),
        ("adaptive_span_lm", S12, SPANS),
        ("adaptive_span_lm", (*S12, *SPAN_OURS), {"longest": 12, "ramp": 8}),
        ("adaptive_span_lm", (*S12, "--attend-to-self"), SPANS | {"nearest": 0}),
        ("adaptive_span_lm", (*S12, "--empty-memory", "none"), SPANS | {"zeros": False}),
        ("adaptive_span_lm", (*S12, "--decoder-normalize-before"), SPANS | {"pre_norm": True}),
        *(("gaa_lm", (*S12, *flags), GAA) for flags in ((), ("--no-gated-ffn",), ("--no-shared-span",))),
        # masks are exactly 0 and 1, as in every untrained model: there a clamp lets the gradient pass
        *((arch, z, spans) for arch, spans in LEARNED for z in (0.0, 0.25, 1.0)),
    ],
)
def test_logits_and_gradients_are_those_of_the_papers_equations(arch, flags, settings):
    model = build(f"{arch}_tiny", *(flags if isinstance(flags, tuple) else S12))
    if isinstance(flags, float):
        with torch.no_grad():
            for parameter in model.decoder.spans.parameters():
                parameter.zero_()
            for parameter in model.decoder.spans.z:
                parameter.fill_(flags)
    tokens = text(1, 15)
    naive = {name: p.clone().requires_grad_() for name, p in parameters(model).items()}
    expected = naive_char_lm.logits(naive, tokens[0], heads=4, **settings)
    actual, _ = model(tokens)
    tolerance = 1e-6 if "activation" in settings else 1e-9  # fairseq's gelu is always in float32
    torch.testing.assert_close(actual[0], expected, atol=tolerance, rtol=0)
    direction = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = torch.autograd.grad(expected, list(naive.values()), direction, materialize_grads=True)
    by_name = gradients(model, (actual[0] * direction).sum())
    wanted = dict(zip(naive, wanted, strict=True))
    torch.testing.assert_close(by_name, wanted, atol=10 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("shares", [True, False])
def test_transformer_xl_shares_what_is_shared_in_the_published_code(shares):
    """u and v by all layers, one matrix for input and output; and not where the flags say so."""
    decoder = build("transformer_xl_lm_tiny", *(() if shares else XL_OURS)).decoder
    assert (decoder.output_projection.weight is decoder.embed_tokens.weight) == shares
    assert (decoder.output_projection.bias is not None) == shares
    lower, upper = (layer.positions for layer in decoder.layers)
    assert (lower.content_bias is upper.content_bias) == shares
    assert (lower.position_bias is upper.position_bias) == shares
    assert lower.content_bias is not lower.position_bias
    assert lower.r_proj.weight is not upper.r_proj.weight


NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0")


@pytest.mark.parametrize("place", ["embedding", "attended", "fed forward", "features", "hidden"])
@torch.no_grad()
def test_elements_are_dropped_in_training(place):
    """Where Dai et al.'s code drops them; the layers' residual connections hand on zeros here."""
    flag = "--activation-dropout" if place == "hidden" else "--dropout"
    model = build("transformer_xl_lm_tiny", *NO_DROPOUT, flag, "0.25", "--position-dropout", "0")
    decoder, layer, tokens, inputs_of = model.decoder, model.decoder.layers[-1], text(3, 30), {}
    fixed, residual = torch.randn(2, 30, 3, 16, dtype=torch.float64)
    for name, module in (
        *(("embedding", decoder.layers[0]), ("attended", layer.attention_norm)),
        *(("hidden", layer.feed_forward.fc2), ("fed forward", layer.feed_forward_norm)),
    ):
        module.register_forward_pre_hook(lambda module, inputs, name=name: inputs_of.update({name: inputs[0]}))
    if place == "features":  # a last layer that gives the same, whatever was dropped before it
        layer.feed_forward_norm.register_forward_hook(lambda module, inputs, output: fixed)
    else:
        layer.attention_norm.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
        torch.nn.init.normal_(layer.feed_forward.fc1.bias)
    view, positions = decoder._views()[-1], decoder.positions(30, like=residual)

    def run():
        if place == "features":
            return decoder.extract_features(tokens)[0]
        model(tokens) if place == "embedding" else layer(residual, None, positions, view)
        return inputs_of[place] - (residual if place == "attended" else 0.0)

    whole = run()
    model.train()
    assert_dropped(run, whole, 0.25)


@pytest.mark.parametrize("arch", ["transformer_xl_lm", "longformer_lm", "adaptive_span_lm", "gaa_lm"])
@torch.no_grad()
def test_attention_weights_are_dropped_in_training(arch):
    """The values are the rows of an identity, so that the output of the attention is its weights."""
    size, flags = 32, (*NO_DROPOUT, "--attention-dropout", "0.25", "--decoder-embed-dim", "32")
    more = {"transformer_xl_lm": ("--position-dropout", "0"), "longformer_lm": ("--dilated-heads", "0")}
    more = more.get(arch, ("--empty-memory", "none"))
    model = build(f"{arch}_tiny", *flags, *more, "--decoder-attention-heads", "1")
    attention = model.decoder.layers[0].attention
    identity(attention.out_proj)
    key, value = torch.randn(size, 1, size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)[:, None]
    view = model.decoder._views()[0]
    positions = model.decoder._positions(value, [None] * 2, model.decoder._views())

    def run():
        return attention(key, key, value, model.decoder.layers[0].positions, positions, view)[:, 0]

    whole = run()
    torch.testing.assert_close(whole.sum(-1)[1:], torch.ones(size - 1, dtype=torch.float64))
    assert (whole > 1e-9).sum() > 200
    model.train()
    assert_dropped(run, whole * (whole > 1e-9), 0.25)


@pytest.mark.parametrize("dropped", [0.0, 0.4])
def test_relative_positions_are_dropped_alike_in_all_layers(dropped):
    """Dai et al.'s code drops elements of r once for all layers, and the survivors grow."""
    flags = ("--dropout", "0", "--activation-dropout", "0", "--position-dropout", str(dropped))
    model, drawn = build("transformer_xl_lm_tiny", *flags), []
    for layer in model.decoder.layers:
        layer.positions.r_proj.register_forward_pre_hook(lambda module, inputs: drawn.append(inputs[0]))
    tokens = text(1, 50)
    model.train()(tokens)
    lower, upper = drawn
    assert torch.equal(lower, upper)
    whole = torch.stack([naive_char_lm.sinusoid(distance, 16) for distance in range(50)])
    survives = lower != 0
    torch.testing.assert_close(lower[survives], whole[survives] / (1 - dropped), atol=1e-7, rtol=1e-3)
    assert (survives | (whole == 0)).float().mean().item() == pytest.approx(1 - dropped, abs=0.08)
    drawn.clear()
    model.eval()(tokens)
    torch.testing.assert_close(drawn[0], whole)


@pytest.mark.parametrize(
    ("arch", "embedding", "matrix", "gains", "biases"),
    [
        ("transformer_xl_lm", 0.02, 0.02, 0.02, 0.02),  # its train.py: --init_std 0.02 of everything
        ("longformer_lm", 64**-0.5, 0.02, 0.0, 0.0),
        ("adaptive_span_lm", 1.0, (3 * 64) ** -0.5, 0.0, None),  # torch: embeddings N(0, 1), matrices U(±1/√C)
    ],
)
def test_initial_values(arch, embedding, matrix, gains, biases):
    """Standard deviations, at width 64; after scaling by √512 Transformer-XL's embeddings have 0.45."""
    torch.manual_seed(0)
    decoder, about = as_parsed(f"{arch}_tiny").decoder, partial(pytest.approx, rel=0.05)
    assert decoder.embed_tokens.weight.std().item() == about(embedding)
    for layer in decoder.layers:
        gain = layer.feed_forward_norm.weight
        assert layer.attention.k_proj.weight.std().item() == about(matrix)
        assert gain.mean().item() == pytest.approx(1.0, abs=0.02)
        assert gain.std().item() == pytest.approx(gains, rel=0.3)
        if biases is not None:
            for bias in (layer.positions.content_bias, layer.positions.position_bias):
                assert bias.std().item() == pytest.approx(biases, rel=0.3)
            assert not layer.feed_forward.fc1.bias.any()
    expected = 8 * embedding if arch != "adaptive_span_lm" else 1.0
    assert (decoder.embed_scale * decoder.embed_tokens.weight).std().item() == about(expected)
    if biases is None:
        assert decoder.positions.weight.std().item() == about(1.0)
        assert decoder.positions.weight.shape == (64, 16)  # distances 1 to 64


def in_blocks(model, tokens, sizes):
    memory, logits = None, []
    for block in tokens.split(sizes, dim=1):
        part, extra = model(block, memory=memory)
        memory = extra["memory"]
        logits.append(part)
    return torch.cat(logits, 1), memory


@pytest.mark.parametrize("arch", WITH_MEMORY)
@pytest.mark.parametrize("grad", [True, False])
def test_blocks_with_memory_are_one_long_text(arch, grad):
    model, tokens, sizes = build(f"{arch}_tiny", *WITH_MEMORY[arch]), text(2, 61), [17, 9, 1, 1, 16, 17]
    whole, _ = model(tokens)
    with torch.set_grad_enabled(grad):
        logits, memory = in_blocks(model, tokens, sizes)
        alone = torch.cat([model(block)[0] for block in tokens.split(sizes, dim=1)], 1)
    torch.testing.assert_close(logits, whole, atol=1e-10, rtol=0)
    assert (alone[:, 17:] - whole[:, 17:]).abs().amax(-1).min() > 1e-3
    assert all(x.size(0) == 2 and not x.requires_grad for x in memory)
    assert max(x.size(1) for x in memory) <= model.memory_length


@pytest.mark.parametrize(("arch", "reach"), [("longformer_lm", 32), ("transformer_xl_lm", None)])
def test_a_memory_can_be_given_later(arch, reach):
    """Windows see the same with a memory as far as they reach: 16 taps, two positions apart."""
    model, tokens = build(f"{arch}_tiny", "--memory-length", "0"), text(2, 61)
    assert model.reach == reach
    whole, _ = model(tokens)
    model.set_memory_length(reach or 100)
    with torch.no_grad():
        torch.testing.assert_close(in_blocks(model, tokens, 10)[0], whole, atol=1e-10, rtol=0)
    assert build("gaa_lm_tiny", "--max-span", "24").reach == 24


@pytest.mark.parametrize("arch", ["transformer_lm_full", "longformer_lm"])
def test_a_model_without_memory_keeps_none(arch):
    model = build(f"{arch}_tiny")
    assert (model.memory_length, model(text(2, 20))[1]) == (0, {"memory": None})


@pytest.mark.parametrize("shared", [False, True])
def test_trimming_to_the_spans_changes_nothing(shared, monkeypatch):
    """Keys beyond a layer's largest span are not computed with; where they are, all is the same."""
    model, tokens = build("gaa_lm_tiny" if shared else "adaptive_span_lm_tiny", "--max-span", "300"), text(2, 400)
    with torch.no_grad():
        model.decoder.spans.z[0].copy_(torch.tensor([0.0, 0.1, 0.05, 0.0]))
        model.decoder.spans.z[1].copy_(torch.tensor([0.3, 0.2, 0.0, 0.55]))
        if shared:
            model.decoder.spans.shared.fill_(0.01)

    def run():
        loss, memory = 0.0, None
        for block in tokens.split(100, dim=1):
            logits, extra = model(block, memory=memory)
            memory, loss = extra["memory"], loss + logits.pow(2).mean() + extra["span_loss"]
        return gradients(model, loss), [x.size(1) for x in memory]

    trimmed, lengths = run()
    assert lengths == [128, 256]
    monkeypatch.setattr(AdaptiveSpans, "reaches", lambda self, spans: [self.max_span] * len(spans))
    masked, lengths = run()
    assert lengths == [300, 300]
    torch.testing.assert_close(trimmed, masked, atol=1e-10, rtol=0)
    assert all((trimmed[f"decoder.spans.z.{layer}"] != 0).all() for layer in (0, 1))


def test_a_span_that_grows_finds_its_keys_in_the_memory():
    """Training keeps 64 positions more than the spans reach, as the published code; a wider span then sees them."""
    model, tokens = build("adaptive_span_lm_tiny", "--max-span", "300"), text(2, 400)

    def logits_after(span):
        outputs, memory = [], None
        for number, block in enumerate(tokens.split(200, dim=1)):
            for z in model.decoder.spans.z:
                torch.nn.init.constant_(z, span if number == 0 else 0.25)  # 75 and the ramp of 8: 128 keys
            logits, extra = model(block, memory=memory)
            memory = extra["memory"]
            outputs.append(logits)
        return outputs[1], [x.size(1) for x in memory]

    # one layer's memory does not depend on the spans: its inputs are the embeddings
    model.decoder.layers = model.decoder.layers[:1]
    model.decoder.spans.z = model.decoder.spans.z[:1]
    (grown, lengths), (wide, _) = logits_after(0.1), logits_after(0.25)
    assert lengths == [192]
    torch.testing.assert_close(grown, wide, atol=1e-12, rtol=0)
    with torch.no_grad():
        assert [x.size(1) for x in model(tokens)[1]["memory"]] == [128], "spans do not grow in evaluation"


def test_spans_and_their_loss_are_reported():
    model = build("gaa_lm_tiny", "--max-span", "100", "--span-loss", "0.25")
    with torch.no_grad():
        model.decoder.spans.z[0].copy_(torch.tensor([0.0, 0.5, 0.0, 0.5]))
        model.decoder.spans.z[1].copy_(torch.tensor([1.0, 1.0, 0.0, 0.0]))
        model.decoder.spans.shared.fill_(0.2)
    extra = model(text(1, 8))[1]
    expected = torch.tensor([[20.0, 60, 20, 60], [100, 100, 20, 20]], dtype=torch.float64)
    torch.testing.assert_close(extra["spans"], expected)
    torch.testing.assert_close(extra["average_span"], torch.tensor(50.0, dtype=torch.float64))
    torch.testing.assert_close(extra["span_loss"].detach(), torch.tensor(0.25 * (40 + 60), dtype=torch.float64))


def train(model, distance, updates=160):
    """Learn to repeat the byte ``distance`` back in texts of four letters; the loss in nats, and the spans."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    model.float().train()
    for update in range(updates):
        model.set_num_updates(update)
        tokens = torch.randint(4, 8, (8, 48), generator=generator)
        logits, extra = model(tokens)
        loss = F.cross_entropy(logits[:, distance:].flatten(0, 1), tokens[:, :-distance].flatten())
        optimizer.zero_grad()
        (loss + extra["span_loss"]).backward()
        optimizer.step()
    return loss.item(), extra["spans"]


@pytest.mark.full
def test_spans_shrink_but_for_the_head_that_needs_one():
    flags = ("--max-span", "40", "--span-ramp", "4", "--span-loss", "0.001", "--decoder-embed-dim", "32")
    flags += ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0")
    model = build("gaa_lm_tiny", *flags, seed=1)
    for z in model.decoder.spans.z:
        torch.nn.init.constant_(z, 0.7)
    torch.nn.init.zeros_(model.decoder.spans.shared)
    loss, spans = train(model, distance=20)
    assert loss < 0.2
    assert spans.max() + 4 >= 20
    assert spans.median() < 10
    assert spans.mean() < 14 == 0.7 * 40 / 2


def fairseq_optimizer(name, parameters):
    """As its trainer has it; ``fp16`` is adam on float32 copies of the parameters."""
    flags = ["--fp16", "--fp16-init-scale", "4"] if name == "fp16" else []
    flags += ["--optimizer", "adam" if name == "fp16" else name, "--lr", "0.05"]
    cfg = convert_namespace_to_omegaconf(parse("transformer_lm_full_tiny", *flags))
    if cfg.common.fp16:
        return FP16Optimizer.build_optimizer(cfg, parameters)
    return build_optimizer(cfg.optimizer, parameters)


@pytest.mark.parametrize("mode_changes", [True, False])
@pytest.mark.parametrize(
    "optimizer", ["adam", "fp16", *(pytest.param(name, marks=pytest.mark.full) for name in ("fused_adamw", "adagrad"))]
)
def test_what_is_kept_without_gradients_is_not_of_an_older_update(optimizer, mode_changes):
    model, tokens = build("transformer_lm_full_tiny", "--dropout", "0", "--activation-dropout", "0"), text(2, 20)
    model = model.half() if optimizer == "fp16" else model.float()
    optimizer = fairseq_optimizer(optimizer, list(model.parameters()))
    for _ in range(2):
        if mode_changes:
            model.train()
        optimizer.backward(model(tokens)[0].float().pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        if mode_changes:
            model.eval()
        with torch.no_grad():
            logits, _ = model(tokens)
        tolerance = 1e-3 if logits.dtype == torch.half else 0
        torch.testing.assert_close(logits, model(tokens)[0].detach(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite(arch, dtype):
    model, memory = build(f"{arch}_tiny", "--dropout", "0.1").to(dtype).train(), None
    for _ in range(2):
        logits, extra = model(text(2, 50), memory=memory)
        memory = extra["memory"]
    loss = F.cross_entropy(logits.float().flatten(0, 1), text(2, 50).flatten()) + extra.get("span_loss", 0.0)
    for name, gradient in gradients(model, loss).items():
        assert gradient.dtype == dtype
        assert torch.isfinite(gradient).all(), name


@pytest.mark.parametrize("arch", ["longformer_lm", "gaa_lm"])
def test_checkpointed_activations_change_no_gradient(arch):
    flags = ("--dropout", "0.2", "--attention-dropout", "0.2", "--activation-dropout", "0.2")
    results = []
    for more in ((), ("--checkpoint-activations",)):
        model = build(f"{arch}_tiny", *flags, *more).train()
        torch.manual_seed(3)
        memory = model(text(2, 30))[1]["memory"]
        logits, extra = model(text(2, 30), memory=memory)
        results.append(gradients(model, logits.pow(2).sum() + extra.get("span_loss", 0.0)))
    torch.testing.assert_close(*results)


@pytest.mark.full
@pytest.mark.parametrize(
    ("arch", "millions"),
    [
        *(("transformer_xl_lm", 41), ("longformer_lm_small", 41), ("longformer_lm_large", 102)),
        *(("adaptive_span_lm", 39), ("gaa_lm", 51), ("adaptive_span_lm_large", 209), ("transformer_xl_lm_large", 277)),
    ],
)
def test_papers_sizes(arch, millions):
    assert arch in ARCH_MODEL_REGISTRY
    with torch.device("meta"):
        model = as_parsed(arch)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.03)


@pytest.mark.full
@pytest.mark.parametrize(("size", "layers"), [("small", 12), ("large", 30)])
def test_longformers_windows(size, layers):
    """Tables 4 and 12: 32 to 512 with a mean of 230, 512 to 8,192 in the last stage; two heads dilated by 2 to 4."""
    with torch.device("meta"):
        models = [as_parsed(f"longformer_lm_{size}", "--window-scale", scale) for scale in ("1", "16")]
    stage_1, stage_5 = (model.decoder.windows for model in models)
    taps = [window.left for window in stage_1]
    assert (len(taps), taps[0], taps[-1]) == (layers, 32, 512)
    assert taps == sorted(taps)
    assert sum(taps) / layers == pytest.approx(230, rel=0.02)
    assert [window.left for window in stage_5] == [16 * number for number in taps]
    sixth = layers // 6
    steps = [1] * 3 * sixth + [2] * sixth + [3] * sixth + [4] * sixth
    assert [window.head_dilations(8) for window in stage_1] == [(1,) * 6 + (step,) * 2 for step in steps]


def evaluate(arch, same_length, farthest):
    return lambda: build(f"{arch}_tiny").evaluate_as_transformer_xl(same_length=same_length, farthest=farthest)


def flags(*words):
    return lambda: build("transformer_lm_full_tiny", *words)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (evaluate("longformer_lm", True, None), "without windows"),
        (evaluate("adaptive_span_lm", False, 3), "without windows"),
        (flags("--dilated-heads", "5"), "--dilated-heads must be"),
        (flags("--window-size", "3,4,5"), "--window-size has 3 values for 2 layers"),
        (flags("--window-scale", "2"), "--window-scale 2 needs --window-size"),
        (flags("--dilation", "4", "--window-size", "5"), "--dilation 4 needs --dilated-heads"),
        (
            flags(*S12, "--memory-length", "5"),
            "give --window-size none --dilation 1 --memory-length 0, or --max-span 0",
        ),
        (flags("--shared-span"), "--shared-span needs --max-span"),
        (flags("--span-loss", "3"), "--span-loss 3.0 needs --max-span"),
        (flags(*S12, "--span-loss", "-1"), "--span-loss must be 0 or more"),
        (flags("--decoder-embed-dim", "15", "--decoder-attention-heads", "3"), "--decoder-embed-dim must be even"),
        (flags("--relative-positions", "learned"), "--max-span; give both"),
        (flags("--relative-positions", "learned", *S12), "--share-position-biases is for"),
        (flags("--decoder-embed-dim", "18"), "--decoder-embed-dim must be a multiple"),
        (evaluate("transformer_lm_full", True, None), "--memory-length of 2 or more, got 0"),
        (evaluate("transformer_xl_lm", False, 0), "--clamp-distances must be 1 or more"),
        (lambda: build("longformer_lm_tiny")(text(1, 4), memory=[torch.zeros(1, 3, 16)]), "another model's"),
        (lambda: build("transformer_xl_lm_tiny").set_memory_length(-1), "must be 0 or more"),
        (lambda: build("gaa_lm_tiny", *S12).set_memory_length(10), "say how long its memory is"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()

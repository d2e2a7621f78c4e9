"""Attention of one encoder layer beside Hugging Face LED, FlexAttention, plain PyTorch and the multiply-adds.

    python benchmarks/attention.py [--length 4096] [--device cpu] [--dtype float32] [--passes forward both]
        [--parts levels layer keys disentangled] [--dim 768]

Needs torch alone; with transformers installed, LED's encoder self-attention is timed too, and with ``--parts
disentangled`` DeBERTa's. What does not give the expected output and gradients is not timed: Hugging Face's LED and
DeBERTa must equal this project's with the same weights, and unfold + SDPA, FlexAttention and every backend the
reference. On a CPU, where FlexAttention has no backward pass, ``--passes forward`` times it.

The column ``of limit`` is the time of a call's multiply-adds at the rate of a large product of matrices, measured in
the same run, over the call's own time. What is counted are pairs of a query and a key that see each other: n tokens
with windows of w on each side have n·(2w + 1) pairs, over pools ξ apart n·(2w/ξ + 1). A pair takes d multiply-adds in
each of two products forward (scores, output) and of five backward (scores again, and the gradients of weights, value,
query and key); a projection n·d² forward and twice that backward.

``--parts keys`` times layers whose queries see about 512 keys, the window of 512 beside them twice as many: windows,
heads dilated 1, 2 and 3, two levels, and one softmax over tokens and pools, at any ``--dim`` with heads of 64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from disentangled import HUGGING_FACE, WINDOWS, attention_of, deberta
from measure import DTYPES, Case, Result, add_arguments, clock, measure, must_agree, parse, print_header, print_table
from peers import flex_pooled, flex_window, unfold_attention
from torch import Tensor, nn

from fairseq_poolingformer.attention import GlobalTokens, Pooling, TwoLevelAttention, Window, band_attention, pool_keys

DIM, HEADS = 768, 12
WINDOW, POOLED_WINDOW, POOLING = Window(128), Window(512), Pooling(5, 4)
KEYS_OF_ONE, KEYS_OF_TWO = 2 * WINDOW.left + 1, 2 * POOLED_WINDOW.left // POOLING.stride + 1  # that a query sees
LED_WINDOW = 512
CALLS = {"cpu": 1, "cuda": 20}  # in a run: so many that a GPU does not wait for the host after each
LIMIT = {"cpu": (4096, DIM, 1)}  # rows and width of the product whose rate is the limit; products
LIMIT_OF_GPU = (8192, 8192, 20)
PRODUCTS = {"forward": 2, "both": 7}  # of queries × keys × head dim
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.01}  # of the largest number
PASSES = {"forward": "forward", "both": "forward + backward"}
PROJECTIONS = {"forward": 1, "both": 3}  # products of a projection


def led_attention(length: int, window: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """Hugging Face's encoder self-attention with one global token, and a way to call it on (B, T, C)."""
    from transformers import LEDConfig
    from transformers.models.led.modeling_led import LEDEncoderAttention

    config = LEDConfig(
        d_model=DIM,
        encoder_attention_heads=HEADS,
        attention_window=[2 * window],
        encoder_layers=1,
        max_encoder_position_embeddings=length,
        attention_dropout=0.0,
    )
    module = LEDEncoderAttention(config, layer_id=0)

    def call(x: Tensor) -> Tensor:
        is_global = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        is_global[:, 0] = True
        mask = torch.where(is_global, 10_000.0, 0.0).to(x.dtype)  # Hugging Face: positive is global
        masked = torch.zeros_like(is_global)
        return module(
            x, attention_mask=mask, is_index_masked=masked, is_index_global_attn=is_global, is_global_attn=True
        )[0]

    return module, call


def copy_led(source: nn.Module, target: TwoLevelAttention) -> None:
    """Hugging Face's weights into ours."""
    inner = source.longformer_self_attn
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    state = {}
    for ours, theirs in names.items():
        for prefix, suffix in (("", ""), ("global_", "_global")):
            linear = getattr(inner, theirs + suffix)
            state[f"{prefix}{ours}.weight"], state[f"{prefix}{ours}.bias"] = linear.weight, linear.bias
    state["out_proj.weight"], state["out_proj.bias"] = source.output.weight, source.output.bias
    target.load_state_dict(state)


def step(
    args: argparse.Namespace,
    passes: str,
    call: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    parameters: Iterable[Tensor] = (),
) -> Callable[[], None]:
    """A run: calls forward, or forward and backward with the gradients of inputs and parameters."""
    if passes == "both":
        inputs = [x.detach().requires_grad_() for x in inputs]
        grad = torch.ones_like(call(*inputs))
    wanted = [*inputs, *parameters]

    def once() -> None:
        if passes == "both":  # not backward(), which would also time the sum of the gradients of all calls
            torch.autograd.grad(call(*inputs), wanted, grad, allow_unused=True)
        else:
            with torch.no_grad():
                call(*inputs)

    def run() -> None:
        for _ in range(CALLS[args.device]):
            once()

    return run


@cache
def first_token(length: int, device: torch.device) -> GlobalTokens:
    """The first token of a row as its global one, made once, as the layers of a model share it."""
    return GlobalTokens(torch.arange(length, device=device)[None] < 1)


def level_one(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    """Level one on (B, H, T, D), with further arguments of the operator."""
    return band_attention(query, key, value, window=WINDOW, **arguments)


def level_two(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    """Level two with mean pooling, pooling included."""
    pooled_keys, _ = pool_keys(key, POOLING)
    pooled_values, _ = pool_keys(value, POOLING)
    return band_attention(query, pooled_keys, pooled_values, window=POOLED_WINDOW, pooling=POOLING, **arguments)


def level_one_with_global_token(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    return level_one(query, key, value, global_mask=first_token(key.size(2), key.device), **arguments)


def both_levels(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    return level_one(query, key, value, **arguments) + level_two(query, key, value, **arguments)


FLEX = ", FlexAttention"  # ends the name of a row with the same windows, by PyTorch's compiler
CHECKED = {
    "level one": level_one,
    "level one, one global token": level_one_with_global_token,
    "level two, mean": level_two,
    "both levels": both_levels,
}
FLEX_OPERATORS = {
    "level one": partial(flex_window, window=WINDOW),
    "level one, one global token": partial(flex_window, window=WINDOW, global_token=True),
    "level two, mean": partial(flex_pooled, window=POOLED_WINDOW, pooling=POOLING),
}
OPERATORS = {
    "unfold + SDPA": partial(unfold_attention, window=WINDOW.left),
    "full attention, SDPA": partial(band_attention, window=Window.unlimited(), backend="sdpa"),
    **CHECKED,
    "level one, dropout 0.1": partial(level_one, dropout_p=0.1),
    **{name + FLEX: call for name, call in FLEX_OPERATORS.items()},
}
ONE_SOFTMAX = {"pool_merge": "softmax"}
POOLINGFORMER = {"window": WINDOW, "pooled_window": POOLED_WINDOW, "pooling": POOLING}
EQUAL_KEYS = {
    "window of 256": {"window": Window(256)},
    "window of 512": {"window": Window(512)},
    "heads dilated 1, 2, 3": {"window": Window(256, dilation=(1, 2, 3))},  # a third of the heads each
    "two levels": POOLINGFORMER,
    "two levels, shared projections": POOLINGFORMER | {"mix": True, "share_weights": True},
    "one softmax, pools of 4": {
        **ONE_SOFTMAX,
        "window": WINDOW,
        "pooled_window": POOLED_WINDOW,
        "pooling": Pooling(4, 4),
    },
    "one softmax, pools of 16": {
        **ONE_SOFTMAX,
        "window": WINDOW,
        "pooled_window": Window(2048),
        "pooling": Pooling(16, 16),
    },
}
LAYERS = {
    "LED here": {"window": Window(LED_WINDOW), "separate_global_projections": True},
    "Poolingformer": POOLINGFORMER,
    "full attention": {"window": Window.unlimited(), "backend": "sdpa"},
}


def operator(args: argparse.Namespace, passes: str, name: str) -> Callable[[], None]:
    """A case: an operator on queries, keys and values as a projection gives them, (T, B, C) in memory."""
    shape = (args.length, 1, HEADS, DIM // HEADS)
    dtype = getattr(torch, args.dtype)
    inputs = [torch.randn(shape, device=args.device, dtype=dtype).permute(1, 2, 0, 3) for _ in range(3)]
    return step(args, passes, OPERATORS[name], inputs)


def layer(args: argparse.Namespace, passes: str, name: str) -> Callable[[], None]:
    """A case: a whole self-attention of an encoder layer, projections included."""
    torch.manual_seed(0)
    module, call = banded(args.length, **LAYERS[name]) if name in LAYERS else led_attention(args.length, LED_WINDOW)
    dtype = getattr(torch, args.dtype)
    module.to(args.device, dtype)
    x = torch.randn(1, args.length, DIM, device=args.device, dtype=dtype)
    return step(args, passes, call, [x], module.parameters())


def of_equal_keys(args: argparse.Namespace, passes: str, name: str) -> Callable[[], None]:
    """A case: one of :data:`EQUAL_KEYS`, projections included."""
    torch.manual_seed(0)
    module, call = banded(args.length, dim=args.dim, **EQUAL_KEYS[name])
    dtype = getattr(torch, args.dtype)
    module.to(args.device, dtype)
    x = torch.randn(1, args.length, args.dim, device=args.device, dtype=dtype)
    return step(args, passes, call, [x], module.parameters())


def disentangled(args: argparse.Namespace, passes: str, name: str) -> Callable[[], None]:
    """A case: DeBERTa's self-attention, or level one with its scores."""
    dtype = getattr(torch, args.dtype)
    module = deberta(DIM, HEADS).to(args.device, dtype)
    x = torch.randn(1, args.length, DIM, device=args.device, dtype=dtype)
    return step(args, passes, attention_of(module, name), [x], module.parameters())


def banded(length: int, dim: int = DIM, **arguments: Any) -> tuple[TwoLevelAttention, Callable[[Tensor], Tensor]]:
    """This project's attention, with one global token unless it is full, and a way to call it on (B, T, C)."""
    window, heads = arguments["window"], dim * HEADS // DIM
    if isinstance(window.dilation, tuple):  # as many neighbouring heads of each, the last ones of the last
        steps = window.dilation
        dilation = tuple(steps[head * len(steps) // heads] for head in range(heads))
        arguments["window"] = Window(window.left, dilation=dilation)
    module = TwoLevelAttention(dim, heads, **arguments)
    is_full = module.window == Window.unlimited()

    def call(x: Tensor) -> Tensor:
        return module(x, global_mask=None if is_full else first_token(length, x.device))

    return module, call


def matmul_rate(args: argparse.Namespace) -> Callable[[], float]:
    """A case: multiply-adds a second in a large product of the timed dtype, the best of five."""

    def rate() -> float:
        rows, width, count = LIMIT.get(args.device, LIMIT_OF_GPU)
        x = torch.randn(rows, width, device=args.device, dtype=getattr(torch, args.dtype))
        weight = torch.randn(width, width, device=args.device, dtype=x.dtype)
        times = []
        for _ in range(6):
            start = clock(args.device)
            for _ in range(count):
                x @ weight
            times.append(clock(args.device) - start)
        return count * rows * width * width / min(times[1:])

    return rate


def multiply_adds(args: argparse.Namespace, passes: str) -> dict[str, float]:
    """Multiply-adds of each row, for pairs that see each other; without global tokens."""
    pair = args.length * DIM * PRODUCTS[passes]
    project = args.length * DIM * DIM * PROJECTIONS[passes]
    one, two = pair * KEYS_OF_ONE, pair * KEYS_OF_TWO
    led = pair * (2 * LED_WINDOW + 1) + 6 * project  # the global queries' projection has few rows
    pooled = one + two + 5 * project + 2 * project / POOLING.stride
    counts = {name: one for name in OPERATORS if name.startswith("level one")}
    counts |= {"unfold + SDPA": one, "full attention, SDPA": pair * args.length}
    counts |= {"LED of Hugging Face": led, "LED here": led, "full attention": pair * args.length + 4 * project}
    counts |= {"level two, mean": two, "level two, mean" + FLEX: two, "both levels": one + two, "Poolingformer": pooled}
    pair, project = pair * args.dim // DIM, args.length * args.dim**2 * PROJECTIONS[passes]
    for name, layer in EQUAL_KEYS.items():
        counts[name] = pair * (2 * layer["window"].left + 1) + 4 * project
        if "pooling" in layer:
            counts[name] += pair * (2 * layer["pooled_window"].left // layer["pooling"].stride)
            has_own = not {"pool_merge", "share_weights"} & layer.keys()
            counts[name] += has_own * (project + 2 * project / layer["pooling"].stride)
    return counts


def results_of(call: Callable[..., Tensor], *inputs: Tensor, gradients: bool = True) -> dict[str, Tensor]:
    """Output and gradients of a call, in float32."""
    leaves = [x.detach().requires_grad_(gradients) for x in inputs]
    out = call(*leaves)
    results = {"output": out.float()}
    if gradients:
        grad = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out).to(out.dtype)
        grads = torch.autograd.grad(out, leaves, grad)
        results |= {f"gradient {n}": x.float() for n, x in enumerate(grads)}
    return results


def must_agree_in_all(name: str, actual: dict[str, Tensor], expected: dict[str, Tensor], dtype: str) -> None:
    """Refuse to time a case with other results; differences are relative to the size of the expected ones."""
    for what, x in actual.items():
        size = expected[what].abs().max()
        must_agree(f"{name}, {what}", x / size, expected[what] / size, TOLERANCES[dtype])


def is_timed(args: argparse.Namespace, passes: str, name: str) -> bool:
    """Whether a row of ours or of PyTorch's is timed, at this length and on this device."""
    if name.endswith(FLEX):
        return args.device == "cuda" or passes == "forward"
    if name.startswith("full attention"):
        return args.length <= args.longest_dense
    return name != "unfold + SDPA" or args.length % WINDOW.left == 0


def check(args: argparse.Namespace) -> None:
    """Check that the timed cases agree with the reference, outputs and gradients, over 1,024 tokens in the timed dtype.

    Hugging Face's LED agrees with this project's, and unfold + SDPA with level one, in float32.
    """
    torch.manual_seed(0)
    length, dtype = 2 * LED_WINDOW, getattr(torch, args.dtype)
    inputs = [torch.randn(1, 2, length, 64, device=args.device) for _ in range(3)]
    expected = results_of(partial(level_one, backend="reference"), *inputs)
    must_agree_in_all("unfold + SDPA", results_of(OPERATORS["unfold + SDPA"], *inputs), expected, "float32")
    for name, call in CHECKED.items():
        expected = results_of(partial(call, backend="reference"), *inputs)
        must_agree_in_all(name, results_of(call, *(x.to(dtype) for x in inputs)), expected, args.dtype)
        if name in FLEX_OPERATORS and (args.device == "cuda" or "forward" in args.passes):
            flex = FLEX_OPERATORS[name]
            actual = results_of(flex, *(x.to(dtype) for x in inputs), gradients=args.device == "cuda")
            must_agree_in_all(name + FLEX, actual, expected, args.dtype)
    x = torch.randn(1, length, DIM, device=args.device)
    for name, arguments in (LAYERS | EQUAL_KEYS).items():
        reference, call_reference = banded(length, **{**arguments, "backend": "reference"})
        module, call = banded(length, **arguments)
        module.load_state_dict(reference.to(args.device).state_dict())
        module.to(args.device, dtype)
        must_agree_in_all(name, results_of(call, x.to(dtype)), results_of(call_reference, x), args.dtype)
    if find_spec("transformers") is not None:
        theirs, call_theirs = led_attention(length, LED_WINDOW)
        module, call = banded(length, **LAYERS["LED here"])
        copy_led(theirs.to(args.device), module.to(args.device))
        must_agree_in_all("LED of Hugging Face", results_of(call_theirs, x), results_of(call, x), "float32")
        module = deberta(DIM, HEADS).to(args.device)
        theirs, ours = (attention_of(module, name) for name in (HUGGING_FACE, "DeBERTa here"))
        must_agree_in_all(HUGGING_FACE, results_of(theirs, x), results_of(ours, x), "float32")


def report(
    title: str,
    build: Callable[..., Callable[[], None]],
    names: Iterable[str],
    passes: str,
    args: argparse.Namespace,
    rate: float | None = None,
) -> None:
    """Measure rows, the peer first, and print their table; with a rate of multiply-adds, beside that limit."""
    calls = CALLS[args.device]
    results = measure([Case(name, partial(build, args, passes, name), calls) for name in names], args)
    counts = multiply_adds(args, passes)
    print(f"\n{title}, {PASSES[passes]}", end="")

    def of_limit(result: Result) -> str:
        return f"{counts[result.name] / rate / result.median:.2f}"

    print_table(results, tokens=args.length, columns={"of limit": of_limit} if rate else {})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--length", type=int, default=4096, help="tokens (default: %(default)s)")
    add("--longest-dense", type=int, default=8192, help="no full attention above this (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES)
    add("--passes", nargs="+", default=["both"], choices=tuple(PASSES), help="tables to print (default: both passes)")
    parts = ("levels", "layer", "keys", "disentangled")
    add("--dim", type=int, default=DIM, help="width of the layers of --parts keys (default: %(default)s)")
    add("--parts", nargs="+", default=parts[:2], choices=parts, help="(default: %(default)s)")
    add_arguments(result, repeats=5)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    args = parse(parser(), arguments)
    if "disentangled" in args.parts and find_spec("transformers") is None:
        raise SystemExit("--parts disentangled times Hugging Face's DeBERTa: pip install transformers")
    torch.set_num_threads(args.threads)
    check(args)
    print_header(args, f"{args.length} tokens, d {DIM}, {HEADS} heads, {args.dtype}, batch 1")
    rate = measure([Case("product of matrices", partial(matmul_rate, args))], args)[0].value
    rows, width, _ = LIMIT.get(args.device, LIMIT_OF_GPU)
    print(f"a product of {rows} × {width} by {width} × {width}: {2 * rate / 1e9:.0f} GFLOP/s")
    for passes in args.passes:
        timed = partial(is_timed, args, passes)
        if "levels" in args.parts:
            report("operators, w1 128, w2 512, κ 5, ξ 4", operator, filter(timed, OPERATORS), passes, args, rate)
        if "layer" in args.parts:
            peers = ["LED of Hugging Face"] if find_spec("transformers") and args.length % (2 * LED_WINDOW) == 0 else []
            names = [*peers, *filter(timed, LAYERS)]
            report(
                "self-attention of an encoder layer, LED's window 512 on each side", layer, names, passes, args, rate
            )
        if "keys" in args.parts:
            report(f"self-attention of a layer, d {args.dim}", of_equal_keys, EQUAL_KEYS, passes, args, rate)
        if "disentangled" in args.parts:
            names = [HUGGING_FACE, *WINDOWS] if args.length <= args.longest_dense else [*WINDOWS][1:]
            report("DeBERTa's self-attention, k 512, and level one's, w1 128", disentangled, names, passes, args)


if __name__ == "__main__":
    main()

"""Attention of one encoder layer, forward and backward, beside Hugging Face LED, plain PyTorch and the multiply-adds.

    python benchmarks/attention.py [--length 4096] [--device cpu] [--dtype float32] [--parts levels layer disentangled]

Needs torch alone; with transformers installed, LED's encoder self-attention is timed too, and with ``--parts
disentangled`` DeBERTa's. What does not give the expected output and gradients is not timed: Hugging Face's LED and
DeBERTa must equal this project's with the same weights, unfold + SDPA level one, and every backend the reference. The
column ``of limit`` is the time of a call's multiply-adds at the rate of a large product of matrices, measured in the
same run, over the call's own time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from disentangled import HUGGING_FACE, WINDOWS, attention_of, deberta
from measure import DTYPES, Case, Result, add_arguments, clock, measure, must_agree, parse, print_header, print_table
from torch import Tensor, nn

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, band_attention, pool_keys

DIM, HEADS = 768, 12
WINDOW, POOLED_WINDOW, POOLING = Window(128), Window(512), Pooling(5, 4)
LED_WINDOW = 512
ROWS = 4096  # of the product whose rate is the limit
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.01}  # of the largest number
PRODUCTS = 7  # of queries × keys × head dim: two forward, five backward, the scores again among them


def unfold_attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Sliding-window attention as it is written without kernels: unfolded copies of the keys, then SDPA.

    Args:
        query, key, value: (B, H, T, D), T a multiple of the window.
        window: tokens on each side, and the size of a block of queries.
    """
    batch, heads, length, head_dim = query.shape
    blocks = length // window

    def unfolded(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, window, window))
        return padded.unfold(2, 3 * window, window).transpose(-1, -2)  # (B, H, blocks, 3·window, D)

    distance = torch.arange(3 * window, device=query.device) - window
    distance = distance[None, :] - torch.arange(window, device=query.device)[:, None]
    position = torch.arange(blocks, device=query.device)[:, None] * window - window
    position = position + torch.arange(3 * window, device=query.device)
    inside = (position >= 0) & (position < length)
    mask = (distance.abs() <= window)[None] & inside[:, None]
    out = F.scaled_dot_product_attention(
        query.view(batch, heads, blocks, window, head_dim), unfolded(key), unfolded(value), attn_mask=mask
    )
    return out.reshape(query.shape)


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


def step(call: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], None]:
    """Forward and backward of a call, gradients of inputs and parameters included."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    grad = torch.ones_like(call(*leaves))

    def run() -> None:
        call(*leaves).backward(grad)

    return run


def level_one(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    return band_attention(query, key, value, window=WINDOW, **arguments)


def level_one_with_global_token(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    is_global = torch.arange(key.size(2), device=key.device)[None] < 1
    return level_one(query, key, value, global_mask=is_global, **arguments)


def level_two(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    pooled_keys, _ = pool_keys(key, POOLING)
    pooled_values, _ = pool_keys(value, POOLING)
    return band_attention(query, pooled_keys, pooled_values, window=POOLED_WINDOW, pooling=POOLING, **arguments)


def both_levels(query: Tensor, key: Tensor, value: Tensor, **arguments: Any) -> Tensor:
    return level_one(query, key, value, **arguments) + level_two(query, key, value, **arguments)


OPERATORS = {
    "unfold + SDPA": partial(unfold_attention, window=WINDOW.left),
    "full attention, SDPA": F.scaled_dot_product_attention,
    "level one": level_one,
    "level one, one global token": level_one_with_global_token,
    "level one, dropout 0.1": partial(level_one, dropout_p=0.1),
    "level two, mean": level_two,
    "both levels": both_levels,
}
LAYERS = {
    "LED here": {"window": Window(LED_WINDOW), "separate_global_projections": True},
    "Poolingformer": {"window": WINDOW, "pooled_window": POOLED_WINDOW, "pooling": POOLING},
}


def operator(args: argparse.Namespace, name: str) -> Callable[[], None]:
    """A case: an operator on queries, keys and values as a projection gives them, (T, B, C) in memory."""
    shape = (args.length, 1, HEADS, DIM // HEADS)
    dtype = getattr(torch, args.dtype)
    inputs = (torch.randn(shape, device=args.device, dtype=dtype).permute(1, 2, 0, 3) for _ in range(3))
    return step(OPERATORS[name], *inputs)


def layer(args: argparse.Namespace, name: str) -> Callable[[], None]:
    """A case: a whole self-attention of an encoder layer, projections included."""
    torch.manual_seed(0)
    module, call = banded(args.length, **LAYERS[name]) if name in LAYERS else led_attention(args.length, LED_WINDOW)
    dtype = getattr(torch, args.dtype)
    module.to(args.device, dtype)
    return step(call, torch.randn(1, args.length, DIM, device=args.device, dtype=dtype))


def disentangled(args: argparse.Namespace, name: str) -> Callable[[], None]:
    """A case: DeBERTa's self-attention, or level one with its scores."""
    dtype = getattr(torch, args.dtype)
    module = deberta(DIM, HEADS).to(args.device, dtype)
    return step(attention_of(module, name), torch.randn(1, args.length, DIM, device=args.device, dtype=dtype))


def banded(length: int, **arguments: Any) -> tuple[TwoLevelAttention, Callable[[Tensor], Tensor]]:
    """This project's attention with one global token, and a way to call it on (B, T, C)."""
    module = TwoLevelAttention(DIM, HEADS, **arguments)

    def call(x: Tensor) -> Tensor:
        return module(x, global_mask=torch.arange(length, device=x.device)[None] < 1)

    return module, call


def matmul_rate(args: argparse.Namespace) -> Callable[[], float]:
    """A case: multiply-adds a second in a product as large as a projection, the best of five."""
    dtype = getattr(torch, args.dtype)
    x = torch.randn(ROWS, DIM, device=args.device, dtype=dtype)
    weight = torch.randn(DIM, DIM, device=args.device, dtype=dtype)
    count = 1 if args.device == "cpu" else 100

    def run() -> float:
        times = []
        for _ in range(6):
            start = clock(args.device)
            for _ in range(count):
                x @ weight
            times.append(clock(args.device) - start)
        return count * x.size(0) * DIM * DIM / min(times[1:])

    return run


def multiply_adds(args: argparse.Namespace) -> dict[str, float]:
    """Multiply-adds of each row, forward and backward, for pairs that see each other; without global tokens."""
    pair = args.length * DIM * PRODUCTS
    project = 3 * args.length * DIM * DIM  # forward, and the gradients of input and weight
    one, two = pair * (2 * WINDOW.left + 1), pair * (2 * POOLED_WINDOW.left // POOLING.stride + 1)
    led = pair * (2 * LED_WINDOW + 1) + 6 * project  # the global queries' projection has few rows
    pooled = 5 * project + 2 * project / POOLING.stride
    counts = dict.fromkeys((name for name in OPERATORS if name.startswith("level one")), one)
    counts |= {"unfold + SDPA": one, "level two, mean": two, "both levels": one + two}
    counts |= {"full attention, SDPA": pair * args.length}
    return counts | {"LED of Hugging Face": led, "LED here": led, "Poolingformer": one + two + pooled}


def passes(call: Callable[..., Tensor], *inputs: Tensor) -> dict[str, Tensor]:
    """Output and gradients of a call, in float32."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = call(*leaves)
    grad = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out).to(out.dtype)
    grads = torch.autograd.grad(out, leaves, grad)
    return {"output": out.float(), **{f"gradient {n}": x.float() for n, x in enumerate(grads)}}


def must_agree_in_both_passes(name: str, actual: dict[str, Tensor], expected: dict[str, Tensor], dtype: str) -> None:
    """Refuse to time a case with other results; differences are relative to the size of the expected ones."""
    for what, x in expected.items():
        size = x.abs().max()
        must_agree(f"{name}, {what}", actual[what] / size, x / size, TOLERANCES[dtype])


def check(args: argparse.Namespace) -> None:
    """Check that the timed cases agree with the reference, outputs and gradients, over 1,024 tokens in the timed dtype.

    Hugging Face's LED agrees with this project's, and unfold + SDPA with level one, in float32.

    Raises:
        SystemExit: it does not.
    """
    torch.manual_seed(0)
    length, dtype = 2 * LED_WINDOW, getattr(torch, args.dtype)
    inputs = [torch.randn(1, 2, length, 64, device=args.device) for _ in range(3)]
    expected = passes(partial(level_one, backend="reference"), *inputs)
    must_agree_in_both_passes("unfold + SDPA", passes(OPERATORS["unfold + SDPA"], *inputs), expected, "float32")
    for name in ("level one", "level one, one global token", "level two, mean", "both levels"):
        expected = passes(partial(OPERATORS[name], backend="reference"), *inputs)
        actual = passes(OPERATORS[name], *(x.to(dtype) for x in inputs))
        must_agree_in_both_passes(name, actual, expected, args.dtype)
    x = torch.randn(1, length, DIM, device=args.device)
    for name, settings in LAYERS.items():
        reference, call_reference = banded(length, **settings, backend="reference")
        module, call = banded(length, **settings)
        module.load_state_dict(reference.to(args.device).state_dict())
        module.to(args.device, dtype)
        must_agree_in_both_passes(name, passes(call, x.to(dtype)), passes(call_reference, x), args.dtype)
    if find_spec("transformers") is not None:
        theirs, call_theirs = led_attention(length, LED_WINDOW)
        module, call = banded(length, **LAYERS["LED here"])
        copy_led(theirs.to(args.device), module.to(args.device))
        must_agree_in_both_passes("LED of Hugging Face", passes(call_theirs, x), passes(call, x), "float32")
        module = deberta(DIM, HEADS).to(args.device)
        theirs, ours = (attention_of(module, name) for name in (HUGGING_FACE, "DeBERTa here"))
        must_agree_in_both_passes(HUGGING_FACE, passes(theirs, x), passes(ours, x), "float32")


def report(title: str, cases: list[Case], args: argparse.Namespace, limits: dict[str, float] | None = None) -> None:
    """Measure cases, the peer first, and print their table; ``limits`` are the seconds of each at the matmul rate."""
    results = measure(cases, args)
    print(f"\n{title}", end="")

    def of_limit(result: Result) -> str:
        return f"{limits[result.name] / result.median:.2f}"

    print_table(results, tokens=args.length, columns={"of limit": of_limit} if limits else {})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--length", type=int, default=4096, help="tokens (default: %(default)s)")
    add("--longest-dense", type=int, default=8192, help="no full attention above this (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES)
    parts = ("levels", "layer", "disentangled")
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
    print_header(args, f"{args.length} tokens, d {DIM}, {HEADS} heads, {args.dtype}; forward + backward, batch 1")
    rate = measure([Case("product of matrices", partial(matmul_rate, args))], args)[0].value
    print(f"a product of {ROWS} × {DIM} by {DIM} × {DIM}: {2 * rate / 1e9:.0f} GFLOP/s")
    limits = {name: count / rate for name, count in multiply_adds(args).items()}
    if "levels" in args.parts:
        names = [name for name in OPERATORS if name != "unfold + SDPA" or args.length % WINDOW.left == 0]
        names = [name for name in names if name != "full attention, SDPA" or args.length <= args.longest_dense]
        cases = [Case(name, partial(operator, args, name)) for name in names]
        report("operators, w1 128, w2 512, κ 5, ξ 4", cases, args, limits)
    if "layer" in args.parts:
        peers = ["LED of Hugging Face"] if find_spec("transformers") and args.length % (2 * LED_WINDOW) == 0 else []
        cases = [Case(name, partial(layer, args, name)) for name in (*peers, *LAYERS)]
        report("self-attention of an encoder layer, LED's window 512 on each side", cases, args, limits)
    if "disentangled" in args.parts:
        names = [HUGGING_FACE, *WINDOWS] if args.length <= args.longest_dense else [*WINDOWS][1:]
        cases = [Case(name, partial(disentangled, args, name)) for name in names]
        report("DeBERTa's self-attention, k 512, and level one with its scores, w1 128", cases, args)


if __name__ == "__main__":
    main()

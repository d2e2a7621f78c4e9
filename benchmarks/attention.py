"""Attention of one encoder layer, forward and backward: Poolingformer beside Hugging Face LED and plain PyTorch.

    python benchmarks/attention.py [--length 4096] [--device cpu] [--dtype float32] [--repeats 5]

Needs torch alone; with transformers installed, LED's encoder self-attention is timed too. What does not give the
expected output is not timed: LED must equal this project's LED with the same weights, unfold + SDPA must equal the
window alone. On a CPU the time is that of the process on all its threads, on a GPU that of the wall after
synchronizing.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, band_attention

DIM, HEADS = 768, 12


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


def led_attention(length: int, window: int) -> tuple[torch.nn.Module, Callable[[Tensor], Tensor]]:
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


def copy_led(source: torch.nn.Module, target: TwoLevelAttention) -> None:
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


def must_agree(name: str, actual: Tensor, expected: Tensor) -> None:
    """Refuse to time what computes something else."""
    error = (actual - expected).abs().max().item()
    tolerance = 1e-4 if actual.dtype == torch.float32 else 0.05
    if not error < tolerance:
        raise SystemExit(f"{name}: differs by {error:.2g} from what it must equal; nothing is timed")


def seconds(run: Callable[[], object], repeats: int, device: str) -> tuple[float, float, float]:
    """Median, least and greatest time of ``run`` after one run that is not counted."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = []
    for repeat in range(repeats + 1):
        if device != "cpu":
            torch.cuda.synchronize()
        start = clock()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        if repeat:
            times.append(clock() - start)
    return statistics.median(times), min(times), max(times)


def step(call: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], None]:
    """Forward and backward of a call, gradients of inputs and parameters included."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    grad = torch.ones_like(call(*leaves))

    def run() -> None:
        call(*leaves).backward(grad)

    return run


def operators(args: argparse.Namespace, window: int) -> dict[str, Callable[[], None]]:
    """Level one alone, without projections."""
    shape = (1, HEADS, args.length, DIM // HEADS)
    q, k, v = (torch.randn(shape, device=args.device, dtype=args.dtype) for _ in range(3))
    runs = {"window alone": lambda q, k, v: band_attention(q, k, v, window=Window(window))}
    if args.length % window == 0:
        runs["unfold + SDPA"] = lambda q, k, v: unfold_attention(q, k, v, window)
        must_agree("unfold + SDPA", runs["unfold + SDPA"](q, k, v), runs["window alone"](q, k, v))
    if args.length <= args.longest_dense:
        runs["full attention, SDPA"] = F.scaled_dot_product_attention
    return {name: step(run, q, k, v) for name, run in runs.items()}


def layers(args: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Whole self-attentions of an encoder layer, projections included."""
    x = torch.randn(1, args.length, DIM, device=args.device, dtype=args.dtype)
    global_mask = torch.arange(args.length, device=args.device)[None] < 1

    def build(**arguments) -> TwoLevelAttention:
        return TwoLevelAttention(DIM, HEADS, **arguments).to(args.device, args.dtype)

    two_levels = build(window=Window(128), pooled_window=Window(512), pooling=Pooling(5, 4))
    led = build(window=Window(512), separate_global_projections=True)
    modules = {"Poolingformer, w1 128, w2 512, κ 5, ξ 4": two_levels, "LED here, window 512": led}
    runs = {
        name: step(lambda x, module=module: module(x, global_mask=global_mask), x) for name, module in modules.items()
    }
    if find_spec("transformers") is not None and args.length % 1024 == 0:
        theirs, call = led_attention(args.length, 512)
        theirs.to(args.device, args.dtype)
        copy_led(theirs, led)
        must_agree("Hugging Face LED", call(x), led(x, global_mask=global_mask))
        runs["LED of Hugging Face, window 512"] = step(call, x)
    return runs


def report(title: str, runs: dict[str, Callable[[], None]], args: argparse.Namespace) -> None:
    """Time them in turn and print a table; ratios are to the first."""
    print(f"\n{title}")
    first = None
    for name, run in runs.items():
        median, least, greatest = seconds(run, args.repeats, args.device)
        first = first or median
        times = f"{1e3 * median:9.1f} ms  [{1e3 * least:.1f}, {1e3 * greatest:.1f}]"
        print(f"  {name:<42} {times}  {median / first:6.2f} ×")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--length", type=int, default=4096, help="tokens (default: %(default)s)")
    add("--longest-dense", type=int, default=8192, help="no full attention above this (default: %(default)s)")
    add("--device", default="cpu")
    add("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    add("--repeats", type=int, default=5)
    add("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    args.dtype = getattr(torch, args.dtype)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    device = torch.cuda.get_device_name() if args.device != "cpu" else platform.processor() or platform.machine()
    print(
        f"{device}, {args.threads} threads, torch {torch.__version__}, {args.dtype}, {args.length} tokens, "
        f"d {DIM}, {HEADS} heads; forward + backward, median of {args.repeats} [least, greatest], "
        f"{'process CPU time' if args.device == 'cpu' else 'wall time'}"
    )
    report("the operator, one-sided window 128", operators(args, 128), args)
    report("self-attention of an encoder layer", layers(args), args)


if __name__ == "__main__":
    main()

"""Launches of each kind of layer, forward and backward, where the masks of the batch are known; and synchronizations.

    python benchmarks/gpu/count.py [--layers NAME …] [--lines]

Counts are of two heads and C = 32; they do not depend on sizes.
"""

from __future__ import annotations

import argparse
import collections
import functools
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import fakegpu
import layers
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# operators without a kernel: views, and memory that nothing writes
VIEWS = {
    *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "select", "slice"),
    *("unfold", "split", "unbind", "as_strided", "detach", "alias", "split_with_sizes", "_reshape_alias"),
    *("lift_fresh", "unsafe_split", "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"),
    *("resize_", "_has_same_storage_numel"),
}
# kernels of an operator on CUDA that has several
KERNELS = {
    **dict.fromkeys(("masked_fill", "constant_pad_nd", "unfold_backward", "select_backward", "slice_backward"), 2),
    **{"native_layer_norm_backward": 2, "index_select_backward": 2, "nonzero": 3},
    "_scaled_dot_product_flash_attention_for_cpu_backward": 3,
}
INDEX_PUT = ("index_put_", "index_put", "_index_put_impl_", "_unsafe_index_put")
ACCUMULATING_INDEX_PUT = 8
SYNCHRONIZING = {"nonzero", "_local_scalar_dense", "is_nonzero", "item", "equal"}
TO_THE_HOST = ("tolist", "cpu", "numpy", "to")  # methods of tensors, the last one with "cpu"


class Count(TorchDispatchMode):
    """The launches of a ``with`` block: Triton's, and those of PyTorch's operators on CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self.by_line: collections.Counter[tuple[str, str]] = collections.Counter()
        self.synchronizations: list[str] = []

    def __enter__(self) -> Any:
        self.triton = -fakegpu.triton_launches()
        for name in TO_THE_HOST:
            setattr(Tensor, name, self._waiting(getattr(Tensor, name)))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name in TO_THE_HOST:
            setattr(Tensor, name, getattr(Tensor, name).__wrapped__)
        self.triton += fakegpu.triton_launches()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.split("::")[1]
        if name in VIEWS:
            return result
        accumulates = name in INDEX_PUT and (args[3:4] or [(kwargs or {}).get("accumulate", False)])[0]
        self.by_line[_line(), name] += ACCUMULATING_INDEX_PUT if accumulates else KERNELS.get(name, 1)
        if name in SYNCHRONIZING:
            self.synchronizations.append(f"{name}, {_line()}")
        return result

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that waits for a GPU, and calls no operator on a CPU."""

        @functools.wraps(method)
        def counted(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if method.__name__ != "to" or "cpu" in (*args, *kwargs.values()):
                self.synchronizations.append(f"{method.__name__}, {_line()}")
            return method(x, *args, **kwargs)

        return counted

    @property
    def total(self) -> int:
        return self.triton + sum(self.by_line.values())


def _line() -> str:
    """The line of the project, or the autograd node, that an operator runs for."""
    for frame in reversed(traceback.extract_stack(limit=60)):
        if "fairseq_poolingformer/" in frame.filename:
            return f"{frame.filename.split('fairseq_poolingformer/')[-1]}:{frame.lineno} {frame.name}"
    node = torch._C._current_autograd_node()
    return "?" if node is None else type(node).__name__


def passes(module: nn.Module, x: Tensor, **arguments: Any) -> tuple[Count, Count]:
    """The counts of a layer's forward and backward pass, after two that compile kernels and derive from masks."""
    for _ in range(2):
        module(x, **arguments).sum().backward()
    with Count() as forward:
        out = module(x, **arguments)
    grad = torch.ones_like(out)
    module.zero_grad()
    x.grad = None
    with Count() as backward:
        out.backward(grad)  # not grad(), which recomputed layers refuse
    return forward, backward


def report(title: str, counts: tuple[Count, Count], with_lines: bool) -> None:
    cells = "".join(f"{count.triton:16d}{count.total:6d}" for count in counts)
    synchronizations = [place for count in counts for place in count.synchronizations]
    print(f"{title}{cells}{sum(count.total for count in counts):8d}  {synchronizations or 0}", flush=True)
    for count in counts if with_lines else ():
        for (line, operator), launches in count.by_line.items():
            print(f"    {launches:3d} {operator:40s} {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", default=[layers.ORDINARY, *layers.LAYERS], metavar="NAME")
    parser.add_argument("--length", type=int, default=16384, help="tokens")
    parser.add_argument("--lines", action="store_true", help="PyTorch's operators by line of the project")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'layer':34s}{'global':>7s}{'padding':>8s}  forward: Triton, all  backward: Triton, all   both  waits")
    for name in options.layers:
        for with_global, with_padding in ((False, False), (True, False), (True, True)):
            torch.manual_seed(0)
            masks = layers.masks_of(options.length, with_global=with_global, with_padding=with_padding)
            x = torch.randn(1, options.length, 32, requires_grad=True)
            counts = passes(layers.build(name, 32, 2), x, masks=masks)
            report(f"{name:34s}{with_global:7d}{with_padding:8d}", counts, options.lines)


if __name__ == "__main__":
    main()

"""The host's milliseconds, launches and waits of a training step of BART, beside fairseq's own BART.

    python benchmarks/gpu/whole.py [--layers N] [--recompute] [--models NAME …]

It needs fairseq. A step is forward, label-smoothed loss and backward of two padded documents. Times are CPU time of one
thread, the least of many steps of models that take turns. Tensors are tiny, so that PyTorch's products take no time.
"""

from __future__ import annotations

import argparse
import gc
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import count
import encoder
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models.bart import BARTModel
from torch import Tensor

from fairseq_poolingformer.models.bart import PoolingformerBART

STOCK = "fairseq's BART"
MODELS: dict[str, dict[str, Any]] = {
    STOCK: {},
    "windows": {"pooled_layers": "none"},
    "LED": {"pooled_layers": "none", "separate_global_projections": True},
    "two levels in half the layers": {"pooled_layers": "half"},
    "two levels": {"pooled_layers": "all"},
    "one softmax in half the layers": {"pooled_layers": "half", "pool_merge": "softmax", "pool_kernel_size": 4},
}
SOURCE, TARGET, WORDS = 32, 16, 30


def step_of(name: str, num_layers: int, recompute: bool) -> Callable[[], None]:
    """A training step of the model, its dropout on."""
    layers = {"all": f"0-{num_layers - 1}", "half": f"{num_layers // 2}-{num_layers - 1}", "none": "none"}
    options = {"encoder_layers": num_layers, "decoder_layers": num_layers}
    options |= {"window_size": "4", "pooled_window_size": "16"}
    options |= MODELS[name] | {"pooled_layers": layers[MODELS[name].get("pooled_layers", "none")]}
    dictionary = Dictionary()
    for word in range(WORDS):
        dictionary.add_symbol(str(word))
    task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    kind = BARTModel if name == STOCK else PoolingformerBART
    model = kind.build_model(encoder.flags(recompute, **options), task).train()
    loss_of = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)

    source, target = (torch.randint(4, 4 + WORDS, (2, length)) for length in (SOURCE, TARGET))
    source[0, -9:] = target[0, -3:] = dictionary.pad()
    inputs = {"src_tokens": source, "src_lengths": (source != dictionary.pad()).sum(1), "prev_output_tokens": target}
    batch = {"net_input": inputs, "target": target, "ntokens": 2 * TARGET - 3, "nsentences": 2}

    def step() -> None:
        model.zero_grad()
        loss_of(model, batch)[0].backward()

    return step


def without_dropout(*args: Any, attention: Any = F.scaled_dot_product_attention, **kwargs: Any) -> Tensor:
    """PyTorch's attention without its dropout, for which a CPU has no kernel."""
    return attention(*args[:4], **{**kwargs, "dropout_p": 0.0})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6, help="of the encoder, and of the decoder")
    parser.add_argument("--recompute", action="store_true", help="activations, as --checkpoint-activations does")
    parser.add_argument("--models", nargs="+", choices=list(MODELS)[1:], default=list(MODELS)[1:], metavar="NAME")
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each model")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    encoder.as_on_a_gpu()
    F.scaled_dot_product_attention = without_dropout
    steps = {name: step_of(name, options.layers, options.recompute) for name in (STOCK, *options.models)}
    counts = {}
    for name, step in steps.items():
        step()
        step()
        with count.Count() as counts[name]:
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    gc.disable()
    for _ in range(options.steps):
        for name, step in steps.items():
            start = time.thread_time()
            step()
            times[name].append(time.thread_time() - start)
    print(f"{'model':32s}launches: Triton, all  waits   host ms  × {STOCK}")
    for name, of_step in counts.items():
        least, stock = min(times[name]) * 1e3, min(times[STOCK]) * 1e3
        waits = len(of_step.synchronizations)
        print(f"{name:32s}{of_step.triton:16d}{of_step.total:5d}{waits:7d}{least:10.1f}{least / stock:18.2f}")


if __name__ == "__main__":
    main()

"""Which tokens reach which in a model of transformers', layer by layer and by gradients: :func:`who_sees_whom`."""

from __future__ import annotations

import copy
import inspect
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fairseq_poolingformer.huggingface.encoders import TwoLevelModel
from fairseq_poolingformer.huggingface.short_models import longest_input


def who_sees_whom(
    model: PreTrainedModel, lengths: tuple[int, ...] | None = None
) -> tuple[list[tuple[int, int]], list[str]]:
    """Find which tokens reach which in an encoder or decoder of transformers', and what is wrong there.

    A token does not see another one where the gradient of its output with regard to the other one's input to the same
    layer is zero. A copy of the model in double precision computes it, so that no small weight is rounded to zero.

    Args:
        model: with or without a head; of a model with a decoder the encoder is looked at.
        lengths: of the texts in tokens; None for a few, of which the longest shows both ends of the windows.

    Returns:
        How many tokens each layer sees on the left and on the right in the longest text, and a sentence for each
        finding: windows that are not what the configuration says, padding and other documents of a row that are seen.
    """
    base = model.base_model
    base = copy.deepcopy(base.get_encoder() if base.config.is_encoder_decoder else base).double().eval()
    lists = [x for x in base.modules() if isinstance(x, nn.ModuleList)]
    lists = [x for x in lists if any("atten" in type(part).__name__.lower() for part in x.modules())]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of layers with an attention: give another model")
    config, layers = base.config.get_text_config(), max(lists, key=len)
    flags = [[getattr(part, "is_causal", None) for part in layer.modules()] for layer in layers]
    causal = [next((flag for flag in of_layer if isinstance(flag, bool)), False) for of_layer in flags]
    says = [_said(config, number, is_causal) for number, is_causal in enumerate(causal)]
    widest = max((left for left, _ in filter(None, says) if left < inf), default=0)
    most = longest_input(base)
    if lengths and max(lengths) > most:
        raise ValueError(f"a text of {max(lengths)} tokens: the model takes {most}; give smaller lengths")
    found: dict[str, list[int]] = {}  # sentence -> layers
    for length in sorted(lengths or {min(length, most) for length in (9, widest + 3, 2 * widest + 17)}):
        queries, quarter, half = [0, length // 2, length - 1], -(-length // 4), -(-length // 2)
        tokens = torch.randint(config.vocab_size // 2, config.vocab_size, (1, length), device=base.device)
        distance, reaches = torch.tensor(queries)[:, None] - torch.arange(length), []
        for number, seen in enumerate(_seen(base, layers, queries, input_ids=tokens)):
            reaches.append(_reach(distance, seen))
            left, right = says[number] or (inf, inf)
            expected = (distance <= left) & (-distance <= right)
            if says[number] is None or torch.equal(seen, expected):
                continue
            what = "{} tokens on the left, {} on the right".format(*reaches[-1])
            if left < length - 1 and reaches[-1] in ((length - 1, 0), (length - 1, length - 1)):
                what = "the whole text is seen"
            elif reaches[-1] == _reach(distance, expected):
                query, key = (seen != expected).nonzero()[0].tolist()
                what = f"of {length} tokens {queries[query]} does not see {key}"
            sides = f"{left}" if left == right else f"{left} on the left, {right} on the right"
            found.setdefault(f"{what}; the configuration says {sides.replace('inf', 'all')}", []).append(number)
        probes = {}  # the finding -> tokens that shall see none of others, and the inputs
        pads = (("right", [0, -1 - quarter], slice(length - quarter, None)), ("left", [quarter, -1], slice(quarter)))
        for side, real, padded in pads[: 1 if isinstance(base, TwoLevelModel) else 2]:  # whose layers have it right
            mask = torch.ones_like(tokens)
            mask[:, padded] = 0
            probes[f"padding on the {side} is seen"] = real, padded, {"attention_mask": mask}
        if all(causal) and "position_ids" in inspect.signature(base.forward).parameters:
            packed = {"position_ids": torch.arange(length, device=base.device)[None] % half, "use_cache": False}
            probes["a packed document sees the one before it"] = [half, length - 1], slice(half), packed
        for sentence, (tokens_at, hidden, given) in probes.items() if length > 3 else ():
            for number, seen in enumerate(_seen(base, layers, tokens_at, input_ids=tokens, **given)):
                if seen[:, hidden].any():
                    found.setdefault(sentence, []).append(number)
    named = [(", ".join(map(str, sorted(set(numbers)))), sentence) for sentence, numbers in found.items()]
    return reaches, [f"layer{'s' * (',' in numbers)} {numbers}: {sentence}" for numbers, sentence in named]


def _said(config: Any, number: int, causal: bool) -> tuple[float, float] | None:
    """How many tokens on each side a layer shall see, as transformers counts them; None where that is no window."""
    window, types = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    kind = types[number] if types else "full_attention" if window is None else "sliding_attention"
    others = ("window_size", "attention_window", "attention_chunk_size")
    if any(getattr(config, name, None) for name in others) or not kind.startswith(("full_", "sliding_")):
        return None
    if window is None or kind.startswith("full_") or not getattr(config, "use_sliding_window", True):
        return inf, 0 if causal else inf
    side = window - (causal or bool(getattr(config, "use_bidirectional_attention", False)))
    return side, 0 if causal else side


def _seen(model: nn.Module, layers: nn.ModuleList, queries: list[int], **inputs: Any) -> list[Tensor]:
    """For each layer whether its output at some tokens depends on its input at each token, (queries, T) bool."""
    sources, hooks, results = [], [], []

    def cut(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        sources.append((args[0] if args else kwargs["hidden_states"]).detach().requires_grad_())
        return ((sources[-1], *args[1:]), kwargs) if args else ((), kwargs | {"hidden_states": sources[-1]})

    for layer in layers:
        hooks.append(layer.register_forward_pre_hook(cut, with_kwargs=True))
        hooks.append(layer.register_forward_hook(lambda layer, args, out: results.append(out)))
    try:
        with torch.enable_grad():
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for source, result in zip(sources, results, strict=True):
        output = (result if isinstance(result, Tensor) else result[0])[0, queries]
        totals = (output * torch.randn_like(output)).sum(-1)
        gradients = [torch.autograd.grad(total, source, retain_graph=True)[0][0] for total in totals]
        found.append(torch.stack(gradients).ne(0).any(-1).cpu())
    return found


def _reach(distance: Tensor, seen: Tensor) -> tuple[int, int]:
    return int(distance[seen].max()), int(-distance[seen].min())

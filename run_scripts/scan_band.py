"""``band`` beside ``sdpa`` (or ``eager``) in every model type of transformers with windows, tiny, with random weights.

    python run_scripts/scan_band.py [TYPE ...] [--write] [--seconds 240]

A type has four layers, of alternating types, and windows of 1, 2, 5 and 40 tokens. Compared are outputs for padding on
the left, on the right, in holes and none, gradients, 250 tokens, a prompt in chunks, packed rows, ``logits_to_keep``
and a cache of a fixed length. A type is

- *equal* where all that ``band`` did not refuse is equal, and a window ran;
- *refused* where ``band`` does not compute a text at once;
- *different*, or *no window*, where that is not so;
- *not built* where this script cannot make a tiny one, or run it with transformers' own attention.

``--write`` writes the equal types to the table of types that ``band`` accepts; with TYPEs it changes these alone. The
status is 1 where a type of the table is not equal now.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import multiprocessing
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from fairseq_poolingformer import band
from fairseq_poolingformer.choices import UNLIMITED

LENGTH, WINDOWS, LONG = 24, (5, 1, 2, 40), 250
LAYERS, LARGEST = 4, 10_000_000  # of each model; parameters
REFUSAL = "attn_implementation='band'"
# the first pattern that a setting's whole name matches says its value
SIZES = {
    r".*(sliding_window|window_size|local_attention|attention_chunk_size)": None,  # the window that is tried
    r".*image_size": 32,
    r".*patch_size": 8,
    r".*(pad|bos|eos|cls|sep|mask|unk|decoder_start|forced_\w+)_token_id": 0,
    r".*token_(id|index|ids)|.*_id": 98,
    r".*vocab_size.*": 99,
    r".*(max_position|max_source|max_target|n_positions|n_ctx|max_seq|max_length).*": 256,
    r".*(num_key_value|kv)_heads.*|.*num_kv_heads|.*multi_query_group_num": 2,
    r".*(num_|n_|n)?(attention_heads|attn_heads|heads|head|num_heads)": 4,
    r".*(experts_per_tok|top_?k|topk_group|n_group|moe_k|num_shared_experts|n_shared_experts)": 1,
    r".*(num|n)_(\w+_)?experts|.*num_local_experts|moe_num_experts": 4,
    r".*first_k_dense.*": 1,
    r"qk_head_dim": 16,
    r".*(num|n)_?(\w+_)?(layers?|blocks)|.*_layers|depth": LAYERS,
    r".*(rope_head_dim|nope_head_dim|v_head_dim|head_dim|d_kv|head_size|attention_head_size|kv_channels)": 8,
    r".*(lora_rank|_rank|dt_rank)": 8,
    r".*(ffn|ff|intermediate|inner|mlp|feedforward|expand_dim).*(dim|size)?|d_ff": 48,
    r".*(hidden|embedding|embed|model|n_embd|projection|emb).*(size|dim|width)?|d_model|n_embd|dim": 32,
}


class _Everything:
    """A table of all model types: those that are not verified yet are what is scanned."""

    def __contains__(self, _: object) -> bool:
        return True


@dataclass
class Calls:
    """The calls of ``band`` by a model."""

    masked: int = 0  # windows that took the place of a mask
    ran: int = 0  # calls of the operator with a window
    biased: int = 0  # layers with a bias, n × n itself, beside which windows go to sdpa

    def record(self) -> None:
        """Put this between transformers and ``band``, for types that no table has."""
        band.VERIFIED = _Everything()
        attention = band.band_attention

        def window_mask(*arguments: Any, **keywords: Any) -> Any:
            mask = band.window_mask(*arguments, **keywords)
            self.masked += isinstance(mask, band.WindowMask) and mask.window.left < UNLIMITED
            return mask

        def band_attention(*tensors: Tensor, **keywords: Any) -> Any:
            self.ran += keywords["window"].left < UNLIMITED
            return attention(*tensors, **keywords)

        def forward(*arguments: Any, **keywords: Any) -> Any:
            self.biased += keywords.get("position_bias") is not None
            return band.band_attention_forward(*arguments, **keywords)

        band.band_attention = band_attention
        transformers.AttentionInterface.register(band.NAME, forward)
        transformers.AttentionMaskInterface.register(band.NAME, window_mask)


def tiny(config_class: type, window: int) -> transformers.PreTrainedConfig:
    """The configuration with its defaults, but small; ``window`` stands where it has one."""
    default = config_class()
    settings = {}
    for name, value in default.to_dict().items():
        if name in config_class.sub_configs:
            part = getattr(default, name)
            settings[name] = None if part is None else tiny(type(part), window)
        elif name == "layer_types" and value:
            kinds = sorted(set(value), reverse=True)
            if kinds == ["full_attention"] and {"sliding_window", "use_sliding_window"} & set(default.to_dict()):
                kinds = ["sliding_attention", "full_attention"]
            settings[name] = [kinds[layer % len(kinds)] for layer in range(max(LAYERS, len(kinds)))]
        elif isinstance(value, dict) and "mrope_section" in value:
            settings[name] = {**value, "mrope_section": [2, 1, 1]}  # half of head_dim
        elif value is None and name in ("head_dim", "num_key_value_heads", "sliding_window"):
            settings[name] = {"head_dim": 8, "num_key_value_heads": 4, "sliding_window": window}[name]
        elif isinstance(value, int) and not isinstance(value, bool):
            for pattern, size in SIZES.items():
                if re.fullmatch(pattern, name):
                    settings[name] = window if size is None else size if size > 90 else min(size, value)
                    break
    values = default.to_dict()
    for name in [name for name in settings if re.fullmatch(r".*(key_value|kv)_heads", name)]:
        heads = next((other for other in ("num_attention_heads", "n_heads") if other in settings), name)
        settings[name] = settings[heads] if values[name] == values[heads] else settings[name]
    if "layer_types" in settings:
        settings["num_hidden_layers"] = len(settings["layer_types"])
    if hasattr(default, "num_kv_shared_layers"):
        settings["num_kv_shared_layers"] = 2
    if hasattr(default, "use_sliding_window"):
        settings.update(use_sliding_window=True, max_window_layers=0)
    return config_class(**settings)


def build(model_class: type, config: transformers.PreTrainedConfig, implementation: str) -> nn.Module:
    """The model; the same weights, none of them zero, for every implementation."""
    torch.manual_seed(0)
    config = type(config).from_dict(config.to_dict())
    config._experts_implementation = "eager"  # the others multiply in 32 bits at most
    model = model_class._from_config(config, attn_implementation=implementation).double().eval()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
    return model


def takes(model: nn.Module, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


def tokens_of(length: int) -> Tensor:
    return torch.randint(3, 90, (2, length), generator=torch.Generator().manual_seed(2))


def mask_of(padding: str) -> Tensor | None:
    """(2, LENGTH); the second row has none, where the first has some."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    hidden = {"left": [*range(7)], "right": [*range(LENGTH - 7, LENGTH)], "holes": [4, 5, 6, 11]}.get(padding)
    if hidden is None:
        return None
    mask[0, hidden] = 0
    return mask


def inputs_of(model: nn.Module, length: int, mask: Tensor | None) -> dict[str, Any]:
    """Random tokens and the mask."""
    inputs = {"input_ids": tokens_of(length), "attention_mask": mask}
    if takes(model, "decoder_attention_mask"):
        inputs.update(decoder_input_ids=inputs["input_ids"], decoder_attention_mask=mask)
    return inputs


def numbers(output: Any, mask: Tensor | None = None) -> list[Tensor]:
    """All numbers of an output, for real tokens."""
    states = [x for name, x in output.items() if isinstance(x, Tensor) and x.is_floating_point() and "loss" not in name]
    if mask is None:
        return states
    return [x[mask.bool()] for x in states if x.shape[:2] == mask.shape] or states


def plain(model: nn.Module, padding: str, length: int = LENGTH) -> list[Tensor]:
    mask = mask_of(padding)
    with torch.no_grad():
        return numbers(model(**inputs_of(model, length, mask)), mask)


def gradients(model: nn.Module, padding: str, length: int = LENGTH) -> list[Tensor]:
    model.zero_grad(set_to_none=True)
    mask = mask_of(padding)
    sum(x.square().mean() for x in numbers(model(**inputs_of(model, length, mask)), mask)).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def in_chunks(model: nn.Module, padding: str) -> list[Tensor]:
    """A prompt that a cache grows with; real tokens of the last chunks, which see the others."""
    name = "cache" if takes(model, "cache") else "past_key_values"
    tokens, mask, parts, cache = tokens_of(LENGTH), mask_of(padding), [], None
    with torch.no_grad():
        for first, end in ((0, 3), (3, 14), (14, 15), (15, LENGTH)):
            seen = None if mask is None else mask[:, :end]
            output = model(tokens[:, first:end], attention_mask=seen, use_cache=True, **{name: cache})
            cache = output[name]
            parts += numbers(output, None if mask is None else mask[:, first:end])
    return parts


def in_a_static_cache(model: nn.Module) -> list[Tensor]:
    """A prompt in two parts, the second of several tokens, in more places than it has tokens."""
    name = "cache" if takes(model, "cache") else "past_key_values"
    cache = transformers.StaticCache(config=model.config, max_cache_len=LENGTH + 8)
    tokens = tokens_of(LENGTH)
    with torch.no_grad():
        parts = [model(part, use_cache=True, **{name: cache}) for part in (tokens[:, :14], tokens[:, 14:])]
    return [x for part in parts for x in numbers(part)]


def packed(model: nn.Module) -> list[Tensor]:
    positions = torch.cat([torch.arange(length) for length in (7, 1, 5, LENGTH - 13)])
    positions = torch.stack([positions, torch.arange(LENGTH)])
    return numbers(model(tokens_of(LENGTH), position_ids=positions, use_cache=False))


def last_logits(model: nn.Module) -> list[Tensor]:
    with torch.no_grad():
        return numbers(model(tokens_of(LENGTH), logits_to_keep=3, use_cache=True))


def checks(model: nn.Module, window: int) -> dict[str, Callable]:
    """The comparisons with this window."""
    paddings = ("none", "left", "right", "holes") if window == WINDOWS[0] else ("none", "holes")
    comparisons: dict[str, Callable] = {f"padding {padding}": partial(plain, padding=padding) for padding in paddings}
    if window == WINDOWS[-1]:
        comparisons[f"{LONG} tokens"] = partial(gradients, padding="none", length=LONG)
    if takes(model, "logits_to_keep") and window in (WINDOWS[0], WINDOWS[-1]):
        comparisons["logits_to_keep"] = last_logits
    if window != WINDOWS[0]:
        return comparisons
    comparisons["gradients"] = partial(gradients, padding="holes")
    if takes(model, "position_ids"):
        comparisons["packed rows"] = packed
    if takes(model, "use_cache") and not takes(model, "decoder_input_ids"):
        comparisons["chunks"] = partial(in_chunks, padding="none")
        comparisons["padded chunks"] = partial(in_chunks, padding="holes")
        comparisons["static cache"] = in_a_static_cache
    return comparisons


def class_of(config_class: type) -> type | None:
    """The causal language model, or the model without a head; of a part of a model, its class in the same file."""
    for mapping in (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_MAPPING):
        if config_class in mapping:
            classes = mapping[config_class]
            return classes[0] if isinstance(classes, tuple) else classes
    module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    classes = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, transformers.PreTrainedModel)]
    own = [x for x in classes if x.config_class is config_class and "PreTrained" not in x.__name__]
    return own[0] if own else None


def difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest, relative to the largest number; NaN where a number is finite in ``expected`` alone."""
    worst = 0.0
    if [x.shape for x in actual] != [x.shape for x in expected]:
        return float("nan")
    largest = max((x[x.isfinite()].abs().max().item() for x in expected if x.isfinite().any()), default=1.0)
    for ours, theirs in zip(actual, expected, strict=True):
        finite = theirs.isfinite()
        if not ours[finite].isfinite().all():
            return float("nan")
        if finite.any():
            worst = max(worst, (ours - theirs)[finite].abs().max().item() / largest)
    return worst


@dataclass
class Result:
    """The result for a model type, and why."""

    kind: str
    why: str


def compared(name: str) -> Result:
    """The result for a type."""
    config_class = transformers.CONFIG_MAPPING[name]
    if not any(map(band.WINDOW_SETTING.search, config_class().to_dict())):
        return Result("without windows", "no setting has one")
    model_class = class_of(config_class)
    if model_class is None:
        return Result("not built", "no model has this configuration")
    calls, done, refused = Calls(), [], {}
    calls.record()
    own_name = "sdpa" if model_class._supports_sdpa else "eager"
    limit = 1e-9 if own_name == "sdpa" else 1e-4
    for window in WINDOWS:
        config = tiny(config_class, window)
        with torch.device("meta"):
            size = sum(x.numel() for x in model_class._from_config(config, attn_implementation=own_name).parameters())
        if size > LARGEST:
            return Result("not built", f"{size:,} parameters")
        own, ours = (build(model_class, config, implementation) for implementation in (own_name, "band"))
        for check, run in checks(own, window).items():
            label = f"window {window}, {check}"
            try:
                expected = run(own)
            except Exception:
                if not (done or refused):
                    raise
                continue  # which transformers' own attention cannot do
            try:
                off = difference(run(ours), expected)
            except Exception as error:
                text = " ".join(str(error).split())
                if REFUSAL not in text:
                    return Result("foreign words", f"{label}: {type(error).__name__}: {text}")
                refused[label] = text
                continue
            if not off <= limit:
                return Result("different", f"{label}: {off:.1e} beside {own_name}")
            done.append(label)
    notes = "; ".join(f"refused for {label}: {text}" for label, text in refused.items())
    if not done or any("padding" in label for label in refused):
        return Result("refused", notes)
    if not (calls.masked and (calls.ran or calls.biased)):
        return Result("no window", f"none ran; {notes}")
    return Result("equal", "; ".join(filter(None, [own_name, notes])))


def run(name: str, pipe: multiprocessing.connection.Connection) -> None:
    """Send the result for a type; this is a process of its own."""
    try:
        result = compared(name)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        result = Result("not built", f"{why} ({Path(where.filename).name}:{where.lineno})")
    pipe.send(result)


def write(results: dict[str, Result], everything: bool) -> None:
    """Write the table of ``band``."""
    table = json.loads(band.TABLE.read_text(encoding="utf-8"))
    equal = {name for name, result in results.items() if result.kind == "equal"}
    types = equal | (set() if everything else set(table["types"]) - set(results))
    versions = {transformers.__version__} | set(() if everything else table["transformers"])
    table = {"transformers": sorted(versions), "types": sorted(types)}
    band.TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--write", action="store_true", help="write the table of verified types")
    parser.add_argument("--seconds", type=float, default=240, help="for a type")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    results = {}
    fork = multiprocessing.get_context("fork")
    for name in options.types or sorted(transformers.CONFIG_MAPPING):
        mine, theirs = fork.Pipe()
        child = fork.Process(target=run, args=(name, theirs))
        child.start()
        theirs.close()
        try:
            results[name] = mine.recv() if mine.poll(options.seconds) else Result("not built", "too slow")
        except EOFError:
            results[name] = Result("not built", "the process ended")
        child.kill()
        child.join()
        result = results[name]
        if result.kind != "without windows":
            print(name, result.kind, result.why, sep=" | ", flush=True)
    counts = Counter(result.kind for result in results.values())
    print(f"transformers {transformers.__version__}:", ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    known = json.loads(band.TABLE.read_text(encoding="utf-8"))["types"]
    faults = [name for name in known if name in results and results[name].kind != "equal"]
    if options.write:
        write(results, everything=not options.types)
    print("\n".join(f"{name}: {results[name].kind}" for name in faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

"""Every type of model that transformers has, tiny and with random weights: ``band`` beside ``sdpa`` or ``eager``.

    python run_scripts/scan_band.py [TYPE ...] [--table FILE] [--seconds 120]

A type is *equal* where windows of 1 to more than the text, and padding on the left, on the right, in holes and none
give the same outputs; *refused* where ``band`` says in one sentence that it does not compute it; *not built* where this
script cannot make or run a tiny one with transformers' own attention. Anything else is a fault, and the status is 1.
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
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

import fairseq_poolingformer.huggingface.band  # noqa: F401 - registers the name

LENGTH, WINDOWS = 24, (1, 2, 5, 40)
REFUSAL = "attn_implementation='band'"
# the first pattern that a setting's whole name matches says its value
SIZES = {
    r".*(sliding_window|window_size|local_attention)": None,  # the window that is tried
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
    r".*(num|n)_?(\w+_)?(layers?|blocks)|.*_layers|depth": 2,
    r".*(rope_head_dim|nope_head_dim|v_head_dim|head_dim|d_kv|head_size|attention_head_size|kv_channels)": 8,
    r".*(lora_rank|_rank|dt_rank)": 8,
    r".*(ffn|ff|intermediate|inner|mlp|feedforward|expand_dim).*(dim|size)?|d_ff": 48,
    r".*(hidden|embedding|embed|model|n_embd|projection|emb).*(size|dim|width)?|d_model|n_embd|dim": 32,
}


def tiny(config_class: type, window: int) -> transformers.PreTrainedConfig:
    """The configuration with its defaults, but small; ``window`` stands where it has one."""
    default = config_class()
    settings = {}
    for name, value in default.to_dict().items():
        if name in config_class.sub_configs:
            part = getattr(default, name)
            settings[name] = None if part is None else tiny(type(part), window)
        elif name == "layer_types" and value:
            settings[name] = sorted(set(value)) if len(set(value)) > 1 else value[:2]
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
    if hasattr(default, "use_sliding_window"):
        settings.update(use_sliding_window=True, max_window_layers=0)
    return config_class(**settings)


def made(model_class: type, config: transformers.PreTrainedConfig, implementation: str) -> nn.Module:
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


def masks() -> dict[str, Tensor | None]:
    """The paddings; the second row has none, where the first has some."""
    found = {"none": None, **{name: torch.ones(2, LENGTH, dtype=torch.long) for name in ("left", "right", "holes")}}
    found["left"][0, :7] = found["right"][0, -7:] = found["holes"][0, 4:7] = found["holes"][0, 11] = 0
    return found


def outputs(model: nn.Module, mask: Tensor | None) -> list[Tensor]:
    """All numbers that the model gives for real tokens."""
    tokens = torch.randint(3, 90, (2, LENGTH), generator=torch.Generator().manual_seed(2))
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if "decoder_attention_mask" in inspect.signature(model.forward).parameters:
        inputs.update(decoder_input_ids=tokens, decoder_attention_mask=mask)
    with torch.no_grad():
        found = model(**inputs)
    states = [x for name, x in found.items() if isinstance(x, Tensor) and x.is_floating_point() and "loss" not in name]
    real = torch.ones(2, LENGTH, dtype=torch.bool) if mask is None else mask.bool()
    return [x[real] if x.shape[:2] == real.shape else x for x in states if x.shape[:2] == real.shape] or states


def class_of(config_class: type) -> type | None:
    """The model without a head; of a part of a larger model, which has no such entry, its class in the same file."""
    if config_class in transformers.MODEL_MAPPING:
        found = transformers.MODEL_MAPPING[config_class]
        return found[0] if isinstance(found, tuple) else found
    module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    classes = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, transformers.PreTrainedModel)]
    own = [x for x in classes if x.config_class is config_class and "PreTrained" not in x.__name__]
    return own[0] if own else None


def compared(name: str) -> tuple[str, str]:
    """What becomes of a type, and why."""
    config_class = transformers.CONFIG_MAPPING[name]
    model_class = class_of(config_class)
    if model_class is None or model_class.main_input_name != "input_ids":
        return "not built", "it takes no tokens"
    has_window = "window" in str(sorted(config_class().to_dict()))
    own_name = "sdpa" if model_class._supports_sdpa else "eager"
    for window in WINDOWS if has_window else WINDOWS[:1]:
        config = tiny(config_class, window)
        own = made(model_class, config, own_name)
        expected = {padding: outputs(own, mask) for padding, mask in masks().items()}
        try:
            ours = made(model_class, config, "band")
            for padding, mask in masks().items():
                for found, right in zip(outputs(ours, mask), expected[padding], strict=True):
                    both = right.isfinite() & found.isfinite()
                    off = ((found - right)[both].abs().max() / right[both].abs().max()).item()
                    limit = 1e-9 if own_name == "sdpa" else 1e-4
                    if not off <= limit or (right.isfinite() & ~found.isfinite()).any():
                        return "different", f"window {window}, padding {padding}: {off:.1e} beside {own_name}"
        except Exception as error:
            text = " ".join(str(error).split())
            return ("refused" if REFUSAL in text else "foreign words"), f"{type(error).__name__}: {text}"
    return "equal", own_name


def run(name: str, pipe: multiprocessing.connection.Connection) -> None:
    try:
        found = compared(name)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        found = "not built", f"{why} ({Path(where.filename).name}:{where.lineno})"
    pipe.send(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    found = {}
    fork = multiprocessing.get_context("fork")
    for name in options.types or sorted(CONFIG_MAPPING_NAMES):
        mine, theirs = fork.Pipe()
        child = fork.Process(target=run, args=(name, theirs))
        child.start()
        theirs.close()
        try:
            found[name] = mine.recv() if mine.poll(options.seconds) else ("not built", "too slow")
        except EOFError:
            found[name] = "not built", "the process ended"
        child.kill()
        child.join()
        print(name, *found[name], sep=" | ", flush=True)
    counts = Counter(kind for kind, _ in found.values())
    print(f"transformers {transformers.__version__}:", ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if options.table:
        options.table.write_text(json.dumps(found, indent=1))
    return int(bool(counts["different"] + counts["foreign words"]))


if __name__ == "__main__":
    sys.exit(main())

"""The demo model: a small pretrained model that comes with the package, for first steps without any download.

``fairseq_poolingformer/demo_model/`` has its weights (bfloat16), settings, dictionaries, tokenizer and card.
``run_scripts/demo_model/pretrain.py`` makes such a folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from safetensors.torch import load_file
from torch import Tensor

from fairseq_poolingformer.models.bart import PoolingformerBART
from fairseq_poolingformer.models.hub import PoolingformerHubInterface
from fairseq_poolingformer.text.atomic_write import atomic_write, write_lines
from fairseq_poolingformer.weights.files import save_safetensors, write_checkpoint

FOLDER = Path(__file__).resolve().parent.parent / "demo_model"
WEIGHTS, SETTINGS = "model.safetensors", "config.json"
TIED = {  # tied parameters: not stored -> the parameter that they share
    "decoder.embed_tokens.weight": "encoder.embed_tokens.weight",
    "decoder.output_projection.weight": "encoder.embed_tokens.weight",
}


def write_demo_model(folder: Path, settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write weights, in bfloat16, and settings."""
    weights = {name: value.to(torch.bfloat16).contiguous() for name, value in state.items() if name not in TIED}
    with atomic_write(folder / WEIGHTS) as path:
        save_safetensors(weights, path)
    write_lines(folder / SETTINGS, [json.dumps(dict(settings), indent=1)])


def write_demo_checkpoint(path: Path, folder: Path = FOLDER) -> None:
    """Write the demo model as a checkpoint for ``fairseq-train --finetune-from-model``, in float32."""
    state = {name: value.float() for name, value in load_file(folder / WEIGHTS).items()}
    for name, source in TIED.items():
        state[name] = state[source].clone()
    args = argparse.Namespace(**json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    ARCH_CONFIG_REGISTRY[args.arch](args)
    write_checkpoint(path, vars(args), state)


def load_demo_model() -> PoolingformerHubInterface:
    """The demo model for use in Python, as ``PoolingformerBART.from_pretrained`` returns models."""
    with tempfile.TemporaryDirectory() as temporary:
        write_demo_checkpoint(Path(temporary, "demo_model.pt"))
        return PoolingformerBART.from_pretrained(temporary, "demo_model.pt", str(FOLDER.resolve())).eval()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the demo model as a checkpoint that fairseq fine-tunes.")
    parser.add_argument("checkpoint", type=Path, help="the file to write")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of another demo model")
    args = parser.parse_args()
    write_demo_checkpoint(args.checkpoint, args.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The model card of a saved Poolingformer: README.md with the YAML head that the Hugging Face Hub reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from fairseq_poolingformer.weights.card import CARD, PAPERS, head, table, task_of

TEMPLATE = "This model card has been automatically generated."
HEAD = re.compile(r"\A---\n(.*?)^---$", re.DOTALL | re.MULTILINE)
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
SETTINGS = (
    "max_position_embeddings",
    "window_size",
    "pooled_window_size",
    "pooled_layers",
    "pool_type",
    "global_tokens",
)


def source_of(name: str, local_files_only: bool) -> dict[str, str]:
    """Return ``base_model`` and ``license`` of the model that a long one is made of, as far as they are known."""
    facts = {"base_model": name} if HUB_NAME.fullmatch(name) and not Path(name).exists() else {}
    path = None
    if name:
        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        quiet |= {"_raise_exceptions_for_gated_repo": False}
        path = cached_file(name, CARD, local_files_only=local_files_only, **quiet)
    if path and (head := HEAD.search(Path(path).read_text(encoding="utf-8", errors="replace"))):
        for key in ("license", "base_model"):
            if value := re.search(rf"^{key}: *['\"]?([\w./-]+)['\"]? *$", head[1], re.MULTILINE):
                facts.setdefault(key, value[1])
    return facts


def write(folder: Path, model: Any) -> None:
    """Write a card beside a saved model, unless the folder has one that transformers has not made of its template."""
    path = folder / CARD
    if path.exists() and TEMPLATE not in path.read_text(encoding="utf-8", errors="replace"):
        return
    kind, config = type(model).__name__, model.config
    facts = {
        "library_name": "transformers",
        "pipeline_tag": task_of(kind)[0],
        **(getattr(config, "source", None) or {}),
    }
    origin = f", made from `{facts['base_model']}`" if "base_model" in facts else ""
    licence = "" if "license" in facts else ", nor its licence"
    parts = [
        head(facts, ["long-documents", "poolingformer"]),
        f"# {kind}",
        f"The encoder has the attention of {PAPERS['poolingformer']}{origin}.",
        table("Settings", {f"`{name}`": getattr(config, name) for name in SETTINGS}),
        f"""```python
from transformers import AutoTokenizer
from fairseq_poolingformer.huggingface import {kind}

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {kind}.from_pretrained("FOLDER")
```""",
        f"Nobody has written here yet what the model is good for, its limits and biases{licence}.",
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")

"""The figures of a training for people, its card, and the folder that it leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.training import duration
from fairseq_poolingformer.huggingface.card import source_of
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.weights.card import CARD, head, model_index, table, task_of

SCORES = "scores.json"  # the last file of a whole folder
HIDDEN = ("precision_", "recall_", "f1_", "best_")  # figures of each label, and thresholds, which SCORES has
FEW = 30  # examples, of which figures say little


def as_table(result: Mapping[str, Any]) -> str:
    """The figures of all systems and baselines, for people."""
    systems = result["systems"]
    names = [name for name in next(iter(systems.values()))["figures"] if not name.startswith(HIDDEN)]
    head = [f"{result['split']}, {result['examples']:,} examples", "tokens", "training", *map(_title, names)]
    rows = [head]
    for name, one in systems.items():
        took = duration(one["seconds"]) if "seconds" in one else ""
        tokens = f"{one['tokens']:,}" if "tokens" in one else ""
        rows.append([name, tokens, took, *(_cell(one["figures"].get(figure)) for figure in names)])
    lines = [aligned(rows), f"in %; in brackets the 95 % interval of {RESAMPLES:,} resamples (bootstrap)"]
    if result["split"] == "valid":
        lines.append("these examples also chose the checkpoint, so that the figures are a little too good")
    if result["examples"] < FEW:
        lines.append(f"{result['examples']} examples are few: these figures say little")
    return "\n".join(lines)


def _title(figure: str) -> str:
    return "mse (not in %)" if figure == "mse" else figure


def _cell(one: Mapping[str, float] | None) -> str:
    if one is None:
        return ""
    return f"{one['mean']:.2f}" + (f" [{one['low']:.2f}, {one['high']:.2f}]" if "low" in one else "")


def leave(output: Path, made: Path, result: dict[str, Any], facts: Mapping[str, Any], base: Base) -> None:
    """Put the chosen model into its folder with a card; SCORES comes last, and names every file with its size."""
    (made / CARD).unlink(missing_ok=True)
    for path in sorted(made.iterdir()):
        shutil.copyfile(path, output / path.name)
    kind = read_json_file(output / "config.json")["architectures"][0]
    (output / CARD).write_text(_card(output.name, kind, result, facts, base), encoding="utf-8")
    files = {path.name: path.stat().st_size for path in sorted(output.iterdir()) if path.is_file()}
    write_lines(output / SCORES, [json.dumps({**result, "files": files}, indent=1)])


def read_whole(output: Path) -> dict[str, Any] | None:
    """What a finished folder has found; None of one that is not finished."""
    if not (output / SCORES).is_file():
        return None
    result = read_json_file(output / SCORES)
    for name, size in result["files"].items():
        if not (output / name).is_file() or (name != CARD and (output / name).stat().st_size != size):
            raise ValueError(f"{output / name}: is gone or has changed; name another --output-folder to train again")
    return result


def _card(name: str, kind: str, result: Mapping[str, Any], facts: Mapping[str, Any], base: Base) -> str:
    system = result["systems"][result["system"]]
    shown = [figure for figure in system["figures"] if not figure.startswith(HIDDEN)]
    split = "validation" if result["split"] == "valid" else result["split"]
    task, auto = task_of(kind)
    means = {_title(figure): f"{system['figures'][figure]['mean']:.2f}" for figure in shown}
    source = source_of(base.name, local_files_only=True)
    tags = {"library_name": "transformers", "pipeline_tag": task, **source}
    own = "import fairseq_poolingformer.huggingface  # registers the model\n" if kind.startswith("Pooling") else ""
    licence = source.get("license", "not known: that of the base and of the data")
    rows = {"base": f"`{source.get('base_model', base.name)}`", "licence": licence, **facts}
    of_systems = {
        name: ", ".join(f"{_title(one)} {_cell(found['figures'][one])}" for one in shown if one in found["figures"])
        for name, found in result["systems"].items()
    }
    parts = [
        head(tags, ["long-documents"], model_index(name, task, str(facts["data"]), split, means)),
        f"# {name}",
        table("Training", rows),
        table(f"Results on {result['examples']:,} examples of {split}, % [95 % interval]", of_systems),
        f"## Use\n\n```python\n{own}from transformers import {auto}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\nmodel = {auto}.from_pretrained("FOLDER")\n```',
        "Nobody has written here yet what the model is good for, its limits and biases.",
    ]
    return "\n\n".join(parts) + "\n"

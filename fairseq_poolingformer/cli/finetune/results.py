"""The figures of a training for people, and the folder that it leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.weights.card import CARD

SCORES = "scores.json"  # the last file of a whole folder
HIDDEN = ("precision_", "recall_", "f1_")  # figures of each label, which SCORES has
FEW = 30  # examples, of which figures say little


def as_table(result: Mapping[str, Any]) -> str:
    """The figures of all systems and baselines, for people."""
    systems = result["systems"]
    names = [name for name in next(iter(systems.values()))["figures"] if not name.startswith(HIDDEN)]
    rows = [[f"{result['split']}, {result['examples']:,} examples", "tokens", "training", *names]]
    for name, system in systems.items():
        took = duration(system["seconds"]) if "seconds" in system else ""
        figures = [system["figures"].get(figure) for figure in names]
        rows.append([name, f"{system['tokens']:,}" if "tokens" in system else "", took, *map(_cell, figures)])
    lines = [aligned(rows), f"in %; in brackets the 95 % interval of {RESAMPLES:,} resamples (bootstrap)"]
    if result["split"] == "valid":
        lines.append("these examples also chose the checkpoint, so that the figures are a little too good")
    if result["examples"] < FEW:
        lines.append(f"{result['examples']} examples are few: these figures say little")
    return "\n".join(lines)


def _cell(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['mean']:.2f}" + (f" [{figure['low']:.2f}, {figure['high']:.2f}]" if "low" in figure else "")


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 100:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def leave(output: Path, made: Path, result: dict[str, Any], data: str) -> None:
    """Put the chosen model into its folder, the results into its card; SCORES comes last."""
    for path in sorted(made.iterdir()):
        shutil.copyfile(path, output / path.name)
    is_ours = "Poolingformer" in (made / "config.json").read_text(encoding="utf-8")
    use = "\nBefore transformers opens the model: `import fairseq_poolingformer.huggingface`.\n" * is_ours
    with open(output / CARD, "a", encoding="utf-8") as card:
        card.write(f"\n## Data and results\n\n{data}\n\n```\n{as_table(result)}\n```\n{use}")
    write_lines(output / SCORES, [json.dumps(result, indent=1)])

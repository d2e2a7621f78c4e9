"""One short ``fairseq-train`` on the CPU in float32 and on a GPU in each dtype, update by update.

    python benchmarks/fairseq_train.py --output-folder FOLDER [--device cuda] [--updates 40]

Fine-tunes the small demo model that comes with the package, as run_scripts/quickstart.sh does, on documents made
for it (preprocess.facts, no download), with --checkpoint-activations and without dropout. All runs have the same
batches, so their losses may differ by rounding only; the learning rate is a tenth of quickstart.sh's, because Adam
soon turns rounding into other weights. The command fails where they differ by more than TOLERANCES: the first update's
norm of the gradient, and the mean loss of the last ten updates; or the loss of any one update by more than
TOLERANCES_OF_ANY. A run that is complete is not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "fairseq_poolingformer" / "demo_model"
FLAGS = {"float32": (), "bfloat16": ("--bf16",), "float16": ("--fp16", "--fp16-init-scale", "128")}
TOLERANCES = {"float32": 0.002, "bfloat16": 0.03, "float16": 0.01}  # of the first gradient's norm and the last losses
# of the loss of any update: in bfloat16 what is small beside a weight changes it now and then, and losses that fall
# fast fall later
TOLERANCES_OF_ANY = {"float32": 0.004, "bfloat16": 0.6, "float16": 0.02}
LAST = 10  # updates whose mean is compared


def run(name: str, folder: Path, *command: object) -> None:
    """Run a Python module with its output in ``folder/name.out``."""
    log = folder / f"{name}.out"
    with open(log, "w", encoding="utf-8") as file:
        done = subprocess.run([sys.executable, "-m", *map(str, command)], cwd=ROOT, stdout=file, stderr=file)
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise SystemExit("\n".join([*lines[-25:], f"{name} failed; its whole output is in {log}"]))


def make_data(args: argparse.Namespace) -> None:
    """Documents in ``corpus`` and the demo model's checkpoint, unless they are there."""
    folder = args.output_folder
    if not (folder / "demo_model.pt").is_file():
        corpus = ("fairseq_poolingformer.cli.main", "preprocess", "facts", "--overwrite")
        documents = ("--train", args.documents, "--valid", 2, "--test", 2, "--words", *args.words)
        tokenizer = ("--sentencepiece-model", DEMO / "tokenizer" / "sentencepiece.model")
        run("corpus", folder, *corpus, "--output-folder", folder / "corpus", *documents, *tokenizer)
        run("demo_model", folder, "fairseq_poolingformer.models.demo_model", folder / "demo_model.pt")


def train(args: argparse.Namespace, device: str, dtype: str) -> dict[int, dict[str, float]]:
    """Train, unless that is done, and return fairseq's statistics of every update."""
    name, settings = f"{device}-{dtype}", vars(args) | {"output_folder": "", "device": device, "dtypes": dtype}
    log, done = args.output_folder / f"{name}.log", args.output_folder / f"{name}.done"
    settings = json.dumps(settings)
    if not done.is_file() or done.read_text(encoding="utf-8") != settings:
        log.unlink(missing_ok=True)
        run(name, args.output_folder, *command(args, device, dtype, log))
        done.write_text(settings, encoding="utf-8")
    entries = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if '"num_updates": ' in line)
    updates = {
        int(float(entry["num_updates"])): {key: float(value) for key, value in entry.items()} for entry in entries
    }
    if sorted(updates) != list(range(1, args.updates + 1)):
        raise SystemExit(f"{name}: {log} has the updates {sorted(updates)}, not 1 to {args.updates}")
    return updates


def command(args: argparse.Namespace, device: str, dtype: str, log: Path) -> list[object]:
    """fairseq-train's command line, quickstart.sh's without dropout and with activation checkpointing."""
    is_compiled = args.compile_layers and device != "cpu"
    return [
        *("fairseq_cli.train", args.output_folder / "corpus", "--user-dir", ROOT / "fairseq_poolingformer"),
        *("--task", "long_summarization", "--arch", "poolingformer_demo", "--max-source-positions", 4096),
        *("--finetune-from-model", args.output_folder / "demo_model.pt"),
        *(("--compile-layers", args.compile_layers) if is_compiled else ("--checkpoint-activations",)),
        *("--window-size", "4,16,32,32", "--pooled-layers", "2-3", "--pooled-window-size", 256),
        *("--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0),
        *("--max-tokens", args.max_tokens, "--batch-size", 8, "--required-batch-size-multiple", 1),
        *("--num-workers", 0, "--seed", 1, "--criterion", "linear_cross_entropy", "--optimizer", "fused_adamw"),
        *("--adam-betas", "(0.9, 0.98)", "--weight-decay", 0.01, "--clip-norm", 1, "--lr", 5e-5),
        *("--lr-scheduler", "polynomial_decay", "--warmup-updates", 10, "--total-num-update", 200),
        *("--max-update", args.updates, "--disable-validation", "--no-save", "--save-dir", args.output_folder / "none"),
        *("--distributed-world-size", 1, "--log-format", "json", "--log-interval", 1, "--log-file", log, *FLAGS[dtype]),
        *(("--cpu",) if device == "cpu" else ()),
    ]


def compare(expected: dict[int, dict[str, float]], actual: dict[int, dict[str, float]]) -> tuple[float, float, float]:
    """How far the first gradient's norm, the mean loss of the last updates, and the loss of any one are off.

    The first is relative to the expected norm, the others to the mean of the expected losses.
    """
    scale = statistics.mean(row["loss"] for row in expected.values())
    losses = [(actual[n]["loss"] - row["loss"]) / scale for n, row in sorted(expected.items())]
    gradient = abs(actual[1]["gnorm"] / expected[1]["gnorm"] - 1)
    worst = math.nan if any(map(math.isnan, losses)) else max(map(abs, losses))  # max() may skip NaN
    return gradient, abs(statistics.mean(losses[-LAST:])), worst


def is_allowed(gradient: float, at_the_end: float, worst: float, dtype: str) -> bool:
    """Whether what :func:`compare` found is rounding; NaN is not."""
    most = TOLERANCES[dtype]
    return gradient <= most and at_the_end <= most and worst <= TOLERANCES_OF_ANY[dtype]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = result.add_argument
    add("--output-folder", type=Path, required=True, metavar="DIR", help="of the corpus, the logs and their outputs")
    add("--device", default="cuda", choices=("cuda", "cpu"), help="cpu tries the command out (default: %(default)s)")
    add("--dtypes", nargs="+", default=list(FLAGS), choices=tuple(FLAGS), help="(default: all)")
    add("--updates", type=int, default=40, help="of each run (default: %(default)s)")
    add("--documents", type=int, default=300, help="made to train on (default: %(default)s)")
    add("--words", type=int, nargs=2, default=[300, 2000], help="of prose in a document (default: 300 2000)")
    add("--compile-layers", default="", metavar="MODE", help="of torch.compile on a GPU, without checkpointing")
    add("--max-tokens", type=int, default=8192, help="of a batch (default: %(default)s)")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print the table, and return 1 where losses differ."""
    args = parser().parse_args(arguments)
    args.output_folder = args.output_folder.resolve()
    args.output_folder.mkdir(parents=True, exist_ok=True)
    make_data(args)
    expected = train(args, "cpu", "float32")
    print(f"{args.updates} updates of the demo model; loss in bits a token of the summary\n")
    heads = ("loss at first", f"of last {LAST}", "first gradient", "loss at end", "at any update", "allowed", "words/s")
    print(f"{'':<16}" + "".join(f"{head:>16}" for head in heads))
    failed = []
    runs = [("cpu", "float32", expected), *((args.device, dtype, None) for dtype in args.dtypes)]
    for device, dtype, rows in runs:
        rows = rows or train(args, device, dtype)
        found = compare(expected, rows)
        last = statistics.mean(rows[n]["loss"] for n in sorted(rows)[-LAST:])
        cells = [f"{rows[1]['loss']:.3f}", f"{last:.3f}", *(f"{difference:.2%}" for difference in found)]
        speed = statistics.median(row["wps"] for row in rows.values())
        cells += [f"{TOLERANCES[dtype]:.1%}, {TOLERANCES_OF_ANY[dtype]:.1%}", f"{speed:.0f}"]
        print(f"{f'{device} {dtype}':<16}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
        if not is_allowed(*found, dtype):
            failed.append(f"{device} {dtype}")
    if failed:
        print(f"\nthe loss of {', '.join(failed)} differs from the CPU's in float32 by more than is allowed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

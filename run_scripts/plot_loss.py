"""A picture of the loss of a training, from the file that ``--log-format json --log-file FILE`` writes.

    python run_scripts/plot_loss.py train.log [another.log …] --output loss.png

The loss is the mean negative log-likelihood of a token, in bits, without label smoothing. The log of a resumed training
has the updates after the last checkpoint twice; the picture shows the later ones.
"""

import argparse
import json
import sys
from pathlib import Path

from fairseq_poolingformer.command import output_file, run_command

Curve = dict[int, float]


def read_log(path: Path) -> dict[str, Curve]:
    """Read the loss by update, of training and of every validated split."""
    curves: dict[str, Curve] = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            entry = _entry(line)
            for key in [key for key in entry if key.endswith("num_updates")]:
                prefix = key.removesuffix("num_updates")
                # a criterion without label smoothing calls its only loss "loss"
                loss = entry.get(f"{prefix}nll_loss", entry.get(f"{prefix}loss"))
                if loss is not None and prefix != "train_":  # train_ is the mean over an epoch
                    curves.setdefault(prefix.rstrip("_") or "training", {})[int(float(entry[key]))] = float(loss)
    if not curves:
        raise ValueError(f"{path}: no loss in it; is it the --log-file of a training with --log-format json?")
    return curves


def _entry(line: str) -> dict:
    """Read the numbers of a line of progress; other messages of fairseq have none."""
    if not line.startswith("{"):
        return {}
    try:
        entry = json.loads(line)
    except ValueError:
        return {}  # the configuration, which fairseq prints as a Python dict; or the last line of a killed run
    return entry if isinstance(entry, dict) else {}


def plot(logs: list[Path], output: Path) -> None:
    """Draw the curves of one or several trainings."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, whatever matplotlib is set to
    axes = figure.subplots()
    for number, path in enumerate(logs):
        for name, curve in read_log(path).items():
            style = {} if name == "training" else {"marker": "o", "linestyle": "--"}
            training = (path.resolve().parent.name if path.stem == "train" else path.stem).replace("_", " ")
            label = f"{training}: {name}" if len(logs) > 1 else name
            axes.plot(*zip(*sorted(curve.items()), strict=True), color=f"C{number}", label=label, **style)
    axes.set(xlabel="update", ylabel="loss (bits per token)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(output, dpi=150)
    print(f"wrote {output}")


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("logs", nargs="+", type=Path, help="log files; several are drawn into one picture")
    parser.add_argument("--output", type=output_file, required=True, metavar="FILE", help=".png, .svg or .pdf")
    return run_command(parser, lambda args: plot(args.logs, args.output))


if __name__ == "__main__":
    sys.exit(main())

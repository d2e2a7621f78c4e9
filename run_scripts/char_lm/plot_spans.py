"""How far each layer looks back, as models with adaptive spans have learned it, as a picture (GAA figure 1).

    python run_scripts/char_lm/plot_spans.py adaptive_span=run/checkpoint_best.pt gaa=other/checkpoint_best.pt \\
        --output spans.png

A line is the mean of a layer's heads, a dot one head. The numbers are printed too.
"""

import argparse
import logging
import sys
from pathlib import Path

import torch
from torch import Tensor

from fairseq_poolingformer.char_lm.adaptive_span import AdaptiveSpans
from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.command import output_file, run_command

PREFIX = "decoder.spans."


def read_spans(path: Path) -> Tensor:
    """The spans of a checkpoint: (layers, H), in positions."""
    checkpoint = load(path)
    if not isinstance(checkpoint, dict) or not {"model", "cfg"} <= checkpoint.keys():
        raise ValueError(f"{path}: no checkpoint of fairseq-train")
    state = {name.removeprefix(PREFIX): x for name, x in checkpoint["model"].items() if name.startswith(PREFIX)}
    z = [x for name, x in state.items() if name.startswith("z.")]
    if not z:
        raise ValueError(
            f"{path}: a model without adaptive spans; those of --arch adaptive_span_lm and gaa_lm have them"
        )
    settings = checkpoint["cfg"]["model"]
    spans = AdaptiveSpans(
        len(z), len(z[0]), max_span=settings.max_span, ramp=settings.span_ramp, shared="shared" in state
    )
    spans.load_state_dict(state)
    with torch.no_grad():
        return spans()


def report(name: str, spans: Tensor) -> None:
    """Print the spans of every layer."""
    print(f"{name}: average span {spans.mean():.1f}")
    for number, layer in enumerate(spans):
        heads = " ".join(f"{span:.0f}" for span in layer)
        print(f"  layer {number}: mean {layer.mean():.0f}, largest {layer.max():.0f}; heads {heads}")


def plot(spans: dict[str, Tensor], output: Path) -> None:
    """Draw the spans of one or several models by layer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, whatever matplotlib is set to
    axes = figure.subplots()
    for number, (name, values) in enumerate(spans.items()):
        layers = range(1, len(values) + 1)
        axes.plot(layers, values.mean(1), color=f"C{number}", label=f"{name}, average {values.mean():.0f}")
        axes.plot(layers, values, color=f"C{number}", linestyle="", marker=".", alpha=0.5)
    axes.set(xlabel="layer", ylabel="span (positions)", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(output, dpi=150)
    print(f"wrote {output}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoints", nargs="+", metavar="[NAME=]FILE", help="checkpoints, with names for the picture")
    parser.add_argument("--output", type=output_file, required=True, metavar="FILE", help=".png, .svg or .pdf")
    return run_command(parser, run)


def run(args: argparse.Namespace) -> None:
    """Print the spans of every layer and draw them."""
    logging.getLogger().setLevel(logging.WARNING)
    named = (text.partition("=") if "=" in text else (Path(text).stem, "=", text) for text in args.checkpoints)
    spans = {name: read_spans(Path(path)) for name, _, path in named}
    for name, values in spans.items():
        report(name, values)
    plot(spans, args.output)


if __name__ == "__main__":
    sys.exit(main())

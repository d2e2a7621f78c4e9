"""``poolingformer doctor``: a report on this machine, its installation and its backends, to paste into an issue."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from fairseq_poolingformer.attention.backends.triton.stored_tiles import KERNELS, read_tiles, text_of, tile_file
from fairseq_poolingformer.cli.command import positive, run_command
from fairseq_poolingformer.cli.main import versions
from fairseq_poolingformer.cli.options import DTYPES, device_name
from fairseq_poolingformer.doctor import choices, machine, timing
from fairseq_poolingformer.text.whole_file import whole_file

_EPILOG = """\
examples:
  poolingformer doctor                                  # what is installed, and which backend each call takes
  poolingformer doctor --gpu --output report.md         # also checks and times the attention on the GPU
  poolingformer doctor --device cpu --lengths 1024      # the same on the processor
  poolingformer doctor --tune                           # measures tiles of the kernels on the GPU and keeps the fastest
"""
_NO_GPU = "No GPU: nothing was {}."


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer-doctor",
        description="Report on this machine: versions, devices, fairseq, memory, disk, and which backend each kind of "
        "attention takes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--gpu", action="store_true", help="check and time the attention on the first GPU")
    add("--device", type=device_name, help="check and time it on this device: cpu, cuda, cuda:1, …")
    add("--precision", choices=DTYPES, help="of what is timed (default: bf16, on a cpu fp32)")
    add("--lengths", type=positive, nargs="+", default=[4096, 16384], metavar="N", help="tokens (default: 4096 16384)")
    add("--tune", action="store_true", help="time the Triton kernels on the GPU tile by tile, and store the fastest")
    add("--head-dim", type=positive, default=64, metavar="D", help="of --tune (default: %(default)s)")
    add("--tiles", type=Path, metavar="FILE", help=f"where --tune stores tiles (default: {tile_file()}, which is used)")
    add("--folder", type=Path, default=Path(), metavar="DIR", help="whose disk is measured (default: this folder)")
    add("--output", type=Path, metavar="FILE", help="write the report there too, as Markdown")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the report, section by section."""
    lines = []
    for line in report(args):
        print(line, flush=True)
        lines.append(line)
    if args.output is not None:
        with whole_file(args.output) as path:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(args: argparse.Namespace) -> Iterator[str]:
    """The lines of the report, in Markdown."""
    yield f"# poolingformer doctor, {datetime.date.today()}"
    yield from _list("Versions", versions().splitlines())
    yield from _list("Devices", machine.devices())
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    yield from _list("fairseq", [*machine.fairseq(), *map(machine.fused_optimizer, found)])
    yield from _list("Memory and disk", [machine.memory(), machine.disk(args.folder)])
    gpu = found[1] if len(found) > 1 else None
    device = args.device or (gpu if args.gpu else None)
    for name in dict.fromkeys([*found, *([device] if device else [])]):
        yield from backends(name)
    if device is not None:
        yield from self_checks(device)
        yield from times(device, args.precision, args.lengths)
    elif args.gpu:
        yield from ["", _NO_GPU.format("checked or timed")]
    if args.tune and gpu is not None:
        device = args.device if args.device not in (None, "cpu") else gpu
        yield from tiles(device, args.precision, args.head_dim, max(args.lengths), args.tiles or tile_file())
    elif args.tune:
        yield from ["", _NO_GPU.format("tuned")]


def backends(device: str) -> Iterator[str]:
    """Which backend each kind of call takes on a device, and why not the faster ones."""
    found = choices.choices(device)
    yield from _heading(f"Backends on {device}, in training")
    rows = [[kind, *chosen.values()] for kind, chosen in found.backends.items()]
    yield from _table(["", *map(_name, next(iter(found.backends.values())))], rows)
    number = sum(map(len, found.backends.values()))
    yield ""
    for refusal, calls in found.refusals.items():
        whose = f"{len(calls)} of {number}" if len(calls) > 3 else ", ".join(f"{k} {_name(d)}" for k, d in calls)
        yield f"- not {refusal} ({whose})"


def self_checks(device: str) -> Iterator[str]:
    """What the self-checks of all kinds of call find."""
    yield from _heading(f"Self-checks on {device}")
    rows, failures = [], []
    for checked in choices.self_checks(device):
        verdict = "passed" if checked.failure is None else "**failed**"
        rows.append([checked.backend, checked.kind, _name(checked.dtype), verdict, f"{checked.seconds:.3f}"])
        failures += [f"- {checked.kind}, {_name(checked.dtype)}: {checked.failure}"] if checked.failure else []
    if not rows:
        yield "No backend that runs here has compiled kernels of this project."
        return
    yield from _table(["backend", "call", "dtype", "", "seconds, compiling included"], rows)
    yield from ["", *failures] if failures else []


def times(device: str, precision: str | None, lengths: Sequence[int]) -> Iterator[str]:
    """Times of both levels beside PyTorch's own kernels."""
    dtype = DTYPES[precision or ("fp32" if device == "cpu" else "bf16")]
    yield from _heading(f"Times on {device}, {_name(dtype)}")
    rate = timing.matmul_rate(device, dtype)
    yield f"A product of matrices: {2 * rate / 1e12:.3g} TFLOP/s. 12 heads of 64, batch 1; w1 128, w2 512, κ 5, ξ 4."
    yield "Milliseconds of a call, and the share of them that its multiply-adds alone take at that rate."
    rows, failures = [], []
    for length in lengths:
        for found in timing.times(device, dtype, length, rate):
            cells = [
                f"{1e3 * found.seconds[passes]:.3g} ({found.of_limit[passes]:.0%})" if passes in found.seconds else "–"
                for passes in timing.PRODUCTS
            ]
            rows += [[str(length), found.operator, found.backend, *cells]] if found.seconds else []
            failures += [f"- {found.operator}, {found.backend}: {why}" for why in found.failures.values()]
    yield ""
    yield from _table(["tokens", "", "backend", "forward", "forward + backward"], rows)
    yield from ["", *dict.fromkeys(failures)] if failures else []


def tiles(device: str, precision: str | None, head_dim: int, length: int, file: Path) -> Iterator[str]:
    """Time tiles of the Triton kernels, and store the fastest in a file.

    Raises:
        ValueError: Triton is missing, the head dimension is too large, or the file is not one of tiles.
    """
    from fairseq_poolingformer.attention.backends.triton.backend import MAX_HEAD_DIM, triton

    if triton is None or head_dim > MAX_HEAD_DIM:
        raise ValueError(f"--tune needs Triton, and --head-dim of at most {MAX_HEAD_DIM}")
    from fairseq_poolingformer.attention.backends.triton.arguments import TileShape, name_of, padded
    from fairseq_poolingformer.doctor import tuning

    dtype, gpu = DTYPES[precision or "bf16"], name_of(torch.device(device))
    try:
        stored = read_tiles(file) if file.exists() else {}
    except ValueError as error:
        raise ValueError(f"{file}: {error}; remove it, or name another file with --tiles") from None
    yield from _heading(f"Tiles on {gpu}, {_name(dtype)}, head dimension {head_dim}, {length} tokens")
    yield from _table(["queries", "keys", "warps", "stages", *(f"{kernel}, µs" for kernel in KERNELS)], [])
    times: dict[TileShape, dict[str, float]] = {}
    for shape, found in tuning.tried(device, dtype, head_dim, length):
        cells = [found, *[""] * (len(KERNELS) - 1)]
        if isinstance(found, dict):
            times[shape], cells = found, [f"{found[kernel]:.1f}" for kernel in KERNELS]
        yield _row([*map(str, shape), *cells])
    now, fastest = tuning.present(device, dtype, head_dim), tuning.best(times)
    before, after = (tuning.microseconds(tiles, times) for tiles in (now, fastest))
    stored.setdefault(gpu, {})[dtype.itemsize, padded(head_dim)] = fastest._asdict()
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as path:
        path.write_text(text_of(stored), encoding="utf-8")
    yield from ["", f"The present tiles take {before:.1f} µs, the fastest {after:.1f} µs; {file} has them now."]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _heading(title: str) -> list[str]:
    return ["", f"## {title}", ""]


def _list(title: str, items: Sequence[str]) -> list[str]:
    return [*_heading(title), *(f"- {item}" for item in items)]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from map(_row, (heads, ["---"] * len(heads), *rows))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

"""``poolingformer doctor``: a report on this machine, its installation and its backends, to paste into an issue."""

from __future__ import annotations

import argparse
import datetime
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from fairseq_poolingformer.attention import BACKENDS, DisentangledPosition, Pooling, RelativePositionBias, Window
from fairseq_poolingformer.attention.call import DTYPES, Call
from fairseq_poolingformer.attention.functional import fastest_backend
from fairseq_poolingformer.cli.main import versions
from fairseq_poolingformer.cli.options import device_name
from fairseq_poolingformer.command import load_fairseq, run_command
from fairseq_poolingformer.text.atomic_write import atomic_write

GIB = 2**30
HEADS, LENGTH, HEAD_DIM = 2, 64, 64
_EPILOG = """\
examples:
  poolingformer doctor                                    # what is installed, and which backend each call takes
  poolingformer doctor --device cuda --output report.md   # also runs the self-checks of the attention on the GPU
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="poolingformer-doctor",
        description="Report on this machine: versions, devices, memory, fairseq, and which backend each kind of "
        "attention takes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", type=device_name, help="run the attention's self-checks on this device: cpu, cuda, cuda:1, …")
    add("--folder", type=Path, default=Path(), metavar="DIR", help="whose disk is looked at (default: this folder)")
    add("--output", type=Path, metavar="FILE", help="write the report there too, as Markdown")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the report, line by line."""
    lines = []
    for line in report(args):
        print(line, flush=True)
        lines.append(line)
    if args.output is not None:
        with atomic_write(args.output) as path:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(args: argparse.Namespace) -> Iterator[str]:
    """The lines of the report, in Markdown."""
    yield f"# poolingformer doctor, {datetime.date.today()}"
    for title, items in (
        ("Versions", versions().splitlines()),
        ("Machine", machine(args.folder)),
        ("fairseq", [fairseq()]),
    ):
        yield from ["", f"## {title}", "", *(f"- {item}" for item in items)]
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    for device in ("cpu", *gpus):
        yield from ["", f"## Backends on {device}, in training", "", *backends(device)]
    if args.device is not None:
        yield from ["", f"## Self-checks on {args.device}", "", *self_checks(args.device)]


def backends(device: str) -> Iterator[str]:
    """Which backend each kind of call takes, and why not the faster ones."""
    chosen: dict[str, list[str]] = {}
    refusals: dict[str, list[str]] = {}
    for dtype in DTYPES:
        for kind, call in calls(device, dtype).items():
            name, reasons = fastest_backend(call, self_check=False)
            chosen.setdefault(kind, []).append(name)
            for reason in reasons:
                refusals.setdefault(reason, []).append(f"{kind} {_name(dtype)}")
    yield from _table(["", *map(_name, DTYPES)], [[kind, *names] for kind, names in chosen.items()])
    yield ""
    number = len(chosen) * len(DTYPES)
    for reason, refused in refusals.items():
        yield f"- not {reason} ({f'{len(refused)} of {number}' if len(refused) > 3 else ', '.join(refused)})"


def self_checks(device: str) -> Iterator[str]:
    """What the self-check of every backend that has one finds, for every kind of call that it can run."""
    rows, failures = [], []
    for name, module in BACKENDS.items():
        for dtype in DTYPES if hasattr(module, "self_check") else ():
            for kind, call in calls(device, dtype).items():
                if module.why_not(call) is None:
                    failure = module.self_check(call)
                    rows.append([name, kind, _name(dtype), "**failed**" if failure else "passed"])
                    failures += [f"- {kind}, {_name(dtype)}: {failure}"] if failure else []
    if rows:
        yield from [*_table(["backend", "call", "dtype", ""], rows), "", *failures]
    else:
        yield "No backend that runs here has compiled kernels of this project."


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def calls(device: str, dtype: torch.dtype, head_dim: int = HEAD_DIM) -> dict[str, Call]:
    """A small call of each kind, with tensors that need gradients."""

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, device=device, dtype=dtype, requires_grad=True)

    pooling = {"grid": Pooling(5, 4), "query": Pooling(5, 4, "query")}
    marked = torch.zeros(1, LENGTH, dtype=torch.bool, device=device)
    tables = (zeros(HEADS, 16, head_dim), zeros(HEADS, 16, head_dim))
    arguments = {
        "level one": {},
        "level one, global tokens": {"global_mask": marked.clone().index_fill(1, marked.new_zeros(1).long(), True)},
        "level one, padding": {"key_padding_mask": marked},
        "level one, dropout": {"dropout_p": 0.1},
        "level one, dilated": {"window": Window(8, 8, 2)},
        "level one, relative bias": {"score_terms": [RelativePositionBias(zeros(HEADS, 17))]},
        "level one, disentangled": {"score_terms": [DisentangledPosition(*tables)]},
        "level two": {"pooling": pooling["grid"]},
        "level two, dropout": {"pooling": pooling["grid"], "dropout_p": 0.1},
        "level two, query-aligned": {"pooling": pooling["query"]},
        "full attention": {"window": Window.unlimited()},
    }
    found = {}
    for kind, given in arguments.items():
        keys = given["pooling"].num_pools(LENGTH) if "pooling" in given else LENGTH
        tensors = (zeros(1, HEADS, n, head_dim) for n in (LENGTH, keys, keys))
        found[kind] = Call.of(*tensors, **{"window": Window(8), **given})
    return found


def machine(folder: Path) -> Iterator[str]:
    """The processor and every GPU, or that there is none, the memory, and the disk of a folder."""
    yield f"cpu: {processor()}, {torch.get_num_threads()} threads"
    for number in range(torch.cuda.device_count()):
        name, (major, minor) = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
        free, total = torch.cuda.mem_get_info(number)
        memory = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
        yield f"cuda:{number}: {name}, compute capability {major}.{minor}, {memory}"
    if not torch.cuda.device_count():
        builds = {"CUDA": torch.version.cuda, "HIP": torch.version.hip}
        build = next((f"{name} {version}" for name, version in builds.items() if version), "neither CUDA nor HIP")
        yield f"no GPU: torch {torch.__version__} is a build with {build} and sees none"
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        kib = {
            name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in meminfo.open(encoding="utf-8"))
        }
        yield f"memory: {kib['MemAvailable'] * 1024 / GIB:.1f} of {kib['MemTotal'] * 1024 / GIB:.1f} GiB free"
    yield f"disk of {folder.resolve()}: {shutil.disk_usage(folder).free / GIB:.1f} GiB free"


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def fairseq() -> str:
    """Whether the plugin fits the fairseq that is installed."""
    if find_spec("fairseq") is None:
        return "fairseq is not installed: what trains and generates needs it, the attention and transformers do not"
    try:
        load_fairseq()
    except (ImportError, AttributeError) as error:
        return f"the plugin does not fit this fairseq: {error}"
    compiled = find_spec("fairseq.data.data_utils_fast") is not None
    return "the plugin fits it" + ("" if compiled else ", which is without its compiled extensions")

"""``poolingformer doctor``: a report on this machine, its installation and its backends, to paste into an issue."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

from fairseq_poolingformer.attention import BACKENDS, DisentangledPosition, Pooling, RelativePositionBias, Window
from fairseq_poolingformer.attention.call import DTYPES, Call
from fairseq_poolingformer.attention.functional import fastest_backend
from fairseq_poolingformer.cli.main import versions
from fairseq_poolingformer.cli.options import device_name
from fairseq_poolingformer.command import load_fairseq, run_command
from fairseq_poolingformer.text.atomic_write import atomic_write

GIB = 2**30
DISK_BYTES, BLOCK_BYTES = 2**26, 2**20  # written to measure the disk, and at a time
HEADS, LENGTH, HEAD_DIM = 2, 64, 64
_EPILOG = """\
examples:
  poolingformer doctor                            # what is installed, and which backend each call takes
  poolingformer doctor --gpu --output report.md   # also runs the self-checks of the attention on the GPU
"""


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
    add("--gpu", action="store_true", help="run the attention's self-checks on the first GPU")
    add("--device", type=device_name, help="run them on this device: cpu, cuda, cuda:1, …")
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
        with atomic_write(args.output) as path:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(args: argparse.Namespace) -> Iterator[str]:
    """The lines of the report, in Markdown."""
    yield f"# poolingformer doctor, {datetime.date.today()}"
    yield from _list("Versions", versions().splitlines())
    yield from _list("Devices", devices())
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    yield from _list("fairseq", [*fairseq(), *map(fused_optimizer, found)])
    yield from _list("Memory and disk", [memory(), disk(args.folder)])
    gpu = found[1] if len(found) > 1 else None
    device = args.device or (gpu if args.gpu else None)
    for name in dict.fromkeys([*found, *([device] if device else [])]):
        yield from backends(name)
    if device is not None:
        yield from self_checks(device)
    elif args.gpu:
        yield from ["", "No GPU: nothing was checked."]


def backends(device: str) -> Iterator[str]:
    """Which backend each kind of call takes on a device, and why not the faster ones."""
    found = choices(device)
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
    for checked in checks(device):
        verdict = "passed" if checked.failure is None else "**failed**"
        rows.append([checked.backend, checked.kind, _name(checked.dtype), verdict, f"{checked.seconds:.3f}"])
        failures += [f"- {checked.kind}, {_name(checked.dtype)}: {checked.failure}"] if checked.failure else []
    if not rows:
        yield "No backend that runs here has compiled kernels of this project."
        return
    yield from _table(["backend", "call", "dtype", "", "seconds, compiling included"], rows)
    yield from ["", *failures] if failures else []


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


class Choices(NamedTuple):
    """The backend of each kind and dtype, and for each reason against another the kinds and dtypes that have it."""

    backends: dict[str, dict[torch.dtype, str]]
    refusals: dict[str, list[tuple[str, torch.dtype]]]


def choices(device: str) -> Choices:
    """Pick a backend for every kind of call in training, without self-checks."""
    found = Choices({}, {})
    for dtype in DTYPES:
        for kind, call in calls(device, dtype).items():
            name, refusals = fastest_backend(call, self_check=False)
            found.backends.setdefault(kind, {})[dtype] = name
            for refusal in refusals:
                found.refusals.setdefault(refusal, []).append((kind, dtype))
    return found


class Checked(NamedTuple):
    """A self-check: of which backend, kind and dtype; what went wrong, None for nothing; and its seconds."""

    backend: str
    kind: str
    dtype: torch.dtype
    failure: str | None
    seconds: float


def checks(device: str) -> Iterator[Checked]:
    """Run the self-check of every backend that has one, for every kind of call that it can run."""
    for name, module in BACKENDS.items():
        for dtype in DTYPES if hasattr(module, "self_check") else ():
            for kind, call in calls(device, dtype).items():
                if module.why_not(call) is None:
                    start = time.perf_counter()
                    yield Checked(name, kind, dtype, module.self_check(call), time.perf_counter() - start)


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def devices() -> list[str]:
    """The processor and every GPU, or that there is none."""
    found = [f"cpu: {processor()}, {torch.get_num_threads()} threads"]
    for number in range(torch.cuda.device_count()):
        name, (major, minor) = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
        free, total = torch.cuda.mem_get_info(number)
        memory = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
        found.append(f"cuda:{number}: {name}, compute capability {major}.{minor}, {memory}")
    if not torch.cuda.device_count():
        builds = {"CUDA": torch.version.cuda, "HIP": torch.version.hip}
        build = next((f"{name} {version}" for name, version in builds.items() if version), "neither CUDA nor HIP")
        found.append(f"no GPU: torch {torch.__version__} is a build with {build} and sees none")
    return found


def fairseq() -> list[str]:
    """How fairseq is installed; that it is not, if so."""
    name = next((name for name in ("fairseq-fixed", "fairseq") if _version(name)), None)
    if name is None or find_spec("fairseq") is None:
        return ["fairseq is not installed: what trains and generates needs it, the attention and transformers do not"]
    tags = importlib.metadata.distribution(name).read_text("WHEEL") or ""
    origin = "prebuilt" if "manylinux" in tags else "built from source"
    line = f"{name} {_version(name)}, {origin}"
    try:
        load_fairseq()
    except (ImportError, AttributeError) as error:
        return [line, f"the plugin does not fit this fairseq: {error}"]
    from fairseq_poolingformer.patches.table import AROUND, INSTEAD  # here, since it needs fairseq

    compiled = find_spec("fairseq.data.data_utils_fast") is not None
    patched = f"patched by the plugin, in processes that load it: {len(AROUND) + len(INSTEAD)} functions"
    return [line + ("" if compiled else ", without its compiled extensions"), patched, _apex()]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _apex() -> str:
    if find_spec("apex") is None:
        return "apex is not installed: fairseq's adam is not fused on a GPU; --optimizer fused_adamw is"
    kernels = {"layer normalization": "fused_layer_norm_cuda", "adam": "amp_C"}
    found = [what for what, module in kernels.items() if find_spec(module) is not None]
    return f"apex is installed with kernels of {' and '.join(found)}" if found else "apex is installed without kernels"


def fused_optimizer(device: str) -> str:
    """Whether PyTorch's fused AdamW, ``--optimizer fused_adamw``, runs on a device."""
    parameter = torch.zeros(4, device=device, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    try:
        torch.optim.AdamW([parameter], fused=True).step()
    except (RuntimeError, NotImplementedError) as error:
        return f"fused AdamW does not run on {device}: {' '.join(str(error).split())[:200]}"
    return f"fused AdamW runs on {device}"


def memory() -> str:
    """The free memory."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "free memory is not known here"
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return f"memory: {kib['MemAvailable'] * 1024 / GIB:.1f} of {kib['MemTotal'] * 1024 / GIB:.1f} GiB free"


def disk(folder: Path) -> str:
    """The free space of a folder's disk, and the speed at which a temporary file of 64 MiB is written to it."""
    free = shutil.disk_usage(folder).free
    line = f"disk of {folder.resolve()}: {free / GIB:.1f} GiB free"
    if free < 4 * DISK_BYTES:
        return f"{line}; too little to measure how fast it is written to"
    block = os.urandom(BLOCK_BYTES)
    start = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(DISK_BYTES // BLOCK_BYTES):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return f"{line}, {DISK_BYTES / 1e6 / (time.perf_counter() - start):.0f} MB/s written"

"""The models of checkpoints, as commands load them, and the options that say where and how precisely to compute."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_poolingformer.command import load_fairseq

if TYPE_CHECKING:  # torch would make --help take seconds
    from torch import nn

PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision``, a key of :data:`PRECISIONS`, and ``--device``."""
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="of parameters and computation (default: %(default)s)"
    )
    add_device(parser)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``, by default a GPU where there is one."""
    text = "cpu, cuda, cuda:1, …, or auto: the first GPU, or without any the CPU (default: %(default)s)"
    parser.add_argument("--device", type=device_name, default="auto", help=text)


def device_name(name: str) -> str:
    """The type of an option that names a device, which must be there; ``auto`` is a GPU or the CPU."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"{name!r} is no device; give cpu, cuda or cuda:1") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"{name} is not there: torch finds {torch.cuda.device_count()} GPUs here")
    return name


def checkpoint_of(path: Path) -> Path:
    """The checkpoint a path names: ``model.pt`` of a folder that ``poolingformer convert`` made; an error for none."""
    from fairseq_poolingformer.checkpoints import MissingCheckpointError

    if (path / "model.pt").is_file():
        return path / "model.pt"
    if path.is_dir():
        names = sorted(file.name for file in path.glob("*.pt"))
        remedy = f"give a file of it: {', '.join(names)}" if names else "there is no .pt file in it"
        if (path / "config.json").is_file():  # Trainer's checkpoints have .pt files, too
            remedy = "transformers itself runs this one (docs/huggingface.md); for fairseq convert it with "
            remedy += "poolingformer convert to-fairseq"
        raise MissingCheckpointError(f"{path}: a folder, not a checkpoint; {remedy}")
    if not path.is_file():
        may_be_on_hub = not path.is_absolute() and path.suffix != ".pt" and len(path.parts) <= 2
        remedy = "; of a model of the Hugging Face Hub, poolingformer convert to-fairseq makes one" * may_be_on_hub
        raise MissingCheckpointError(f"{path}: no such checkpoint{remedy}")
    return path


def load_models(
    paths: Sequence[str], device: str, precision: str, *, task: str | None = None, data: Path | None = None
) -> tuple[list[nn.Module], Any]:
    """Load checkpoints' models, in eval mode, and their task."""
    paths = [str(checkpoint_of(Path(path))) for path in paths]
    load_fairseq()
    from fairseq import checkpoint_utils
    from fairseq.tasks import TASK_REGISTRY

    from fairseq_poolingformer.checkpoints import explained
    from fairseq_poolingformer.patches.untrusted_files import without_optimizer

    overrides = {} if data is None else {"data": str(data.resolve())}
    models, loaded = [], None
    for path in paths:
        with explained(path), without_optimizer():
            state = checkpoint_utils.load_checkpoint_to_cpu(path, overrides)
        trained = getattr(getattr(state.get("cfg"), "task", None), "_name", None)
        known = isinstance(trained, str) and trained in TASK_REGISTRY  # fairseq itself refuses an unknown task
        if task is not None and known and not issubclass(TASK_REGISTRY[trained], TASK_REGISTRY[task]):
            raise ValueError(f"{path}: a checkpoint of --task {trained}; give one of --task {task}")
        (model,), _, loaded = checkpoint_utils.load_model_ensemble_and_task([path], task=loaded, state=state)
        models.append(model)
    return [moved(model, device, precision) for model in models], loaded


def moved(model: Any, device: str, precision: str) -> Any:
    """A model in eval mode, on a device and in a key of :data:`PRECISIONS`."""
    import torch

    return model.to(device=device, dtype=getattr(torch, PRECISIONS[precision])).eval()


def batches(sizes, max_tokens: int) -> list[list[int]]:
    """Put examples of similar size together, the longest first: a batch that does not fit into memory fails at once."""
    grouped: list[list[int]] = []
    longest = 0
    for number in sorted(range(len(sizes)), key=lambda number: -int(sizes[number])):
        if grouped and (len(grouped[-1]) + 1) * longest <= max_tokens:
            grouped[-1].append(number)
        else:
            grouped.append([number])
            longest = int(sizes[number])
    return grouped


def read_batches(
    dataset: Any, batches: list[list[int]], device: str, num_workers: int, unit: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Read the batches of a fairseq dataset with a progress bar."""
    from fairseq import utils
    from torch.utils.data import DataLoader
    from tqdm import tqdm

    loader = DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=dataset.collater,
        num_workers=num_workers,
        pin_memory="cuda" in device,
    )
    with tqdm(total=sum(map(len, batches)), unit=unit, disable=None) as progress:
        for batch in loader:
            yield batch, utils.apply_to_sample(lambda x: x.to(device, non_blocking=True), batch)
            progress.update(len(batch["id"]))

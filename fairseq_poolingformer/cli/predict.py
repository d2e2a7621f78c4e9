"""``poolingformer predict``: predictions for a downstream task's data folder in its official format."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from fairseq_poolingformer.cli.models import add_device_options, batches, load_models, read_batches
from fairseq_poolingformer.cli.summarize import OTHER_COMMANDS
from fairseq_poolingformer.command import UsageError, output_file, run_command
from fairseq_poolingformer.options import (
    add_shard_options,
    add_user_dir,
    check_shard,
    natural,
    positive,
    shard,
    take_user_dir,
)
from fairseq_poolingformer.tasks import registry

UNPREDICTED = {
    "long_summarization": 'fairseq-generate DATA-FOLDER --user-dir "$(poolingformer user-dir)" '
    "--task long_summarization --path",
    **OTHER_COMMANDS,
}
_EPILOG = """\
examples:
  poolingformer predict data-bin/imdb --model run/checkpoint_best.pt --subset test --output predictions.jsonl
  poolingformer score predictions.jsonl --task document_classification --gold aclImdb/test

The data folder says which task it is; a task may have options of its own, as question answering has:
  poolingformer predict data-bin/nq --help
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = take_user_dir(sys.argv[1:] if arguments is None else arguments)
    task = next(filter(None, map(registry.of_folder, arguments)), None)
    module = task.module("predictions") if task else None  # with options of its own
    return run_command(make_parser(module), partial(run, module=module), arguments)


def make_parser(module: ModuleType | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line, with a task's own options."""
    parser = argparse.ArgumentParser(
        prog="poolingformer predict",
        description="Predict a split of a data folder and write the official prediction file of its task.",
        epilog=_EPILOG if module is None else module.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="a data folder of preprocess")
    add("--model", "--path", dest="path", metavar="MODEL", help="a checkpoint of the data folder's task")
    add("--subset", default="valid", help="split to predict (default: %(default)s)")
    add("--output", type=output_file, required=True, help="file of the predictions, perhaps .gz, .bz2 or .xz")
    add("--max-positions", type=positive, metavar="N", help="tokens of a segment, at least 8 (default: as in training)")
    text = "tokens of a batch; an example of more is a batch by itself (default: %(default)s)"
    add("--max-tokens", type=positive, default=16384, metavar="N", help=text)
    add_device_options(parser)
    add("--num-workers", type=natural, default=1, metavar="N", help="processes that read data (default: %(default)s)")
    add_shard_options(parser, "predict one N-th of the examples")
    add_user_dir(parser)
    if module is not None:
        module.add_options(parser)
    return parser


def run(args: argparse.Namespace, module: ModuleType | None = None) -> None:
    """Write the predictions of a split."""
    check_shard(args)
    if module is not None:
        return module.run(args, load_models, read_batches)
    if args.path is None:
        raise UsageError("give --model, the checkpoint or folder to predict with")
    if not args.data.is_dir():
        raise FileNotFoundError(f"{args.data}: no such folder")
    folder_task = registry.of_folder(args.data)
    if folder_task is not None and folder_task.name in UNPREDICTED:
        command = UNPREDICTED[folder_task.name].replace("DATA-FOLDER", str(args.data))
        raise ValueError(
            f"{args.data}: a data folder of --task {folder_task.name}, which is not predicted; {command} {args.path} "
            "reads it"
        )
    if folder_task is None or not folder_task.is_predicted:
        known = ", ".join(name for name, task in registry.tasks().items() if task.is_predicted)
        raise ValueError(f"{args.data}: not a finished data folder of a task that is predicted ({known})")
    (model,), task = load_models([args.path], args.device, args.precision, task=folder_task.name, data=args.data)
    from fairseq_poolingformer.tasks.shared.base_task import check_encoder

    if args.max_positions is not None:
        check_encoder(model, folder_task.name, args.max_positions)
        task.cfg.max_positions = args.max_positions
        task.check_lengths()
    predictor = task.predictor(args.data, args.subset)
    part = partial(shard, args)
    count = predict(model, task, args.subset, predictor, args.device, args.max_tokens, args.num_workers, part)
    predictor.write(args.output)
    print(f"{args.output}: predictions of {count} examples of {args.subset}", file=sys.stderr)


def predict(
    model,
    task,
    subset: str,
    predictor,
    device: str,
    max_tokens: int,
    num_workers: int = 0,
    part: Callable[[int], range] = range,
) -> int:
    """Give a predictor the outputs of a split's examples, or of a part of their numbers; return how many those are."""
    import torch

    task.read_whole()
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    numbers = part(len(dataset))
    sizes = dataset.sizes[numbers.start : numbers.stop]
    grouped = [[numbers[place] for place in places] for places in batches(sizes, max_tokens)]
    with torch.inference_mode():
        for batch, on_device in read_batches(dataset, grouped, device, num_workers, "example"):
            output, _ = model(**on_device["net_input"])
            predictor.add(batch["id"].tolist(), _on_cpu(output), batch)
    return len(numbers)


def _on_cpu(output: Any) -> Any:
    """The tensors of a head's output, which may be a dataclass of tensors and dataclasses, on the CPU."""
    from fairseq import utils

    if not is_dataclass(output) or isinstance(output, type):
        return utils.apply_to_sample(lambda x: x.cpu(), {"output": output})["output"]
    return replace(output, **{field.name: _on_cpu(getattr(output, field.name)) for field in fields(output)})

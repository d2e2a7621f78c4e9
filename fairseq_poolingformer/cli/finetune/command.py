"""``poolingformer finetune MODEL DATA``: from the data that people have to a model with figures, in one command."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_poolingformer.cli.options import DTYPES
from fairseq_poolingformer.command import finite, load_fairseq, natural, positive, run_command
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.presets import PRESETS
from fairseq_poolingformer.tasks.registry import PURPOSES
from fairseq_poolingformer.text.atomic_write import lock_folder, write_lines
from fairseq_poolingformer.text.json_file import read_json_file

CHOICES = "choices.json"  # from then on the arguments must stay the same
SCORES = "scores.json"  # which a finished job has

_EPILOG = """\
examples:
  poolingformer finetune facebook-bart-base my-documents --output-folder run
  poolingformer finetune roberta.base/model.pt reviews.csv --output-folder run --epochs 3
  poolingformer finetune roberta-base squad/train-v1.1.json --valid squad/dev-v1.1.json --output-folder run
  poolingformer summarize --checkpoint run paper.txt

MODEL and DATA come first. Other flags are those of poolingformer preprocess (--text-key, --valid, --split-key, …), or
else of fairseq-train. Started again with the same arguments, the command goes on where it was stopped.
"""


class _Parser(argparse.ArgumentParser):
    """Leaves flags that it does not know in ``further``."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:
        parsed, further = self.parse_known_args(args, namespace)
        parsed.further = further
        return parsed


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    if len(arguments) > 1 and any(argument.startswith("-") for argument in arguments[:2]):
        parser.error("give MODEL and DATA first: poolingformer finetune MODEL DATA --output-folder run …")
    return run_command(parser, run, arguments)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="poolingformer finetune",
        description="Fine-tune a model on data as they are, evaluate it, and leave a folder that fairseq and "
        "transformers open.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder of transformers, a name on the Hub, a checkpoint of fairseq, an architecture of this project "
        "(which begins with random weights), or demo, the small model that comes with the package",
    )
    text = "files, a folder or a name on the Hub, as poolingformer preprocess reads them; or a data folder that it made"
    parser.add_argument("data", metavar="DATA", help=text)
    parser.add_argument("--output-folder", type=Path, required=True, metavar="DIR", help="the folder of the model")
    group = parser.add_argument_group(
        "choices (default: by the data, the model and the memory; the command says which)"
    )
    add = group.add_argument
    text = f"what to learn: {', '.join(PURPOSES)}, or a release that preprocess lists, such as scrolls/qasper"
    add("--task", choices=(*PURPOSES, *PRESETS), metavar="NAME", help=f"{text} (default: the columns tell)")
    add(
        "--length", "--max-positions", "--max-source-positions", type=positive, metavar="N", help="tokens of a document"
    )
    add("--max-segments", type=positive, metavar="N", help="of a document of more tokens, in training (default: all)")
    add("--target-length", type=positive, metavar="N", help="tokens of a summary")
    add("--batch", type=positive, metavar="N", help="documents of an update, on all devices together")
    add("--device-batch", type=positive, metavar="N", help="documents at a time on a device")
    add("--checkpoint-activations", action="store_true", help="compute layers twice, which takes less memory")
    add("--epochs", type=positive, metavar="N", help="times that the documents are read")
    add("--updates", type=positive, metavar="N", help="end after so many updates")
    add("--warmup", type=natural, metavar="N", help="updates until the learning rate is at its peak")
    add("--lr", type=finite, metavar="RATE", help="peak learning rate")
    add("--precision", choices=DTYPES, help="of the training")
    add("--device", choices=("cpu", "cuda"), help="to train on")
    add("--seed", type=natural, default=1, metavar="N", help="of the training (default: %(default)s)")
    add("--beam", type=positive, default=5, metavar="N", help="beam size of summaries (default: %(default)s)")
    add("--lenpen", type=finite, default=2.0, help="their length penalty (default: %(default)s)")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do all that is not done yet."""
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no GPU; leave the option out to train on the CPU")
    output = args.output_folder.resolve()
    folder = output / "training"
    for name in ("model", "data"):
        if Path(getattr(args, name)).exists():
            setattr(args, name, str(Path(getattr(args, name)).resolve()))
    _claim(output, folder, {key: str(value) for key, value in vars(args).items() if key != "output_folder"})
    if (output / SCORES).is_file():
        _show(output)
        return
    with needing("fairseq"):
        load_fairseq()
        from fairseq.tasks import TASK_REGISTRY

        from fairseq_poolingformer.cli.finetune import choices, data, evaluation, probe, processes, results, start
    found = data.Data(args.data, args.further, args.task)
    _check_spelling(found.training_flags)
    begin = start.find(args.model, found.task, folder / "start", found.labels)
    for note in (*found.notes, *begin.notes):
        print(note)
    commands = processes.Commands(folder)
    if begin.command:
        commands.note(*begin.command)
    made = found.preprocess(commands, folder / "data", begin)
    lengths = choices.Lengths.of(made, TASK_REGISTRY[found.task].layout)
    examples = len(lengths.inputs)

    def flags(chosen: choices.Choices) -> list[str]:
        return choices.training_flags(chosen, begin, found.task, made, folder, lengths, found.training_flags)

    saved = folder / CHOICES
    if saved.is_file():
        chosen = choices.Choices(**read_json_file(saved))
    else:
        given = vars(args)
        chosen = choices.choose(given, begin, found.task, lengths)
        chosen = probe.fit(chosen, flags, folder, given, examples)
        write_lines(saved, [json.dumps(asdict(chosen), indent=1)])
    print(f"\n{chosen.as_text(found.task, found.text, found.counts, lengths)}")
    if not (folder / "trained").is_file():
        commands.run("fairseq-train", *flags(chosen), take=processes.Progress(chosen.total(examples)).take_training)
        (folder / "trained").touch()
    evaluated = folder / "evaluated.json"
    if not evaluated.is_file():
        generation = {"beam": args.beam, "lenpen": args.lenpen, **asdict(chosen)}
        result = evaluation.evaluate(commands, found, made, folder, generation)
        write_lines(evaluated, [json.dumps(result, indent=1)])
    result, name = read_json_file(evaluated), Path(args.data).stem
    for note in results.leave(output, folder, made, name, found.task, result, commands):
        print(note)
    _show(output)


def _check_spelling(flags: Sequence[str]) -> None:
    """Refuse a flag that is nearly one of this command's, and not fairseq's."""
    from fairseq.options import get_training_parser

    known = get_training_parser()._option_string_actions
    own = make_parser()._option_string_actions
    for flag in (word.partition("=")[0] for word in flags if word.startswith("--")):
        close = difflib.get_close_matches(flag, own, 1, 0.8)
        if flag not in known and close:
            raise ValueError(f"{flag}: there is no such option; did you mean {close[0]}?")


def _show(output: Path) -> None:
    """Print what a finished job has found."""
    from fairseq_poolingformer.cli.finetune import results

    print(f"\n{results.as_text(read_json_file(output / SCORES))}")
    print(f"{output} has the model, README.md and {SCORES}; training/ in it may be deleted")


def _claim(output: Path, folder: Path, request: Mapping[str, str]) -> None:
    """Take a folder for this job alone, and refuse one that holds something else."""
    file = folder / "arguments.json"
    if output.exists() and not file.is_file() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output}: is there, and not of this command; name a new folder, or move this one away first")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock_folder(folder)
    except BlockingIOError:
        raise ValueError(f"{output}: another finetune is running there; wait for it, or stop it") from None
    before = read_json_file(file) if file.is_file() else request
    differing = [name for name in request if request[name] != before.get(name)]
    if differing and (folder / CHOICES).is_file():
        changed = "; ".join(
            f"{name.replace('_', '-')} was {_shown(before.get(name))}, is {_shown(request[name])}" for name in differing
        )
        raise ValueError(
            f"{output}: was begun with other arguments ({changed}). Give the same ones to go on, or another "
            f"--output-folder; MODEL may be {output} then, to begin with what it has learned"
        )
    write_lines(file, [json.dumps(request, indent=1)])


def _shown(value: str | None) -> str:
    return "not given" if value in (None, "None") else value


if __name__ == "__main__":
    sys.exit(main())

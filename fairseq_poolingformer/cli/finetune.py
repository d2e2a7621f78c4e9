"""``poolingformer finetune MODEL DATA``: from the data that people have to a model with figures, in one command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_poolingformer.cli.command import load_fairseq, natural, positive, run_command
from fairseq_poolingformer.cli.options import DTYPES
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.whole_file import lock_folder, write_lines

TASKS = ("summarization", "classification", "question-answering")
VOCABULARY = 8000  # symbols of a tokenizer that is trained on the data
CHOSEN = (
    "length",
    "target_length",
    "batch",
    "device_batch",
    "epochs",
    "updates",
    "warmup",
    "lr",
    "precision",
    "device",
)
CHOSEN += ("checkpoint_activations", "seed")

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
        "(which begins with random weights), or reader, the small model that comes with the package",
    )
    text = "files, a folder or a name on the Hub, as poolingformer preprocess reads them; or a data folder that it made"
    parser.add_argument("data", metavar="DATA", help=text)
    parser.add_argument("--output-folder", type=Path, required=True, metavar="DIR", help="the folder of the model")
    group = parser.add_argument_group(
        "choices (default: by the data, the model and the memory; the command says which)"
    )
    add = group.add_argument
    add("--task", choices=TASKS, help="what to learn (default: the columns tell)")
    add(
        "--length", "--max-positions", "--max-source-positions", type=positive, metavar="N", help="tokens of a document"
    )
    add("--target-length", type=positive, metavar="N", help="tokens of a summary")
    add("--batch", type=positive, metavar="N", help="documents of an update, on all devices together")
    add("--device-batch", type=positive, metavar="N", help="documents at a time on a device")
    add("--checkpoint-activations", action="store_true", help="compute layers twice, which takes less memory")
    add("--epochs", type=positive, metavar="N", help="times that the documents are read")
    add("--updates", type=positive, metavar="N", help="end after so many updates")
    add("--warmup", type=natural, metavar="N", help="updates until the learning rate is at its peak")
    add("--lr", type=float, metavar="RATE", help="peak learning rate")
    add("--precision", choices=DTYPES, help="of the training")
    add("--device", choices=("cpu", "cuda"), help="to train on")
    add("--seed", type=natural, default=1, metavar="N", help="of the training (default: %(default)s)")
    add("--beam", type=positive, default=5, metavar="N", help="beam size of summaries (default: %(default)s)")
    add("--lenpen", type=float, default=2.0, help="their length penalty (default: %(default)s)")
    return parser


def run(args: argparse.Namespace) -> None:
    """Do all that is not done yet."""
    output = args.output_folder.resolve()
    folder = output / "training"
    for name in ("model", "data"):
        if Path(getattr(args, name)).exists():
            setattr(args, name, str(Path(getattr(args, name)).resolve()))
    _claim(output, folder, {key: str(value) for key, value in vars(args).items() if key != "output_folder"})
    from fairseq_poolingformer.finetune import choices, processes, results
    from fairseq_poolingformer.finetune import start as starts

    commands = processes.Commands(folder)
    job = _Made(args) if (Path(args.data) / "corpus.json").is_file() else _Raw(args)
    load_fairseq()
    start = starts.find(args.model, job.task, folder / "start", job.labels)
    for note in (*job.notes, *start.notes):
        print(note)
    if start.command:
        commands.note(*start.command)
    data = job.preprocess(commands, folder / "data", start)
    from fairseq.tasks import TASK_REGISTRY

    lengths = choices.Lengths.of(data, TASK_REGISTRY[job.task].layout)
    examples = len(lengths.inputs)

    def flags(chosen: choices.Choices) -> list[str]:
        return choices.training_flags(chosen, start, job.task, data, folder, examples, job.further)

    saved = folder / "choices.json"
    if saved.is_file():
        chosen = choices.Choices(**json.loads(saved.read_text(encoding="utf-8")))
    else:
        given = {name: getattr(args, name) for name in CHOSEN}
        chosen = _fitting(choices.choose(given, start, job.task, lengths), flags, args, folder, examples)
        write_lines(saved, [json.dumps(chosen.save(), indent=1)])
    total = chosen.total(examples)
    print(f"\n{_plan(chosen, job, lengths, total)}")
    if not (folder / "trained").is_file():
        commands.run("fairseq-train", *flags(chosen), take=processes.Progress(total).take)
        (folder / "trained").touch()
    scores = output / "scores.json"
    if not scores.is_file():
        generation = {"beam": args.beam, "lenpen": args.lenpen, **chosen.save()}
        result = results.evaluate(commands, job.task, data, folder, job.corpus, generation)
        for note in results.leave(output, folder, data, result, commands):
            print(note)
    print(f"\n{results.as_text(json.loads(scores.read_text(encoding='utf-8')))}")
    print(f"\n{output} has the model, README.md and scores.json; {folder.name}/ in it can be deleted")


def _claim(output: Path, folder: Path, request: Mapping[str, str]) -> None:
    """Take a folder for this job alone, and refuse one that holds something else.

    Raises:
        ValueError: it does, or another job, or this one is running.
    """
    file = folder / "arguments.json"
    if output.exists() and not file.is_file() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(
            f"{output}: is there already, and not of this command: name a new folder, or move this one away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock_folder(folder)
    except BlockingIOError:
        raise ValueError(
            f"{output}: another poolingformer finetune is running there; wait for it, or stop it"
        ) from None
    before = read_json_file(file) if file.is_file() else request
    differing = [name for name in request if request[name] != before.get(name)]
    if differing and (folder / "choices.json").is_file():
        name = differing[0]
        raise ValueError(
            f"{output}: was begun with {name.replace('_', '-')} {before.get(name)}, and this is {request[name]}. Give the "
            f"same arguments to go on, or another --output-folder; poolingformer finetune {output} … begins with its model"
        )
    write_lines(file, [json.dumps(request, indent=1)])


class _Made:
    """Data that were preprocessed already."""

    corpus = None
    notes: Sequence[str] = ()

    def __init__(self, args: argparse.Namespace) -> None:
        from fairseq_poolingformer.finetune.choices import RECIPES

        self._folder = Path(args.data)
        corpus = read_json_file(self._folder / "corpus.json")
        task = registry.of_kind(corpus.get("kind")) or registry.corpora().get(corpus.get("corpus"))
        if task is None or task.name not in RECIPES:
            raise ValueError(
                f"{args.data}: a data folder for {task.name if task else 'no known task'}; finetune learns {', '.join(RECIPES)}"
            )
        self.task, self.further, self.text = task.name, args.further, "of a data folder"
        self.counts = corpus["examples"]
        if not {"train", "valid"} <= self.counts.keys():
            raise ValueError(
                f"{args.data}: has {', '.join(self.counts)}, and finetune needs train and valid; preprocess again with --valid-share 0.1"
            )

    def labels(self) -> list[str]:
        from fairseq_poolingformer.tasks.classification.examples import read_labels

        return read_labels(self._folder)

    def preprocess(self, commands: Any, folder: Path, start: Any) -> Path:
        return self._folder


class _Raw:
    """Data as people have them."""

    def __init__(self, args: argparse.Namespace) -> None:
        from fairseq_poolingformer.preprocess.guess import guess

        self._found = guess(args.data, args.further, args.task)
        self.corpus = self._found.corpus()
        purpose = self._found.purpose
        self.task, self.further, self.notes, self.text = (
            purpose.task,
            self._found.others,
            self._found.notes,
            purpose.text,
        )
        self.counts: Mapping[str, int] = {}

    def labels(self) -> list[str]:
        return list(self.corpus.entries.get("labels", ()))

    def preprocess(self, commands: Any, folder: Path, start: Any) -> Path:
        from fairseq_poolingformer.preprocess.guess import vocabulary_size

        words = list(self._found.options)
        if not any(word.startswith(("--gpt2-bpe", "--sentencepiece")) for word in words):
            words += start.tokenizer or ["--sentencepiece-train", str(vocabulary_size(self.corpus, VOCABULARY))]
        words += ["--labels", *start.labels] if start.labels else []
        words += ["--output-folder", str(folder)]
        words += ["--report"] * (not (folder / "corpus.json").is_file())
        commands.run("poolingformer", "preprocess", self._found.purpose.corpus, *words)
        self.counts = read_json_file(folder / "corpus.json")["examples"]
        return folder


def _fitting(
    chosen: Any, flags: Callable[[Any], list[str]], args: argparse.Namespace, folder: Path, examples: int
) -> Any:
    """Find the batch that memory holds, by some updates; print the time that they let expect.

    Raises:
        ValueError: memory does not even hold one document.
    """
    from fairseq_poolingformer.finetune import choices, probe, processes

    share = max(1, chosen.batch // chosen.devices)
    while True:
        trial = replace(chosen, device_batch=chosen.device_batch or 1, devices=1)
        command = [sys.executable, "-m", probe.__name__, str(folder / "measured.json"), *flags(trial)]
        print(f"measuring some updates of {chosen.length:,} tokens at most …", flush=True)
        processes.follow(command, log=folder / "measured.out")
        found = probe.Measured(**read_json_file(folder / "measured.json"))
        rows = found.rows(share)
        if rows or args.device_batch:
            break
        if not chosen.checkpoint_activations:
            chosen = replace(chosen, checkpoint_activations=True)
        elif chosen.length > choices.SHORTEST and not args.length:
            chosen = replace(chosen, length=chosen.length // 2)
            print(
                f"memory ({found.available / 2**30:.1f} GiB) does not hold a document: {chosen.length:,} tokens are read"
            )
        else:
            raise ValueError(
                f"memory ({found.available / 2**30:.1f} GiB) does not hold one document of {found.longest:,} tokens; give "
                "a smaller --length, or a smaller model"
            )
    seconds = found.seconds_per_token * found.tokens * chosen.total(examples) * chosen.batch / examples / chosen.devices
    print(f"the training will take about {processes.duration(seconds)} (measured on {found.updates} small updates)")
    return replace(chosen, device_batch=args.device_batch or rows)


def _plan(chosen: Any, job: Any, lengths: Any, total: int) -> str:
    from fairseq_poolingformer.text.table import aligned

    cut = lengths.longer_than(chosen.length)
    counts = ", ".join(f"{count:,} {split}" for split, count in job.counts.items())
    of_memory = ", activations checkpointed" * chosen.checkpoint_activations
    rows = [
        ["task", f"{job.task} ({job.text})"],
        ["examples", counts],
        [
            "tokens",
            f"{chosen.length:,} of a document" + (f"; {100 * cut:.1f} % are longer, and cut (--length)" if cut else ""),
        ],
        ["update", f"{chosen.batch} examples, {chosen.device_batch} at a time{of_memory}"],
        ["training", f"{total:,} updates, {chosen.epochs} epochs; learning rate {chosen.lr:g} after {chosen.warmup}"],
        ["device", f"{chosen.devices} × {chosen.device}, {chosen.precision}"],
    ]
    return aligned(rows, left=2)


if __name__ == "__main__":
    sys.exit(main())

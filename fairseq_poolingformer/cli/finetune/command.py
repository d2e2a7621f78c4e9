"""``poolingformer finetune MODEL DATA``: from the data that people have to a model with figures, in one command."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import OpenParser, UsageError, natural, positive, run_command, share
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.registry import PURPOSES
from fairseq_poolingformer.text.atomic_write import lock_folder, write_lines
from fairseq_poolingformer.text.json_file import read_json_file

BEGUN = "begun.json"  # what a folder was begun with: model, data and settings
DECIDED = {"do_train", "do_eval", "do_predict", "resume_from_checkpoint", "predict_with_generate", "output_dir"}

_EPILOG = """\
examples:
  poolingformer finetune facebook/bart-base my-documents --output-folder run
  poolingformer finetune microsoft/deberta-v3-base reviews.csv --output-folder run --num_train_epochs 3
  poolingformer finetune bert-base-uncased contracts.parquet --output-folder run --compare short,window,long
  poolingformer finetune roberta-base train-v2.0.json --valid dev-v2.0.json --output-folder run
  torchrun --nproc_per_node=8 --no-python poolingformer finetune …       # several GPUs

MODEL and DATA come first. Other options are those of transformers' TrainingArguments, such as --learning_rate,
--per_device_train_batch_size or --bf16, and those by which poolingformer preprocess reads data: --text-key, --valid,
--split-key, --columns, …. Started again with the same arguments, the command goes on where it was stopped.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    asks = {"-h", "--help"} & set(arguments)
    if len(arguments) > 1 and any(argument.startswith("-") for argument in arguments[:2]) and not asks:
        parser.error("give MODEL and DATA first: poolingformer finetune MODEL DATA --output-folder run …")
    return run_command(parser, run, arguments)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = OpenParser(
        prog="poolingformer finetune",
        description="Fine-tune a model of transformers on data as they are, make it long where documents are, evaluate "
        "it beside simple baselines, and leave a folder that transformers opens.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    text = "a folder of transformers, a name on the Hub, a checkpoint of fairseq, or demo, which comes with the package"
    add("model", metavar="MODEL", help=text)
    add("data", metavar="DATA", help="a file, a folder or a name on the Hub, as poolingformer preprocess reads them")
    add("--output-folder", type=Path, required=True, metavar="DIR", help="the folder of the model")
    text = f"what to learn: {', '.join(PURPOSES)}"
    add("--task", choices=tuple(PURPOSES), metavar="NAME", help=f"{text} (default: the columns tell)")
    text = "tokens of a document (default: as many as the documents have, up to 4,096, or the model's)"
    add("--length", type=positive, metavar="N", help=text)
    add("--keep-short", action="store_true", help="keep the model's own length: documents are cut, or read in segments")
    text = "train several systems and print one table: short, the model in its own length; window, one window that "
    text += "costs as much as two levels; long, two levels"
    add("--compare", metavar="short,window,long", help=text)
    group = parser.add_argument_group("division, where no file says valid (test)")
    for split in ("valid", "test"):
        text = "share of the training examples, those of equal text together (default: %(default)s)"
        group.add_argument(f"--{split}-share", type=share, default=0.1, metavar="F", help=text)
    group.add_argument("--split-seed", type=natural, default=0, metavar="S", help="another number divides otherwise")
    text = "stop where more records of a split cannot be used (default: %(default)s)"
    group.add_argument("--max-reject-fraction", type=share, default=0.01, metavar="F", help=text)
    return parser


def run(args: argparse.Namespace) -> None:
    """Do all that is not done yet."""
    output, folder = args.output_folder, args.output_folder / "training"
    _check_place(output, args.data)
    with needing("finetune"), contextlib.ExitStack() as stack:
        for library in ("nltk", "pyarrow", "rouge_score", "scipy", "sklearn"):  # whose lack is noticed before any work
            importlib.import_module(library)
        import torch
        import transformers
        from accelerate import PartialState

        from fairseq_poolingformer.cli.finetune import base, data, job, results

        given, reading = _training_options(args.further)
        on_cpu = given.get("use_cpu", not torch.accelerator.is_available())
        process = PartialState(cpu=on_cpu)  # several, too
        if not process.is_main_process:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        found = data.Data.read(args, reading, make_parser()._option_string_actions)
        settings = {name: value for name, value in vars(args).items() if name not in ("output_folder", "further")}
        settings |= {**given, "reading": reading}
        settings |= {"the model": base.fingerprint(args.model), "the data": found.found.corpus.inputs}
        if process.is_main_process:
            _claim(output, folder, json.loads(json.dumps(settings, default=str)))
        process.wait_for_everyone()
        if (result := results.read_whole(output)) is None:
            print(found.report())
            with process.main_process_first():
                model = base.find(args.model, found.task, folder / "start")
            result = job.train_all(found, model, args, {**given, "use_cpu": on_cpu}, folder)
        print(f"\n{results.as_table(result)}")
        print(f"{output} has the model, {results.SCORES} and a card, README.md; training/ in it may be deleted")
        place = shlex.quote(str(output))
        print(f"new records: poolingformer predict FILE --model {place} --output predictions.jsonl")


def _training_options(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options that TrainingArguments has, and the others."""
    from transformers import HfArgumentParser, Seq2SeqTrainingArguments

    parser = HfArgumentParser(Seq2SeqTrainingArguments, add_help=False, allow_abbrev=False)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
        action.required = False

    def refuse(message: str) -> None:
        raise UsageError(message)

    parser.error = refuse
    given, others = parser.parse_known_args(list(words))
    if decided := DECIDED & vars(given).keys():
        raise UsageError(f"--{min(decided)}: the command decides that itself; leave it out")
    return vars(given), others


def _check_place(output: Path, data: str) -> None:
    """Refuse a folder that could not be read later, or in which the data would change."""
    if ":" in str(output):
        raise ValueError(f"{output}: a colon divides names of folders; name an --output-folder without one")
    if Path(data).is_dir() and output.resolve().is_relative_to(Path(data).resolve()):
        raise ValueError(f"{output}: lies in DATA, which would be read with it; name an --output-folder elsewhere")


def _claim(output: Path, folder: Path, settings: Mapping[str, Any]) -> None:
    """Take a folder for this job alone, and refuse one that holds something else, or was begun otherwise."""
    file = folder / BEGUN
    if not file.is_file() and output.exists() and (not output.is_dir() or {*output.iterdir()} - {folder}):
        raise ValueError(f"{output}: is there, and not of this command; name a new folder, or move this one away first")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock_folder(folder)
    except BlockingIOError:
        raise ValueError(f"{output}: another finetune is running there; wait for it, or stop it") from None
    if not file.is_file():
        for path in folder.iterdir():  # of a run that was killed before it knew what it does
            if path.is_dir():
                shutil.rmtree(path)
        write_lines(file, [json.dumps(settings, indent=1)])
        return
    before, changes = read_json_file(file), []
    for name in {**before, **settings}:
        was, now = before.get(name), settings.get(name)
        if was != now and name.startswith("the "):
            changes.append(f"{name} has changed")
        elif was != now:
            was, now = ("not given" if value in (None, []) else value for value in (was, now))
            changes.append(f"{name} was {was}, is {now}")
    if changes:
        listed = "; ".join(changes)
        raise ValueError(
            f"{output}: was begun otherwise ({listed}); give the same to go on, or another --output-folder"
        )


if __name__ == "__main__":
    sys.exit(main())

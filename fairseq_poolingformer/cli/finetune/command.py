"""``poolingformer finetune MODEL DATA``: from the data that people have to a model with figures, in one command."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_poolingformer.command import OpenParser, UsageError, did_you_mean, natural, positive, run_command, share
from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.text.atomic_write import lock_folder, write_lines
from fairseq_poolingformer.text.json_file import read_json_file

with needing("finetune"):
    from fairseq_poolingformer.preprocess.records import options

BEGUN = "begun.json"  # what a folder was begun with: model, data and settings
DECIDED = {"do_train", "do_eval", "do_predict", "resume_from_checkpoint", "predict_with_generate", "output_dir"}

_EPILOG = """\
examples:
  poolingformer finetune facebook/bart-base my-documents --output-folder run
  poolingformer finetune microsoft/deberta-v3-base reviews.csv --target-column stars --task classification \\
    --output-folder run --num_train_epochs 3
  poolingformer finetune bert-base-uncased contracts.parquet --output-folder run --compare short,window,long
  torchrun --nproc_per_node=8 --no-python poolingformer finetune …       # several GPUs

MODEL and DATA come first. Other options are those of transformers' TrainingArguments, such as --learning_rate,
--per_device_train_batch_size or --bf16. SIGTERM ends a training with a checkpoint; started again with the same
arguments, the command goes on from the last one.
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
        description="Fine-tune a model of transformers for summaries or for one label a document, make it long where "
        "documents are, evaluate it beside simple baselines, and leave a folder that transformers opens.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    text = "a folder of transformers, a name on the Hub, a checkpoint of fairseq, or demo, which comes with the package"
    add("model", metavar="MODEL", help=text)
    add("data", metavar="DATA", help="a file, a folder or a name on the Hub, as poolingformer preprocess reads them")
    add("--output-folder", type=Path, required=True, metavar="DIR", help="the folder of the model")
    text = "what to learn (default: by the name of the target's column)"
    add("--task", choices=("summarization", "classification"), help=text)
    text = "tokens of a document (default: as many as the documents have, up to 4,096, or the model's)"
    add("--length", type=positive, metavar="N", help=text)
    add("--keep-short", action="store_true", help="keep the model's own length: longer documents are cut")
    text = "train several systems and print one table: short, the model in its own length; window, one window that "
    text += "costs as much as two levels; long, two levels"
    add("--compare", metavar="short,window,long", help=text)
    group = parser.add_argument_group("columns", "Names, or paths: a.b is b in the object a")
    group.add_argument("--text-column", metavar="NAME", help="of the text (default: document, text or article)")
    text = "of what is to be learned (default: summary, abstract or label)"
    group.add_argument("--target-column", metavar="NAME", help=text)
    options.add_reading(parser)
    group = parser.add_argument_group("splits, where names of files and folders do not say them")
    for split in ("valid", "test"):
        group.add_argument(f"--{split}", metavar="FILE", nargs="+", help=f"files of {split}; DATA is then train")
    group.add_argument("--split-key", metavar="NAME", help="the column that says train, valid or test")
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

        training = _training_options(args.further)
        on_cpu = training.get("use_cpu", not torch.accelerator.is_available())
        process = PartialState(cpu=on_cpu)  # several, too
        if not process.is_main_process:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        examples = data.Data.read(args)
        job.check_options(examples.task, training)
        settings = {name: value for name, value in vars(args).items() if name not in ("output_folder", "further")}
        settings |= {**training, "the data": examples.corpus.inputs}
        if process.is_main_process:
            _claim(output, folder, json.loads(json.dumps(settings, default=str)))
        process.wait_for_everyone()
        if (output / results.SCORES).is_file():
            result = read_json_file(output / results.SCORES)
        else:
            print(examples.report())
            with process.main_process_first():
                model = base.find(args.model, examples.task, folder / "start")
            result = job.train_all(examples, model, args, {**training, "use_cpu": on_cpu}, folder)
        print(f"\n{results.as_table(result)}")
        print(f"{output} has the model, {results.SCORES} and a card, README.md; training/ in it may be deleted")
        place = shlex.quote(str(output))
        print(f"new records: poolingformer predict FILE --model {place} --output predictions.jsonl")


def _training_options(words: Sequence[str]) -> dict[str, Any]:
    """The options that TrainingArguments has."""
    from transformers import HfArgumentParser, Seq2SeqTrainingArguments

    parser = HfArgumentParser(Seq2SeqTrainingArguments, add_help=False, allow_abbrev=False)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
        action.required = False

    def refuse(message: str) -> None:
        raise UsageError(message)

    parser.error = refuse
    training, others = parser.parse_known_args(list(words))
    if others:
        known = {*parser._option_string_actions, *make_parser()._option_string_actions}
        raise UsageError(f"{others[0]}: there is no such option{did_you_mean(others[0].partition('=')[0], known)}")
    if decided := DECIDED & vars(training).keys():
        raise UsageError(f"--{min(decided)}: the command decides that itself; leave it out")
    return vars(training)


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
        write_lines(file, [json.dumps(settings, indent=1)])
        return
    before = read_json_file(file)
    if changed := [name for name in {**before, **settings} if before.get(name) != settings.get(name)]:
        raise ValueError(
            f"{output}: was begun with other settings ({', '.join(changed)}); give the same to go on, or another "
            "--output-folder"
        )

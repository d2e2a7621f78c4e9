"""``poolingformer-predict-qa``: answers a data folder's questions in the official format of their corpus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_poolingformer.cli.models import load_models, read_batches
from fairseq_poolingformer.cli.options import add_device_options, add_shard_options, check_shard, shard
from fairseq_poolingformer.command import UsageError, natural, positive, run_command
from fairseq_poolingformer.tasks.question_answering.examples import SegmentLimits
from fairseq_poolingformer.tasks.question_answering.head import BestAnswers, best_answers, mean_log_probabilities
from fairseq_poolingformer.tasks.question_answering.labels import count_longer, read_answers
from fairseq_poolingformer.tasks.question_answering.official_predictions import (
    Prediction,
    read_predictions,
    whole_text_file,
    write_predictions,
)
from fairseq_poolingformer.tasks.question_answering.predictions import ExampleIds, official_predictions, readable_lines
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH
from fairseq_poolingformer.text.tokenizers import load_tokenizer

_EPILOG = """\
examples:
  poolingformer-predict-qa data-bin/nq --path run/checkpoint_best.pt --subset valid --output predictions.json
  poolingformer-predict-qa data-bin/nq --path a/checkpoint_best.pt:b/checkpoint_best.pt --output ensemble.json

on two GPUs:
  for i in 0 1; do CUDA_VISIBLE_DEVICES=$i poolingformer-predict-qa data-bin/nq --path run/checkpoint_best.pt \\
      --num-shards 2 --shard-id $i --output shard$i.json & done; wait
  poolingformer-predict-qa data-bin/nq --join shard0.json shard1.json --output predictions.json
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(make_parser(), run, arguments)


def run(args: argparse.Namespace) -> None:
    """Write the predictions of a split, or join those of its shards."""
    if (args.path is None) == (args.join is None):
        raise UsageError("give --path to predict, or --join to join the predictions of shards")
    if args.join and args.readable:
        raise UsageError("--readable goes with --path; files of shards are joined with cat")
    check_shard(args)
    ids = ExampleIds.read(args.data, args.subset)
    for path in filter(None, (args.output, args.readable)):
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent}: no such folder to write {path.name} into")
    if args.join:
        write_predictions(args.output, ids.kind, join(args.join, ids))
    else:
        _predict(args, ids)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="poolingformer-predict-qa",
        description="Answer a data folder's questions and write the official prediction file of its corpus.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", type=Path, help="data folder")
    add("--path", help="checkpoint of task question_answering; several, separated by colons, make an ensemble")
    add("--join", nargs="+", type=Path, metavar="FILE", help="join these predictions of all shards into one file")
    add("--subset", default="valid", help="split to answer (default: %(default)s)")
    add("--output", type=Path, required=True, help="file of the predictions; a name that ends with .gz is compressed")
    add("--readable", type=Path, metavar="FILE", help="also write questions and answers as text, tab-separated")
    for flag, meaning in (
        ("--max-positions", "tokens of a segment, question and special symbols included"),
        ("--doc-stride", "document tokens between the beginnings of two segments"),
        ("--max-question-length", "tokens that longer questions are cut to"),
    ):
        add(flag, type=positive, metavar="N", help=f"{meaning} (default: as in training)")
    add(
        "--max-answer-length",
        type=positive,
        default=MAX_ANSWER_LENGTH,
        metavar="N",
        help="tokens of a short answer at most (default: %(default)s)",
    )
    add("--max-tokens", type=positive, default=16384, metavar="N", help="tokens of a batch (default: %(default)s)")
    add_device_options(parser)
    add("--num-workers", type=natural, default=1, metavar="N", help="processes that read data (default: %(default)s)")
    add_shard_options(parser, "answer one N-th of the questions")
    return parser


def _predict(args: argparse.Namespace, ids: ExampleIds) -> None:
    tokenizer = load_tokenizer(args.data) if args.readable else None
    paths = args.path.split(":")
    models, task = load_models(paths, args.device, args.precision, task="question_answering", data=args.data)
    dataset = task.load_whole(args.subset, _limits(args, task.limits, models))
    count = len(dataset.split)
    if count != len(ids):
        raise ValueError(
            f"{args.data}: {count} examples in {args.subset}, but {len(ids)} example ids; preprocess again"
        )
    longer = count_longer(read_answers(dataset.split), args.max_answer_length)
    if longer:
        print(
            f"note: {longer} annotated short answers of {args.subset} have more than --max-answer-length "
            f"{args.max_answer_length} tokens; they cannot be predicted",
            file=sys.stderr,
        )
    examples = shard(args, count)
    records = predict(
        models,
        dataset,
        examples,
        device=args.device,
        max_tokens=args.max_tokens,
        max_answer_length=args.max_answer_length,
        num_workers=args.num_workers,
    )
    write_predictions(args.output, ids.kind, official_predictions(ids, dataset.split, records, examples))
    print(f"{args.output}: predictions of {len(examples)} examples of {args.subset}", file=sys.stderr)
    if args.readable:
        with whole_text_file(args.readable) as file:
            lines = readable_lines(ids, dataset.split, records, examples, tokenizer)
            file.writelines(line + "\n" for line in lines)


def _limits(args: argparse.Namespace, trained: SegmentLimits, models: list) -> SegmentLimits:
    limits = SegmentLimits(
        args.max_positions or trained.max_positions,
        args.doc_stride or trained.doc_stride,
        args.max_question_length or trained.max_question_length,
    )
    longest = min(model.max_positions() for model in models)
    if limits.max_positions > longest:
        raise ValueError(f"--max-positions {limits.max_positions}, but the model takes {longest} tokens")
    if limits.max_positions > args.max_tokens:
        raise ValueError(
            f"--max-tokens {args.max_tokens} is less than a segment of {limits.max_positions} tokens; "
            "give at least that, or a smaller --max-positions"
        )
    return limits


@torch.inference_mode()
def predict(
    models: list,
    dataset: Any,
    examples: range,
    *,
    device: str,
    max_tokens: int,
    max_answer_length: int = MAX_ANSWER_LENGTH,
    num_workers: int = 0,
) -> np.ndarray:
    """Find the best answer of each example in one pass over its segments by all models."""
    segments, best = dataset.segments, BestAnswers(len(dataset.split))
    numbers = np.arange(segments.bounds[examples.start], segments.bounds[examples.stop])
    # the longest first: a batch that does not fit into memory fails at once
    order = numbers[np.argsort(-segments.size[numbers], kind="stable")]
    batches = dataset.batch_by_size(order, max_tokens=max_tokens)
    for read, batch in read_batches(dataset, batches, device, num_workers, "segment"):
        log_probs = mean_log_probabilities([model(**batch["net_input"])[0] for model in models])
        places, index = batch["net_input"]["head_inputs"], read["id"].numpy()
        masks = places["paragraph_ids"], places["span_mask"], batch["has_text"], batch["document_has_paragraphs"]
        answers = best_answers(log_probs, *masks, max_answer_length)
        best.add(answers, segments.example[index], segments.first_token[index], batch)
    return best.records


def join(files: Iterable[Path], ids: ExampleIds) -> list[Prediction]:
    """Read the predictions of several files and put them in the order of the data folder."""
    found: dict[int | str, Prediction] = {}
    for path in files:
        kind, predictions = read_predictions(path)
        if kind != ids.kind:
            raise ValueError(f"{path}: predictions of {kind}, but the data folder is of {ids.kind}")
        twice = next((example for example in predictions if example in found), None)
        if twice is not None:
            raise ValueError(f"{path}: example {twice} is in another file as well")
        found |= predictions
    known = set(ids.example_ids)
    unknown = next((example for example in found if example not in known), None)
    if unknown is not None:
        raise ValueError(f"example {unknown!r} is not in the data folder's split; is --subset right?")
    missing = [example for example in ids.example_ids if example not in found]
    if missing:
        raise ValueError(f"{len(missing)} of {len(known)} examples have no prediction, the first is {missing[0]}")
    return [found[example] for example in ids.example_ids]


if __name__ == "__main__":
    sys.exit(main())

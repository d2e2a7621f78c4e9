"""Answers a data folder's questions: what ``poolingformer predict`` does of this task, and the lines that it writes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.command import UsageError, output_file
from fairseq_poolingformer.options import positive, shard
from fairseq_poolingformer.tasks.question_answering.data import (
    PARAGRAPH_COLUMNS,
    QuestionAnsweringSplit,
    SegmentLimits,
    count_longer,
    example_id_text,
    read_answers,
)
from fairseq_poolingformer.tasks.question_answering.official import (
    NATURAL_QUESTIONS,
    NO_SPAN,
    TYDIQA,
    NaturalQuestionsPrediction,
    Prediction,
    Span,
    TydiqaPrediction,
    write_predictions,
)
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH
from fairseq_poolingformer.text.atomic_write import text_file
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.json_values import example_id_of
from fairseq_poolingformer.text.tokenizers import Tokenizer, load_tokenizer

EPILOG = """\
examples:
  poolingformer predict data-bin/nq --model run/checkpoint_best.pt --subset valid --output predictions.json
  poolingformer predict data-bin/nq --model a/checkpoint_best.pt:b/checkpoint_best.pt --output ensemble.json

on two GPUs; poolingformer score takes both files:
  for i in 0 1; do CUDA_VISIBLE_DEVICES=$i poolingformer predict data-bin/nq --model run/checkpoint_best.pt \\
      --num-shards 2 --shard-id $i --output shard$i.json & done; wait
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "Several checkpoints in --model, separated by colons, make an ensemble."
    group = parser.add_argument_group("question answering", text)
    add = group.add_argument
    add("--readable", type=output_file, metavar="FILE", help="also write questions and answers as text, tab-separated")
    for flag, meaning in (
        ("--doc-stride", "document tokens between the beginnings of two segments"),
        ("--max-question-length", "tokens that longer questions are cut to"),
    ):
        add(flag, type=positive, metavar="N", help=f"{meaning} (default: as in training)")
    text = "tokens of a short answer at most (default: %(default)s)"
    add("--max-answer-length", type=positive, default=MAX_ANSWER_LENGTH, metavar="N", help=text)


def run(args: argparse.Namespace, load_models: Callable, read_batches: Callable) -> None:
    """Write the predictions of a split; the functions are those of ``cli.models``."""
    if args.path is None:
        raise UsageError("give --model, the checkpoint or folder to predict with")
    ids = ExampleIds.read(args.data, args.subset)
    tokenizer = load_tokenizer(args.data) if args.readable else None
    paths = args.path.split(":")
    models, task = load_models(paths, args.device, args.precision, task="question_answering", data=args.data)
    dataset = task.load_whole(args.subset, _limits(args, task.limits, models))
    count = len(dataset.split)
    if count != len(ids):
        raise ValueError(
            f"{args.data}: {count} examples in {args.subset}, but {len(ids)} example ids; preprocess again"
        )
    if longer := count_longer(read_answers(dataset.split), args.max_answer_length):
        print(
            f"note: {longer} annotated short answers of {args.subset} have more than --max-answer-length "
            f"{args.max_answer_length} tokens; they cannot be predicted",
            file=sys.stderr,
        )
    examples = shard(args, count)

    def read(batches: list[list[int]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        return read_batches(dataset, batches, args.device, args.num_workers, "segment")

    records = predict(models, dataset, examples, read, args.max_tokens, args.max_answer_length)
    write_predictions(args.output, ids.kind, official_predictions(ids, dataset.split, records, examples))
    print(f"{args.output}: predictions of {len(examples)} examples of {args.subset}", file=sys.stderr)
    if args.readable:
        with text_file(args.readable) as file:
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


def predict(
    models: list,
    dataset: Any,
    examples: range,
    read_batches: Callable,
    max_tokens: int,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> np.ndarray:
    """Find the best answer of each example in one pass over its segments by all models."""
    import torch  # not above: --help needs none

    from fairseq_poolingformer.tasks.question_answering.head import BestAnswers, best_answers, mean_log_probabilities

    segments, best = dataset.segments, BestAnswers(len(dataset.split))
    numbers = np.arange(segments.bounds[examples.start], segments.bounds[examples.stop])
    # the longest first: a batch that does not fit into memory fails at once
    order = numbers[np.argsort(-segments.size[numbers], kind="stable")]
    batches = dataset.batch_by_size(order, max_tokens=max_tokens)
    with torch.inference_mode():
        for read, batch in read_batches(batches):
            log_probs = mean_log_probabilities([model(**batch["net_input"])[0] for model in models])
            places, index = batch["net_input"]["head_inputs"], read["id"].numpy()
            masks = places["paragraph_ids"], places["span_mask"], batch["has_text"], batch["document_has_paragraphs"]
            answers = best_answers(log_probs, *masks, max_answer_length)
            best.add(answers, segments.example[index], segments.first_token[index], batch)
    return best.records


READABLE_COLUMNS = ("example_id", "question", "short_answer", "short_score", "long_answer", "long_score")


def short_answer(record: np.void) -> tuple[str, float]:
    """Return the best kind of short answer of a record, ``"SPAN"``, ``"YES"`` or ``"NO"``, and its score."""
    scores = {kind: float(record[f"{kind.lower()}_score"]) for kind in ("SPAN", "YES", "NO")}
    kind = max(scores, key=scores.get)
    return kind, scores[kind]


def official_predictions(
    ids: ExampleIds, split: QuestionAnsweringSplit, records: np.ndarray, examples: range
) -> Iterator[Prediction]:
    """Yield one prediction for each example, in their order; an example without an answer gets a null prediction."""
    for example in examples:
        record = records[example]
        if record["score"] == -np.inf:
            long, candidate, span, answer, scores = NO_SPAN, -1, NO_SPAN, "NONE", (0.0, 0.0)
        else:
            kind, short_score = short_answer(record)
            long, candidate, span = NO_SPAN, -1, NO_SPAN
            if record["paragraph"] >= 0:  # its place in the corpus, and its number among the candidates
                row = dict(zip(PARAGRAPH_COLUMNS, split.paragraphs(example)[record["paragraph"]].tolist(), strict=True))
                long, candidate = _span(ids.kind, row["start_offset"], row["end_offset"]), row["candidate_index"]
            if kind == "SPAN":
                start, end = (column[example] for column in (split.start, split.end))
                span = _span(ids.kind, int(start[record["first_token"]]), int(end[record["end_token"] - 1]))
            answer = "NONE" if kind == "SPAN" else kind
            scores = (0.0 if long.is_null else float(record["long_score"]), short_score)
        if ids.kind == NATURAL_QUESTIONS:
            shorts = () if span.is_null else (span,)
            yield NaturalQuestionsPrediction(
                ids.example_ids[example], long, scores[0], shorts, scores[1], yes_no_answer=answer
            )
        else:
            yield TydiqaPrediction(
                *(ids.example_ids[example], ids.languages[example], candidate, scores[0], span, scores[1]),
                yes_no_answer=answer,
            )


def _span(kind: str, start: int, end: int) -> Span:
    if kind == NATURAL_QUESTIONS:
        return Span(start_token=start, end_token=end)
    return Span(start_byte=start, end_byte=end)


def readable_lines(
    ids: ExampleIds, split: QuestionAnsweringSplit, records: np.ndarray, examples: range, tokenizer: Tokenizer
) -> Iterator[str]:
    """Yield a heading and one line for each example, with the columns :data:`READABLE_COLUMNS` separated by tabs."""
    yield "\t".join(READABLE_COLUMNS)
    for example in examples:
        record, document = records[example], split.document[example]
        cells = [example_id_text(ids.example_ids[example]), tokenizer.decode(split.question[example]), "", "", "", ""]
        if record["score"] != -np.inf:
            kind, score = short_answer(record)
            span = document[record["first_token"] : record["end_token"]]
            cells[2:4] = tokenizer.decode(span) if kind == "SPAN" else kind, f"{score:.2f}"
        if record["paragraph"] >= 0:
            first, end = split.paragraphs(example)[record["paragraph"]][:2]
            cells[4:6] = tokenizer.decode(document[first:end]), f"{record['long_score']:.2f}"
        yield "\t".join(" ".join(cell.split()) for cell in cells)


@dataclass(frozen=True)
class ExampleIds:
    """The examples of a split as the official formats name them."""

    kind: str
    example_ids: list[int | str]
    languages: list[str] | None

    @classmethod
    def read(cls, folder: Path, split: str) -> ExampleIds:
        """Read ``corpus.json`` and ``{split}.id.txt``."""
        data = DataFolder(Path(folder), QuestionAnsweringSplit.layout)
        kind = data.corpus().get("kind")
        if kind not in (NATURAL_QUESTIONS, TYDIQA):
            raise ValueError(
                f"{data.corpus_path}: unknown kind {kind!r}; this task knows {NATURAL_QUESTIONS} and {TYDIQA}"
            )
        path = data.text(split, "id")
        width = 2 if kind == TYDIQA else 1
        ids, languages = [], []
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                columns = line.rstrip("\n").split("\t")
                if len(columns) != width:
                    raise ValueError(f"{path}, line {number}: {len(columns)} columns where {kind} has {width}")
                try:
                    ids.append(example_id_of({"example_id": json.loads(columns[0])}))
                except ValueError:
                    raise ValueError(f"{path}, line {number}: {columns[0]!r} is no id; preprocess again") from None
                languages.append(columns[-1])
        return cls(kind, ids, languages if kind == TYDIQA else None)

    def __len__(self) -> int:
        return len(self.example_ids)

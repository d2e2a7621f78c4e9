"""The official figures of Natural Questions and TyDi QA, and the options of ``poolingformer score`` for them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fairseq_poolingformer.command import UsageError, output_file
from fairseq_poolingformer.options import add_gold, add_predicted_only, number, positive
from fairseq_poolingformer.tasks.question_answering.official import (
    NATURAL_QUESTIONS,
    TYDIQA,
    GoldExample,
    Prediction,
    read_gold,
    read_predictions,
)
from fairseq_poolingformer.tasks.question_answering.scoring import (
    MIN_ANNOTATIONS,
    TYDIQA_LANGUAGES,
    average_over_languages,
    official_averages,
    official_metrics,
    pair_report,
    score_natural_questions,
    score_tydiqa,
    score_tydiqa_languages,
    table,
)
from fairseq_poolingformer.text.atomic_write import text_file

Gold = Mapping[int | str, GoldExample]
Predictions = Mapping[int | str, Prediction]
Figures = tuple[list[str], dict[str, object]]  # lines to print, and figures for --json
_NAMES = {NATURAL_QUESTIONS: "Natural Questions", TYDIQA: "TyDi QA"}
_EPILOG = """\
examples:
  poolingformer score --task question_answering predictions.json --gold v1.0/dev/nq-dev-*.jsonl.gz --workers 5
  poolingformer score --task question_answering predictions.jsonl --gold tydiqa-v1.0-dev.jsonl.gz --per-language
  poolingformer score --task question_answering test.json --gold test.jsonl --thresholds 3.2 5.1 --json scores.json

columns, with F1, P (precision) and R (recall) × 100:
  answered   examples with an answer to be found: at least --min-annotations annotators gave one
  predicted  examples with a predicted answer, whatever its score
  best       at the score threshold of the highest F1, the number that papers report; answers with a lower score count
             as no answer. TyDi QA: each language has a threshold of its own
  all        with every predicted answer, whatever its score
  given      at the given --thresholds
  R@P50      the highest recall with a precision of at least 50
TyDi QA's paper and leaderboard report the average without English.
"""


def make_parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Compute the official figures of Natural Questions or TyDi QA, without the official scripts.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "annotated examples, .jsonl or .jsonl.gz: Natural Questions, original or simplified, or TyDi QA's primary"
    add_gold(parser, f"{text} tasks", shards=True)
    add_predicted_only(parser)
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write every figure here, unrounded")
    parser.add_argument("--per-language", action="store_true", help="TyDi QA: a row for each language")
    parser.add_argument(
        "--thresholds",
        nargs=2,
        type=number,
        default=(None, None),
        metavar=("LONG", "SHORT"),
        help="also report figures at these score thresholds of long and short answers (TyDi QA: passage and minimal "
        "answers), for example the best ones of another set",
    )
    text = "an example has an answer when so many annotators gave one (default: %(default)s, as officially); 1 for "
    text += "data with one annotation each, such as training data"
    parser.add_argument("--min-annotations", type=positive, default=MIN_ANNOTATIONS, metavar="N", help=text)
    text = "gold files read at the same time (default: %(default)s)"
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help=text)
    return parser


def run(args: argparse.Namespace) -> None:
    files = [*args.file, *filter(None, [args.predictions])]
    if not files:
        raise UsageError("give a file of predictions, or those of all shards")
    kind, gold = read_gold(args.gold, args.workers)
    predictions = _read_shards(files, kind)
    if not gold.keys() & predictions.keys():
        raise ValueError(f"{files[0]} has no prediction for any example of the gold data: are they of another split?")
    if args.predicted_only:
        gold = {name: example for name, example in gold.items() if name in predictions}
    score = _natural_questions if kind == NATURAL_QUESTIONS else _tydiqa
    lines, figures = score(gold, predictions, args)
    print(f"{_NAMES[kind]}: {len(gold):,} examples, {len(predictions):,} predictions")
    print("\n".join(lines))
    if args.json:
        report = {"kind": kind, "examples": len(gold), "min_annotations": args.min_annotations, **figures}
        with text_file(args.json) as file:
            file.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def _read_shards(files: Sequence[str], kind: str) -> Predictions:
    """Read the predictions of a run, which may be in several files."""
    predictions: dict[int | str, Prediction] = {}
    for file in files:
        predicted_kind, of_file = read_predictions(file)
        if kind != predicted_kind:
            raise ValueError(
                f"{file} holds predictions in the format of {_NAMES[predicted_kind]}, but the gold data is of "
                f"{_NAMES[kind]}"
            )
        if twice := predictions.keys() & of_file.keys():
            raise ValueError(f"{file}: example {min(twice, key=str)} is in another file as well; give each shard once")
        predictions |= of_file
    return predictions


def _natural_questions(gold: Gold, predictions: Predictions, args: argparse.Namespace) -> Figures:
    if args.per_language:
        raise ValueError("--per-language is for TyDi QA; Natural Questions is in English")
    report = pair_report(score_natural_questions(gold, predictions, args.min_annotations), args.thresholds)
    lines = table("", {"long answer": report.long, "short answer": report.short})
    return lines, {"official": official_metrics(report, "long", "short"), "all": asdict(report)}


def _tydiqa(gold: Gold, predictions: Predictions, args: argparse.Namespace) -> Figures:
    everything = pair_report(score_tydiqa(gold, predictions, args.min_annotations), args.thresholds)
    scored = score_tydiqa_languages(gold, predictions, args.min_annotations)
    languages = {language: pair_report(outcomes, args.thresholds) for language, outcomes in scored.items()}
    reports = ((language, languages[language]) for language in languages if language in TYDIQA_LANGUAGES)
    official = {language: official_metrics(report, "passage", "minimal") for language, report in reports}
    averages, lines = {}, []
    for title, field in (("passage answer", "long"), ("minimal answer", "short")):
        reports = {language: getattr(report, field) for language, report in languages.items()}
        averages[field] = average_over_languages(reports)
        summary = {
            "average without English": averages[field],
            "average with English": average_over_languages(reports, english=True),
            "all examples": getattr(everything, field),
        }
        lines += ["", *table(title, {**(reports if args.per_language else {}), **summary})]
    official["average"] = official_averages(averages["long"], averages["short"])
    return lines, {
        "official": official,
        "languages": {language: asdict(report) for language, report in languages.items()},
        "all": asdict(everything),
    }

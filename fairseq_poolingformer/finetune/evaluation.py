"""What a trained model is worth: predictions by the commands for them, figures by ``poolingformer score``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.finetune.data import Data
from fairseq_poolingformer.finetune.processes import Commands, Generated
from fairseq_poolingformer.preprocess.guess import examples
from fairseq_poolingformer.tasks.classification import scores as label_scores
from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit
from fairseq_poolingformer.tasks.presets import squad
from fairseq_poolingformer.tasks.shared.estimates import bootstrap_means
from fairseq_poolingformer.tasks.shared.labels import AMOUNT, ONE, SEVERAL, read_labels, read_problem_type
from fairseq_poolingformer.tasks.token_labels.examples import TokenLabelSplit
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.whole_file import write_lines

SPLITS = ("test", "valid")  # to evaluate on: the first one that has what is to be learned
USER_DIR = Path(convert.__file__).resolve().parents[1]
SCORERS = {"document_classification": "document_classification", "token_labels": "token_labels", "triviaqa": "squad"}
SHOWN = (  # of the figures; those of each label are in training/
    *("accuracy", "precision", "recall", "f1", "macro_f1", "pearson", "spearman", "mse", "exact_match", "exact"),
    *("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"),
    *("rouge1", "rouge2", "rougeL", "rougeLsum", "geometric_mean", "exponential_similarity", "concordance_index"),
)

Figures = dict[str, dict[str, float]]  # name -> mean, and low and high where it is a mean over examples


def evaluate(commands: Commands, found: Data, data: Path, folder: Path, generation: Mapping[str, Any]) -> dict:
    """Predict the test split, or else the validation split, and score that.

    Args:
        commands: run them.
        found: what is learned.
        data: the data folder.
        folder: of the job.
        generation: the choices, with ``beam`` and ``lenpen`` of summaries.

    Returns:
        ``split``, ``examples``, ``predictions`` and ``figures``: none where nobody knows what is right.
    """
    best = checkpoint_of(folder)
    made = [split for split in SPLITS if any(data.glob(f"{split}.*"))]
    if found.task == "long_summarization":
        return _of_summaries(commands, found, data, folder, made, generation)
    golds = {split: _gold(found, data, split) for split in made}
    split = next((split for split in made if golds[split]), made[0])
    for one in dict.fromkeys([made[0], split]):  # a test split without answers is predicted all the same
        how = ("--device", generation["device"], "--precision", generation["precision"])
        output = folder / f"{one}.predictions"
        commands.run("poolingformer", "predict", data, "--path", best, "--subset", one, *how, "--output", output)
    gold, predictions = golds[split], folder / f"{split}.predictions"
    figures, count = _compare(commands, found.task, gold, predictions) if gold else ({}, 0)
    result = {"split": split, "examples": count, "predictions": str(predictions.relative_to(folder.parent))}
    return {**result, "without_prediction": len(gold) - count, "figures": figures}


def checkpoint_of(folder: Path) -> Path:
    """The best checkpoint of a job, or the last one of a training without validation."""
    best = folder / "checkpoints" / "checkpoint_best.pt"
    return best if best.is_file() else best.with_name("checkpoint_last.pt")


def _of_summaries(
    commands: Commands, found: Data, data: Path, folder: Path, made: list[str], generation: Mapping[str, Any]
) -> dict:
    """By the official figures of a preset, or by ROUGE."""
    texts = {split: (data / f"{split}.summary.txt").read_text(encoding="utf-8").split("\n")[:-1] for split in made}
    split = next((split for split in made if any(texts[split])), made[0])  # a preset's test may be secret
    output = folder / "generate.out"
    commands.run(
        *("fairseq-generate", data, "--user-dir", USER_DIR, "--task", found.task),
        *("--path", checkpoint_of(folder), "--gen-subset", split),
        *("--beam", generation["beam"], "--lenpen", f"{generation['lenpen']:g}"),
        *("--max-len-b", generation["target_length"], "--batch-size", generation["device_batch"]),
        *("--required-batch-size-multiple", "1", *["--cpu"] * (generation["device"] == "cpu")),
        *([] if generation["precision"] == "fp32" else [f"--{generation['precision']}"]),
        output=output.name,
        take=Generated(len(texts[split])).take,
    )
    result = {"split": split, "examples": len(texts[split]), "predictions": str(output.relative_to(folder.parent))}
    scored = folder / "figures.json"
    if found.preset and not found.is_divided:
        try:
            files = ("--ids", data / f"{split}.id.txt", "--split", split, "--json", scored, "--gold", found.name)
            commands.run("poolingformer", "score", "--task", found.preset, output, *files, output="figures.txt")
            figures, intervals = (read_json_file(scored)[key] for key in ("figures", "intervals"))
            return {**result, "figures": _shown(figures, intervals[found.preset])}
        except ValueError as error:  # such as rejected records
            print(f"no official figures of {found.preset} ({error}); ROUGE instead")
    commands.run(
        *("poolingformer", "score", output, "--references", data / f"{split}.summary.txt"),
        *("--output", folder / f"{split}.summaries.txt", "--json", scored, "--no-perl"),
        output="figures.txt",
    )
    scores = read_json_file(scored)["flavours"][0]["scores"]
    percent = {name: {key: 100 * value for key, value in one["f1"].items()} for name, one in scores.items()}
    return {**result, "figures": percent}


def _shown(figures: Mapping[str, Any], intervals: Mapping[str, tuple[float, float]]) -> Figures:
    found = {name: {"mean": figures[name]} for name in SHOWN if name in figures}
    return {
        name: {**one, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
        for name, one in found.items()
    }


def _compare(commands: Commands, task: str, gold: Mapping[str, Any], predictions: Path) -> tuple[Figures, int]:
    """Write what is right as the scorer reads it, and run that on the examples that both have; their number."""
    right, figures = (predictions.with_suffix(end) for end in (".gold.jsonl", ".figures.json"))
    if task == "triviaqa":
        predicted = read_json_file(predictions)
        gold = {name: texts for name, texts in gold.items() if name in predicted}
        asked = [{"id": name, "answers": [{"text": text} for text in texts]} for name, texts in gold.items()]
        right = right.with_suffix(".json")
        write_lines(right, [json.dumps({"data": [{"paragraphs": [{"qas": asked}]}]})])
    else:
        lines = predictions.read_text(encoding="utf-8").split("\n")[:-1]
        predicted = {json.loads(line)["id"]: line for line in lines}
        gold = {name: fields for name, fields in gold.items() if name in predicted}
        write_lines(right, [json.dumps({"id": name, **fields}) for name, fields in gold.items()])
        if len(gold) < len(lines):
            predictions = predictions.with_suffix(".known")
            write_lines(predictions, [line for name, line in predicted.items() if name in gold])
    if not gold:
        return {}, 0
    words = ("score", "--task", SCORERS[task], predictions, "--gold", right, "--json", figures)
    commands.run("poolingformer", *words, output="figures.txt")
    found = read_json_file(figures)
    return _shown(found.get("figures", found), _intervals(task, right, predictions)), len(gold)


def _intervals(task: str, gold: Path, predictions: Path) -> dict[str, tuple[float, float]]:
    """Of the figures that are means over examples."""
    if task == "token_labels":
        return {}
    if task == "triviaqa":
        answers, is_v2 = squad.read_gold([gold])
        scores = squad.question_scores(answers, read_json_file(predictions), is_v2)
        values = {name: [100 * value for value in found.values()] for name, found in scores.items()}
    else:
        values = label_scores.example_scores([gold], predictions)
    table = np.array(list(values.values()), float).T
    return {name: (one.low, one.high) for name, one in zip(values, bootstrap_means(table), strict=True)}


def _gold(found: Data, data: Path, split: str) -> dict[str, Any]:
    """What is right for each example of a split, as fields of a scorer's line, or the texts of the answers.

    Labels and answers of a test split, which no data folder has, are read from the data as people have them; nothing
    where nothing is known.
    """
    task, corpus = found.task, found.corpus
    if task not in SCORERS:
        return {}
    if corpus is None:
        return _gold_of_folder(task, data, split)
    read = examples(corpus, split)
    if task == "document_classification":
        labels = {one.id: one.label for one in read}
        if corpus.entries.get("problem_type") == AMOUNT:
            labels = {name: amount for name, label in labels.items() if (amount := _amount(label)) is not None}
        return {name: {"label": label} for name, label in labels.items()}
    if task == "token_labels":
        return {one.id: _words(one.texts, one.label, one.sentences) for one in read}
    answers = {json.loads(one.id)[0]: [one.texts[1][first:end] for first, end in one.answers] for one in read}
    return answers if any(answers.values()) else {}


def _amount(label: object) -> float | None:
    try:
        amount = float(label)
    except (TypeError, ValueError):
        return None
    return amount if math.isfinite(amount) else None


def _gold_of_folder(task: str, data: Path, split: str) -> dict[str, Any]:
    if task == "triviaqa":
        return {}
    kind = ClassificationSplit if task == "document_classification" else TokenLabelSplit
    labels, problem = read_labels(data, kind.layout), read_problem_type(data, kind.layout)
    arrays, ids = kind.open(data, split), kind.lines(data, split)
    known = [(number, name) for number, name in enumerate(ids) if len(arrays.label[number])]
    if task == "token_labels":
        words = kind.lines(data, split, "words")
        return {
            name: _words(
                json.loads(words[n]), [labels[label] for label in arrays.label[n]], arrays.sentence[n].tolist()
            )
            for n, name in known
        }
    decode = {
        ONE: lambda row: labels[row[0]],
        SEVERAL: lambda row: [labels[place] for place in np.flatnonzero(row)],
        AMOUNT: lambda row: float(np.array(row, np.int32).view(np.float32)[0]),
    }[problem]
    return {name: {"label": decode(arrays.label[number])} for number, name in known}


def _words(tokens: Any, labels: Any, sentences: Any) -> dict[str, Any]:
    return {"tokens": list(tokens), "labels": list(labels), "sentences": list(sentences)}

"""What a trained model is worth: predictions by the commands for them, figures by ``poolingformer score``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.cli.finetune.choices import USER_DIR
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.cli.finetune.processes import Commands, Progress
from fairseq_poolingformer.cli.finetune.start import LABELLED
from fairseq_poolingformer.preprocess.guess import examples
from fairseq_poolingformer.preprocess.pipeline.records import describe_file
from fairseq_poolingformer.preprocess.pipeline.run import SOURCES
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.tasks.classification.data import ClassificationSplit
from fairseq_poolingformer.tasks.token_labels.data import TokenLabelSplit
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.labels import AMOUNT, ONE, SEVERAL, read_labels, read_problem_type

SPLITS = ("test", "valid")  # to evaluate on: the first one that has what is to be learned
OF_EACH_LABEL = ("precision_", "recall_", "f1_")  # figures that stay in training/
OF_ANSWERS = ("f1", "precision", "recall")
TEXT_LENGTH = "mean_prediction_length_characters"

Figures = dict[str, dict[str, float]]  # name -> mean, and low and high where it is a mean over examples


def evaluate(commands: Commands, found: Data, data: Path, folder: Path, generation: Mapping[str, Any]) -> dict:
    """Predict the test split, or else the validation split, and score that."""
    made = [split for split in SPLITS if any(data.glob(f"{split}.*"))]
    if found.task == "long_summarization":
        return _of_summaries(commands, found, data, folder, made, generation)
    for split in made:
        gold = _gold(found, data, split)
        if not gold and split != made[0]:  # a test split without answers is predicted all the same
            continue
        how = ("--device", generation["device"], "--precision", generation["precision"])
        file, best = folder / f"{split}.predictions", checkpoint_of(folder)
        commands.run("poolingformer", "predict", data, "--path", best, "--subset", split, *how, "--output", file)
        if scored := _score(commands, found, gold, file):
            named = f"{folder.name}/{file.name}"
            return {"split": split, "examples": found.counts.get(split, 0), "predictions": named, **scored}
    names = [one["file"] for one in _described(data, made[0]) if "file" in one]
    named = f"{folder.name}/{made[0]}.predictions"
    return {
        "split": made[0],
        "examples": 0,
        "predictions": named,
        "made_of": names,
        "task": found.scorer,
        "figures": {},
    }


def checkpoint_of(folder: Path) -> Path:
    """The best checkpoint of a job, or the last one of a training without validation."""
    best = folder / "checkpoints" / "checkpoint_best.pt"
    return best if best.is_file() else best.with_name("checkpoint_last.pt")


def _score(commands: Commands, found: Data, gold: dict[str, Any] | list[Path], predictions: Path) -> dict[str, Any]:
    """``figures`` and counts of predictions; nothing where no right answer is known."""
    figures, files, counts = predictions.with_suffix(".figures.json"), gold, {}
    if isinstance(gold, dict):
        files, predictions, known = _written(found.scorer, gold, predictions)
        counts = {"examples": known, "without_prediction": len(gold) - known}
    if not files:
        return {}
    parser = score.parser_of(found.scorer)
    flags = [flag for flag in ("--predicted-only", "--intervals") if flag in parser._option_string_actions]
    words = ("score", "--task", found.scorer, predictions, "--gold", *files, *flags, "--json", figures)
    try:
        commands.run("poolingformer", *words, output="figures.txt")
    except ValueError as error:
        if files is not gold:
            raise
        print(f"{predictions.stem} is not scored: {error}")  # such as a released test file without answers
        return {}
    read = read_json_file(figures)
    counts = counts or {name: read[name] for name in ("examples", "without_prediction") if name in read}
    return {**counts, "figures": figures_of(read, found.task, found.scorer)}


def figures_of(read: Mapping[str, Any], task: str, scorer: str) -> Figures:
    """What ``poolingformer score --json`` wrote, in percent: without counts, and without those of each label."""
    figures, intervals = read.get("figures", read), read.get("intervals", {})
    intervals = intervals.get(scorer, intervals)
    if "official" in read:  # of questions about Wikipedia pages
        average = read["official"].get("average")
        best = {f"{kind}_{name}": read["all"][kind]["best"][name] for kind in ("long", "short") for name in OF_ANSWERS}
        figures = {name: 100 * value for name, value in (average or best).items()}
    hidden = OF_EACH_LABEL if task in LABELLED else ()
    return {
        name: {"mean": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
        for name, value in figures.items()
        if isinstance(value, float) and name != TEXT_LENGTH and not name.startswith(hidden)
    }


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
        *("--beam", generation["beam"], "--lenpen", generation["lenpen"]),
        *("--max-len-b", generation["target_length"], "--batch-size", generation["device_batch"]),
        *("--required-batch-size-multiple", "1", *["--cpu"] * (generation["device"] == "cpu")),
        *([] if generation["precision"] == "fp32" else [f"--{generation['precision']}"]),
        output=output.name,
        take=Progress(len(texts[split])).take_summary,
    )
    result = {"split": split, "examples": len(texts[split]), "predictions": str(output.relative_to(folder.parent))}
    scored = folder / "figures.json"
    if found.preset and not found.is_divided:
        try:
            files = ("--ids", data / f"{split}.id.txt", "--split", split, "--json", scored, "--gold", found.name)
            commands.run("poolingformer", "score", "--task", found.preset, output, *files, output="figures.txt")
            return {**result, "figures": figures_of(read_json_file(scored), found.task, found.preset)}
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


def _written(scorer: str, gold: Mapping[str, Any], predictions: Path) -> tuple[list[Path], Path, int]:
    """Write what is right as the scorer reads it; return the file, the predictions of which it is known, and their
    number."""
    right = predictions.with_suffix(".gold.json" if scorer == "squad" else ".gold.jsonl")
    if scorer == "squad":
        asked = [{"id": name, **fields} for name, fields in gold.items()]
        write_lines(right, [json.dumps({"data": [{"paragraphs": [{"qas": asked}]}]})])
        known = gold.keys() & read_json_file(predictions).keys()
        return [right] * bool(known), predictions, len(known)
    write_lines(right, [json.dumps({"id": name, **fields}) for name, fields in gold.items()])
    lines = predictions.read_text(encoding="utf-8").split("\n")[:-1]
    known = [line for line in lines if json.loads(line)["id"] in gold]
    if len(known) < len(lines):
        predictions = predictions.with_suffix(".known")
        write_lines(predictions, known)
    return [right] * bool(known), predictions, len(known)


def _gold(found: Data, data: Path, split: str) -> dict[str, Any] | list[Path]:
    """What is right for each example of a split, as fields of a scorer's line, or the files that have it.

    Labels and answers of a test split, which no data folder has, are read from the data as people have them; nothing
    where nothing is known.
    """
    task, corpus = found.task, found.corpus
    if corpus is None:
        if task in LABELLED:
            return _labels_of_folder(task, data, split)
        return released(data, split) if registry.tasks()[task].figures else []
    read = examples(corpus, split)
    if task == "document_classification":
        labels = {one.id: one.label for one in read}
        if corpus.entries.get("problem_type") == AMOUNT:
            labels = {name: amount for name, label in labels.items() if (amount := _amount(label)) is not None}
        return {name: {"label": label} for name, label in labels.items()}
    if task == "token_labels":
        return {one.id: _words(one.texts, one.label, one.sentences) for one in read}
    answers = {
        json.loads(one.id)[0]: {"answers": [{"text": one.texts[1][first:end]} for first, end in one.answers]}
        for one in read
    }
    return answers if any(one["answers"] for one in answers.values()) else {}


def released(data: Path, split: str) -> list[Path]:
    """The files that a split was made of; nothing unless all are where they were, as they were."""
    described = _described(data, split)
    sources = data / SOURCES
    paths = map(Path, dict.fromkeys(sources.read_text(encoding="utf-8").splitlines() if sources.is_file() else ()))
    sizes = {(one.get("file"), one.get("bytes")) for one in described}
    same = [path for path in paths if path.is_file() and (path.name, path.stat().st_size) in sizes]
    found = {str(one): path for path in same if (one := describe_file(path)) in described}
    return list(found.values()) if len(found) == len({str(one) for one in described}) else []


def _described(data: Path, split: str) -> list[dict[str, Any]]:
    """What a data folder says of the files of a split, which may have been taken out of those of train."""
    inputs = read_json_file(data / "corpus.json").get("inputs")
    return (inputs.get(split) or inputs.get("train") or []) if isinstance(inputs, dict) else []


def _amount(label: object) -> float | None:
    try:
        amount = float(label)
    except (TypeError, ValueError):
        return None
    return amount if math.isfinite(amount) else None


def _labels_of_folder(task: str, data: Path, split: str) -> dict[str, Any]:
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

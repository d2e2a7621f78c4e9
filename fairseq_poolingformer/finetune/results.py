"""What a trained model is worth, with intervals, and the folder that it leaves."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_poolingformer.checkpoint_reader.checkpoints import load
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.extras import MissingLibraryError
from fairseq_poolingformer.finetune.processes import Commands
from fairseq_poolingformer.patches.long_jobs import companions
from fairseq_poolingformer.preprocess.guess import examples
from fairseq_poolingformer.preprocess.pipeline.run import Corpus
from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit, read_labels
from fairseq_poolingformer.tasks.classification.scores import read_gold
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES, Estimate, bootstrap_means
from fairseq_poolingformer.tasks.shared.normalized_text import hotpotqa_words, overlap
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.text.whole_file import whole_file, write_lines
from fairseq_poolingformer.weights import ConversionError, card, files
from fairseq_poolingformer.weights.convert import FAMILIES, default_model_type

CHECKPOINT = "model.pt"
SPLITS = ("test", "valid")  # to evaluate on: the first one that has what is to be learned
USER_DIR = Path(convert.__file__).resolve().parents[1]


def evaluate(
    commands: Commands, task: str, data: Path, folder: Path, corpus: Corpus | None, generation: Mapping[str, Any]
) -> dict[str, Any]:
    """Predict the test split, or else the validation split, by the commands for it, and score that.

    Args:
        commands: run them.
        task: fairseq's ``--task``.
        data: the data folder.
        folder: of the job.
        corpus: the data as they were found; None for a data folder that was there.
        generation: the choices, with ``beam`` and ``lenpen`` of summaries.

    Returns:
        ``split``, ``examples``, and ``figures``: name -> mean, low, high in percent; none where nobody knows what is
        right.
    """
    best = checkpoint_of(folder)
    made = [split for split in SPLITS if any(data.glob(f"{split}.*"))]
    if task == "long_summarization":
        split = made[0]
        commands.run(
            *("fairseq-generate", data, "--user-dir", USER_DIR, "--task", task, "--path", best, "--gen-subset", split),
            *("--beam", generation["beam"], "--lenpen", f"{generation['lenpen']:g}"),
            *("--max-len-b", generation["target_length"], "--batch-size", generation["device_batch"]),
            *("--required-batch-size-multiple", "1", *["--cpu"] * (generation["device"] == "cpu")),
            *([] if generation["precision"] == "fp32" else [f"--{generation['precision']}"]),
            output="generate.out",
        )
        commands.run(
            *("poolingformer", "score", folder / "generate.out", "--references", data / f"{split}.summary.txt"),
            *("--output", folder / f"{split}.summaries.txt", "--json", folder / "rouge.json", "--no-perl"),
            output="rouge.txt",
        )
        scored = read_json_file(folder / "rouge.json")
        figures = {name: Estimate(**one["f1"]) for name, one in scored["flavours"][0]["scores"].items()}
        return _result(split, scored["examples"], figures)
    golds = {split: _gold(task, data, corpus, split) for split in made}
    split = next((split for split in made if golds[split]), made[0])
    for one in dict.fromkeys([made[0], split]):  # a test split without answers is predicted all the same
        how = ("--device", generation["device"], "--precision", generation["precision"])
        output = folder / f"{one}.predictions"
        commands.run("poolingformer", "predict", data, "--path", best, "--subset", one, *how, "--output", output)
    figures = _figures(task, golds[split], folder / f"{split}.predictions") if golds[split] else {}
    return _result(split, len(golds[split]), figures)


def _gold(task: str, data: Path, corpus: Corpus | None, split: str) -> dict[str, Any]:
    """What is right for each example of a split: a label, or the texts of the answers; empty where nothing is known.

    Labels and answers of a test split, which no data folder has, are read from the data as people have them.
    """
    if corpus is None and task == "document_classification":
        labels, arrays = read_labels(data), ClassificationSplit.open(data, split)
        found = zip(ClassificationSplit.lines(data, split), (arrays.label[n] for n in range(len(arrays))), strict=True)
        return {name: labels[label[0]] for name, label in found if len(label)}
    if corpus is None or task not in ("document_classification", "triviaqa"):
        return {}
    if task == "document_classification":
        return {example.id: example.label for example in examples(corpus, split)}
    answered = {
        json.loads(example.id)[0]: [example.texts[1][first:end] for first, end in example.answers]
        for example in examples(corpus, split)
    }
    return answered if any(answered.values()) else {}


def _figures(task: str, gold: Mapping[str, Any], predictions: Path) -> dict[str, Estimate]:
    """Accuracy, or exact match and F1 as SQuAD's script counts them; what has no prediction is wrong."""
    if task == "document_classification":
        found = read_gold(predictions)
        names, rows = ["accuracy"], [[float(found.get(name) == label)] for name, label in gold.items()]
    else:
        answers = read_json_file(predictions)
        names = ["exact_match", "f1"]
        rows = [_answer_scores(answers.get(name, ""), texts) for name, texts in gold.items()]
    return dict(zip(names, bootstrap_means(np.array(rows)), strict=True))


def _answer_scores(answer: str, right: Sequence[str]) -> list[float]:
    """Exact match and F1; no answer is right where there is none."""
    words, texts = hotpotqa_words(answer), [hotpotqa_words(text) for text in right or [""]]  # normalized as SQuAD's
    return [float(words in texts), max(float(words == text) or overlap(words, text).f1 for text in texts)]


def _result(split: str, count: int, figures: Mapping[str, Estimate]) -> dict[str, Any]:
    percent = {name: {key: 100 * value for key, value in asdict(one).items()} for name, one in figures.items()}
    return {"split": split, "examples": count, "figures": percent}


def as_text(result: Mapping[str, Any]) -> str:
    """The figures, for people."""
    if not result["figures"]:
        return f"{result['split']} is predicted; what is right is not known here: poolingformer score --gold compares"
    rows = [[f"{result['split']}, {result['examples']:,} examples", "%", f"95 % of {RESAMPLES} resamples (bootstrap)"]]
    rows += [[name, f"{one['mean']:.2f}", _interval(one)] for name, one in result["figures"].items()]
    return aligned(rows)


def _interval(one: Mapping[str, float]) -> str:
    return f"[{one['low']:.2f}, {one['high']:.2f}]"


def checkpoint_of(folder: Path) -> Path:
    """The best checkpoint of a job, or the last one of a training without validation."""
    best = folder / "checkpoints" / "checkpoint_best.pt"
    return best if best.is_file() else best.with_name("checkpoint_last.pt")


def leave(
    output: Path, folder: Path, data: Path, name: str, result: Mapping[str, Any], commands: Commands
) -> list[str]:
    """Put the model into its folder: for fairseq and for transformers, with dictionary, tokenizer and card.

    Args:
        output: the folder.
        folder: of the job.
        data: the data folder.
        name: of the data, for the card.
        result: of :func:`evaluate`.
        commands: note the conversion.

    Returns:
        Sentences for people.
    """
    state = load(checkpoint_of(folder))
    with whole_file(output / CHECKPOINT) as path:
        torch.save({**state, "last_optimizer_state": None}, path)
    companions.copy(data, output)
    shutil.copyfile(data / "corpus.json", output / "corpus.json")
    notes = []
    made = folder / "transformers" / output.name  # whose name the card takes
    shutil.rmtree(made.parent, ignore_errors=True)  # of a run that was stopped here
    words = ("convert", "to-huggingface", str(output / CHECKPOINT), str(made))
    commands.note("poolingformer", *words)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args = convert.make_parser().parse_args(words[1:])
            args.convert(args)
        for path in made.iterdir():
            path.replace(output / path.name)
        shutil.rmtree(made.parent)
    except (ConversionError, MissingLibraryError) as error:
        notes.append(f"for fairseq only: {error}")
        settings, parameters, training = files.read_training(output / CHECKPOINT)
        family = FAMILIES[default_model_type(settings)]
        text = card.model_card(output.name, family, settings, parameters, library="fairseq", training=training)
        (output / card.CARD).write_text(text, encoding="utf-8")
    _complete_card(output / card.CARD, read_json_file(data / "corpus.json")["corpus"], name, result)
    write_lines(output / "scores.json", [json.dumps(result, indent=1)])
    return notes


def _complete_card(path: Path, corpus: str, name: str, result: Mapping[str, Any]) -> None:
    """Add the figures to a card, and call the data by their own name, not by that of the command that read them."""
    rows = {figure: f"{one['mean']:.2f} {_interval(one)}" for figure, one in result["figures"].items()}
    title = f"Results on {result['examples']:,} examples of {result['split']}, % [95 % interval]"
    text = path.read_text(encoding="utf-8")
    for quoted in ('"{}"', "`{}`"):
        text = text.replace(quoted.format(corpus), quoted.format(name))
    path.write_text(f"{text}\n{card.table(title, rows)}\n" if rows else text, encoding="utf-8")

"""Every downstream task from its input to official figures: a tiny model learns it by heart, predicts it, is scored.

One table of tasks, among which the kinds of encoders are spread.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from fairseq_poolingformer.cli import predict, score
from fairseq_poolingformer.weights.files import write_checkpoint
from preprocess import labelled_text, ontonotes
from tests.tasks.folders import random_wikihop, write_wikihop
from tests.tasks.released_files import HOTPOTQA_QUESTIONS, hotpotqa_folder, triviaqa_folder
from tests.tasks.test_document_tasks import ENCODERS, make
from tests.text.tiny_gpt2 import TEXT, write_vocabulary

LONG = [(name, "--max-positions", "320", "--window-size", "8") for name, *_ in ENCODERS[:2]]
SHORT_SEGMENTS = (ENCODERS[1][0], "--pooled-layers", "none", "--window-size", "80", "--max-positions", "80")


def preprocess(module, folder: Path, train: Path, *flags: object) -> Path:
    gpt2 = ["--gpt2-bpe", write_vocabulary(folder / "gpt2"), "--output-folder", folder / "data", "--workers", 1]
    assert module.main(list(map(str, [*gpt2, "--train", train, "--valid", train, *flags]))) == 0
    return folder / "data"


def write_lines(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def wikihop(folder: Path) -> tuple[Path, Path]:
    examples = [example for example in random_wikihop(8, seed=3) if example["answer"]][:4]
    names = [[f"{k}.{n}" for n in range(len(example["candidates"]))] for k, example in enumerate(examples)]
    answers = [candidates[example["answer"][0]] for candidates, example in zip(names, examples, strict=True)]
    gold = [{"id": f"WH_{k}", "candidates": names[k], "answer": answers[k]} for k in range(len(examples))]
    (folder / "gold.json").write_text(json.dumps(gold))
    return write_wikihop(folder / "data", {"train": examples, "valid": examples}), folder / "gold.json"


def triviaqa(folder: Path) -> tuple[Path, Path]:
    return triviaqa_folder(folder), folder / "raw" / "qa" / "set.json"


def hotpotqa(folder: Path) -> tuple[Path, Path]:
    return hotpotqa_folder(folder), folder / "hotpot.json"


def labelled(folder: Path) -> tuple[Path, Path]:
    """Documents of one to three segments, through preprocessing."""
    rng, vocabulary = np.random.default_rng(0), sorted(set(TEXT.split()))
    texts = [" ".join(rng.choice(vocabulary, size)) for size in (4, 30, 20, 6)]
    rows = [{"id": f"d{k}", "text": text, "label": "acbc"[k]} for k, text in enumerate(texts)]
    gold = write_lines(folder / "rows.jsonl", rows)
    return preprocess(labelled_text, folder, gold), gold


LINES = [  # words with the brackets of their mentions, nested ones among them; an empty line ends a sentence
    *("Anna (0)", "saw", "the (1", "ferry 1)", "of", "her (0)", "town", ".", ""),
    *("It (1)", "was", "Rosa (3|(2", "'s 3)", "ferry 2)", ".", ""),
    *("She (3)", "sold", "it (2)", "to", "Anna (0)", "."),
]


def conll(folder: Path) -> tuple[Path, Path]:
    lines = ["#begin document (nw/a/00/a_0000); part 000"]
    for line in LINES:
        word, _, brackets = line.partition(" ")
        lines.append(" ".join(["nw/a/00/a_0000", "0", "0", word, *("-",) * 7, brackets or "-"]) if word else "")
    (folder / "gold.conll").write_text("\n".join([*lines, "", "#end document", ""]), encoding="utf-8")
    return preprocess(ontonotes, folder, folder / "gold.conll"), folder / "gold.conll"


@dataclass(frozen=True)
class Case:
    """A task, what makes its data folder and gold file, and the figure that must be 100 (or above ``least``)."""

    task: str
    make_folder: Callable[[Path], tuple[Path, Path]]
    figure: str
    encoder: tuple
    flags: tuple[str, ...] = ()
    lr: float = 5e-3
    updates: int = 100
    least: float = 100


SPANS = {"flags": ("--max-question-length", "24")}
HEAD = ("--head-hidden", "32", "--head-dropout", "0", "--max-span-width", "3", "--span-ratio", "4")
MENTIONS = {"flags": (*HEAD, "--mention-loss-weight", "1"), "lr": 2e-3}
CASES = {
    "wikihop": Case("wikihop", wikihop, "accuracy", ENCODERS[3], flags=("--keep-order",)),
    "label": Case("document_classification", labelled, "accuracy", ENCODERS[2]),
    "triviaqa": Case("triviaqa", triviaqa, "f1", LONG[1], **SPANS),
    "hotpotqa": Case("hotpotqa", hotpotqa, "joint_f1", SHORT_SEGMENTS, **SPANS),
    "coreference": Case("coreference", conll, "conll_f1", ENCODERS[1], **MENTIONS),
}


def learn(case: Case, data: Path, path: Path) -> dict[str, float]:
    """Train on the whole split at once until all stays right, and write a checkpoint; what is logged at the end."""
    args, task, model = make(data, case.task, *case.encoder, *case.flags)
    criterion = task.build_criterion(args)
    task.load_dataset("train")
    dataset = task.dataset("train")
    batch = dataset.collater([dataset[number] for number in dataset.ordered_indices()])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=case.lr)
    right = 0
    for _ in range(case.updates):
        loss, count, log = criterion(model, batch)
        shares = [name.removesuffix("_correct") for name in log if name.endswith("_correct")]
        right = right + 1 if shares and all(log[f"{name}_correct"] == log[f"{name}_total"] for name in shares) else 0
        if right == 10:  # before another update, which could unlearn it
            break
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []  # DistributedDataParallel would wait for these
    write_checkpoint(path, vars(args), model.state_dict())
    with metrics.aggregate() as meters:
        task.reduce_metrics([log], criterion)
    logged = meters.get_smoothed_values()
    in_validation = {"mentions_f1", "conll_f1"}
    assert logged.keys() - {"wps", "wpb", "bsz"} == {*criterion.logged, *task.logged} - in_validation
    return logged


def figures(task: str, data: Path, checkpoint: Path, gold: Path) -> dict[str, float]:
    """The figures of the two commands for the validation split, which is the training split."""
    output, scores = (checkpoint.with_name(f"{checkpoint.stem}.{name}.json") for name in ("predictions", "scores"))
    flags = ["--path", str(checkpoint), "--output", str(output), "--device", "cpu", "--num-workers", "0"]
    assert predict.main([str(data), *flags]) == 0
    assert score.main(["--task", task, "--gold", str(gold), "--predictions", str(output), "--json", str(scores)]) == 0
    return json.loads(scores.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_a_task_is_learned_by_heart_predicted_and_scored(name, tmp_path):
    case = CASES[name]
    data, gold = case.make_folder(tmp_path)
    logged = learn(case, data, tmp_path / "model.pt")
    assert figures(case.task, data, tmp_path / "model.pt", gold)[case.figure] >= case.least
    if name == "hotpotqa":
        parts = sum(logged[f"{part}_loss"] for part in ("span", "type", "paragraph", "sentence"))
        assert logged["loss"] == pytest.approx(parts, abs=2e-3)
    elif name != "coreference":
        assert logged["span_accuracy" if name == "triviaqa" else "accuracy"] == 1


@pytest.mark.full
def test_hotpotqas_second_stage_reads_the_paragraphs_that_the_first_chose(tmp_path):
    case, path = replace(CASES["hotpotqa"], encoder=LONG[0]), tmp_path / "first.pt"
    data, gold = case.make_folder(tmp_path)
    learn(case, data, path)
    figures("hotpotqa", data, path, gold)
    model = data / "tokenizer" / "sentencepiece.model"
    scores = ("--paragraph-scores", str(tmp_path / "first.predictions.json"), "--max-paragraphs", "2")
    second = hotpotqa_folder(tmp_path / "second", "--sentencepiece-model", str(model), *scores)
    titles = [json.loads(line) for line in (second / "valid.titles.txt").read_text(encoding="utf-8").splitlines()]
    relevant = [{title for title, _ in question["supporting_facts"]} for question in HOTPOTQA_QUESTIONS]
    assert list(map(set, titles)) == relevant
    learn(case, second, tmp_path / "second.pt")
    assert figures("hotpotqa", second, tmp_path / "second.pt", gold)["joint_f1"] == 100


@pytest.fixture
def questions(tmp_path):
    """Made before the test, since preprocessing takes the handlers of logging."""
    return CASES["triviaqa"].make_folder(tmp_path)


def test_examples_without_an_answer_are_answered_but_not_trained_on(questions, tmp_path, caplog):
    flags = ("--max-question-length", "24", "--max-document-positions", "60")
    case = replace(CASES["triviaqa"], encoder=ENCODERS[0], flags=flags, updates=1)
    data, gold = questions
    with caplog.at_level("INFO"):
        learn(case, data, tmp_path / "model.pt")
    assert "of 4 examples, 0 have no answer in the document and 2 none in the part that is read" in caplog.text
    figures("triviaqa", data, tmp_path / "model.pt", gold)
    predictions = json.loads((tmp_path / "model.predictions.json").read_text(encoding="utf-8"))
    assert list(predictions) == ["tc_1", "tc_2", "tc_3"]


def test_documents_without_a_label_count_nothing(tmp_path):
    _, gold = CASES["label"].make_folder(tmp_path)
    (folder := tmp_path / "tested").mkdir()
    data = preprocess(labelled_text, folder, gold, "--test", gold)  # labels of --test are not read
    args, task, model = make(data, "document_classification", *ENCODERS[1])
    task.load_dataset("test")
    dataset = task.dataset("test")
    loss, _, log = task.build_criterion(args)(model, dataset.collater([dataset[k] for k in range(len(dataset))]))
    assert loss == 0
    assert not any(value for key, value in log.items() if key.endswith("_total"))


def test_weights_of_hotpotqas_losses(tmp_path):
    data = hotpotqa_folder(tmp_path)
    _, task, model = make(data, "hotpotqa", *LONG[0])
    _, weighted, _ = make(data, "hotpotqa", *LONG[0], "--span-loss-weight", "3", "--sentence-loss-weight", "0")
    task.load_dataset("train")
    batch = task.dataset("train").collater([task.dataset("train")[number] for number in range(3)])
    output, _ = model.eval()(**batch["net_input"])
    loss, sums = task.loss(output, batch["target"])
    expected = loss + 2 * sums["span_loss"] - sums["sentence_loss"]
    torch.testing.assert_close(weighted.loss(output, batch["target"])[0], expected)
    with pytest.raises(ValueError, match="must be 0 or more, and one of them more than 0; got -1, 1, 1, 1"):
        make(data, "hotpotqa", *LONG[0], "--span-loss-weight", "-1")

"""TriviaQA and HotpotQA from the released files to the official figures: every encoder learns them by heart."""

import json

import pytest
import torch
from fairseq import options, tasks
from fairseq.logging import metrics

from fairseq_poolingformer.cli import predict, score
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion
from fairseq_poolingformer.weights.files import write_checkpoint
from tests.models.tiny_bart import USER_DIR
from tests.tasks.released_files import HOTPOTQA_QUESTIONS, hotpotqa_folder, triviaqa_folder

SMALL = ("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "48", "--encoder-attention-heads", "4")
ROBERTA = ("poolingformer_roberta_tiny", "--pooled-layers", "none", "--window-size", "80", "--max-positions", "80")
ENCODERS = {
    "longformer": ("longformer_roberta_tiny", "--max-positions", "320", "--window-size", "8"),
    "poolingformer": ("poolingformer_roberta_tiny", "--max-positions", "320", "--window-size", "8"),
    "deberta": ("poolingformer_deberta_tiny", "--max-positions", "320", "--window-size", "8"),
    "short segments": ROBERTA,
}


def train(folder, kind, encoder, path, updates=100):
    """Learn the whole split at once until all stays right, and write a checkpoint; what is logged at the end."""
    arguments = [
        *(str(folder), "--user-dir", USER_DIR, "--task", kind, "--criterion", "document_task", "--arch", *encoder),
        *("--cpu", "--dropout", "0", "--attention-dropout", "0", "--max-question-length", "24", *SMALL),
    ]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    task = tasks.setup_task(args)
    torch.manual_seed(0)
    model, criterion = task.build_model(args), DocumentTaskCriterion(task)
    task.load_dataset("train")
    dataset = task.dataset("train")
    batch = dataset.collater([dataset[number] for number in dataset.ordered_indices()])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    right = 0
    for _ in range(updates):
        loss, count, log = criterion(model, batch)
        shares = [name.removesuffix("_correct") for name in log if name.endswith("_correct")]
        right = right + 1 if all(log[f"{name}_correct"] == log[f"{name}_total"] for name in shares) else 0
        if right == 10:  # before another update, which could unlearn it
            break
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []  # DistributedDataParallel would wait for these
    write_checkpoint(path, vars(args), model.state_dict())
    with metrics.aggregate() as meters:
        DocumentTaskCriterion.reduce_metrics([log])
    return meters.get_smoothed_values()


def figures(folder, kind, checkpoint, gold):
    """The figures of the two commands for the validation split, which is the training split."""
    found, scores = (checkpoint.with_name(f"{checkpoint.stem}.{name}.json") for name in ("predictions", "scores"))
    flags = ["--path", str(checkpoint), "--output", str(found), "--device", "cpu", "--num-workers", "0"]
    assert predict.main([str(folder), *flags]) == 0
    assert score.main(["--task", kind, "--gold", str(gold), "--predictions", str(found), "--json", str(scores)]) == 0
    return json.loads(scores.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def triviaqa(tmp_path_factory):
    folder = tmp_path_factory.mktemp("triviaqa")
    return triviaqa_folder(folder), folder / "raw" / "qa" / "set.json"


@pytest.fixture(scope="module")
def hotpotqa(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hotpotqa")
    return hotpotqa_folder(folder), folder / "hotpot.json"


def slow_but(*quick):
    """All encoders, of which the others take part in the slow tests alone."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in ENCODERS]


@pytest.mark.parametrize("encoder", slow_but("longformer", "short segments"))
def test_triviaqa_is_learned_by_heart(triviaqa, tmp_path, encoder):
    folder, gold = triviaqa
    assert train(folder, "triviaqa", ENCODERS[encoder], tmp_path / "model.pt")["span"] == 1
    found = figures(folder, "triviaqa", tmp_path / "model.pt", gold)
    assert (found["exact_match"], found["f1"]) == (100, 100)


@pytest.mark.parametrize("encoder", slow_but("longformer"))
def test_hotpotqa_is_learned_by_heart_in_two_stages(hotpotqa, tmp_path, encoder):
    folder, gold = hotpotqa
    logged = train(folder, "hotpotqa", ENCODERS[encoder], tmp_path / "first.pt")
    assert [logged[name] for name in ("span", "type", "paragraph", "sentence")] == [1, 1, 1, 1]
    parts = sum(logged[f"{name}_loss"] for name in ("span", "type", "paragraph", "sentence"))
    assert logged["loss"] == pytest.approx(parts, abs=2e-3)
    assert figures(folder, "hotpotqa", tmp_path / "first.pt", gold)["joint_f1"] == 100

    options = ("--sentencepiece-model", str(folder / "tokenizer" / "sentencepiece.model"), "--max-paragraphs", "2")
    scores = tmp_path / "first.predictions.json"
    second = hotpotqa_folder(tmp_path / "second", *options, "--paragraph-scores", str(scores))
    titles = [json.loads(line) for line in (second / "valid.titles.txt").read_text(encoding="utf-8").splitlines()]
    relevant = [{title for title, _ in question["supporting_facts"]} for question in HOTPOTQA_QUESTIONS]
    assert list(map(set, titles)) == relevant
    train(second, "hotpotqa", ENCODERS[encoder], tmp_path / "second.pt")
    found = figures(second, "hotpotqa", tmp_path / "second.pt", gold)
    assert {name: found[name] for name in ("em", "f1", "sp_em", "sp_f1", "joint_em", "joint_f1")} == {
        "em": 100,
        "f1": 100,
        "sp_em": 100,
        "sp_f1": 100,
        "joint_em": 100,
        "joint_f1": 100,
    }


def test_weights_of_losses(hotpotqa):
    folder, _ = hotpotqa
    arguments = [str(folder), "--user-dir", USER_DIR, "--task", "hotpotqa", "--arch", *ENCODERS["longformer"], "--cpu"]

    def task(*flags):
        args = options.parse_args_and_arch(options.get_training_parser(), [*arguments, *flags])
        return args, tasks.setup_task(args)

    args, plain = task()
    _, weighted = task("--span-loss-weight", "3", "--sentence-loss-weight", "0")
    torch.manual_seed(0)
    model = plain.build_model(args).eval()
    plain.load_dataset("train")
    dataset = plain.dataset("train")
    batch = dataset.collater([dataset[number] for number in range(3)])
    output, _ = model(**batch["net_input"])
    loss, sums = plain.loss(output, batch["target"])
    torch.testing.assert_close(
        weighted.loss(output, batch["target"])[0], loss + 2 * sums["span_loss"] - sums["sentence_loss"]
    )
    with pytest.raises(ValueError, match="must be 0 or more, and one of them more than 0; got -1, 1, 1, 1"):
        task("--span-loss-weight", "-1")


def test_examples_without_an_answer_are_answered_but_not_trained_on(triviaqa, tmp_path, caplog):
    folder, gold = triviaqa
    encoder = (
        "longformer_roberta_tiny",
        "--max-positions",
        "80",
        "--window-size",
        "8",
        "--max-document-positions",
        "60",
    )
    with caplog.at_level("INFO"):
        train(folder, "triviaqa", encoder, tmp_path / "model.pt", updates=1)
    assert "of 4 examples, 0 have no answer in the document and 2 none in the part that is read" in caplog.text
    figures(folder, "triviaqa", tmp_path / "model.pt", gold)
    predictions = json.loads((tmp_path / "model.predictions.json").read_text(encoding="utf-8"))
    assert list(predictions) == ["tc_1", "tc_2", "tc_3"]

"""The downstream tasks: marks and heads in every encoder, learning by heart, prediction and figures."""

import json
import logging

import numpy as np
import pytest
import torch
from fairseq import options, tasks
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.logging import metrics

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import predict, score
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.labels import AMOUNT, SEVERAL
from fairseq_poolingformer.weights.files import write_checkpoint
from preprocess import labelled_text
from tests.models.tiny_bart import USER_DIR
from tests.models.tiny_roberta import SIZES, build, write_dictionary
from tests.patches.helpers import TORCHRUN, assert_same_parameters, run
from tests.tasks.folders import random_wikihop, words, write, write_wikihop
from tests.text.tiny_gpt2 import TEXT, write_vocabulary

SMALL = ("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "48", "--encoder-attention-heads", "4")
CHUNKED_ROBERTA = (
    "poolingformer_roberta_tiny",
    "--pooled-layers",
    "none",
    "--window-size",
    "40",
    "--max-positions",
    "40",
)
ENCODERS = [
    ("longformer_roberta_tiny", "--max-positions", "80", "--window-size", "8"),
    ("poolingformer_roberta_tiny", "--max-positions", "80", "--window-size", "8", "--pooled-window-size", "16"),
    ("poolingformer_deberta_tiny", "--max-positions", "80", "--window-size", "8", "--pooled-window-size", "16"),
    CHUNKED_ROBERTA,
]


def parse(folder, task, arch, *flags):
    arguments = [
        *(str(folder), "--user-dir", USER_DIR, "--task", task, "--arch", arch, "--cpu"),
        *("--criterion", "document_task", "--dropout", "0", "--attention-dropout", "0", *SMALL, *flags),
    ]
    return options.parse_args_and_arch(options.get_training_parser(), arguments)


def make(folder, task, arch, *flags):
    args = parse(folder, task, arch, *flags)
    task = tasks.setup_task(args)
    torch.manual_seed(0)
    return args, task, task.build_model(args)


@pytest.fixture(scope="module")
def wikihop(tmp_path_factory):
    examples = [example for example in random_wikihop(8, seed=3) if example["answer"]][:4]
    return write_wikihop(tmp_path_factory.mktemp("wikihop"), {"train": examples, "valid": examples}), examples


def fit(task, model, updates=100, split="train"):
    """Train on the whole split at once until all is right; returns the accuracy that is logged."""
    criterion, dataset = DocumentTaskCriterion(task), task.dataset(split)
    batch = dataset.collater([dataset[k] for k in range(len(dataset))])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    for _ in range(updates):
        optimizer.zero_grad()
        loss, count, log = criterion(model, batch)
        (loss / count).backward()
        optimizer.step()
        if log["_accuracy_correct"] == log["_accuracy_total"]:
            break
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []  # DistributedDataParallel would wait for these
    with metrics.aggregate() as meters:
        DocumentTaskCriterion.reduce_metrics([log])
    return meters.get_smoothed_values()["accuracy"]


@pytest.mark.parametrize("encoder", ENCODERS, ids=["longformer", "poolingformer", "deberta", "chunked"])
def test_every_encoder_learns_wikihop_by_heart_and_predicts_it(wikihop, tmp_path, capsys, encoder):
    folder, examples = wikihop
    # one batch is learned by heart, and the checkpoint says nothing of the task, as an older one
    args, task, model = make(folder, "wikihop", *encoder, "--keep-order", "--support-separators", "1")
    task.load_dataset("train")
    assert fit(task, model) == 1
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    output = tmp_path / "predictions.json"
    flags = ["--path", str(tmp_path / "model.pt"), "--output", str(output), "--device", "cpu", "--num-workers", "0"]
    assert predict.main([str(folder), *flags, "--max-tokens", "100"]) == 0
    assert f"{output}: predictions of 4 examples of valid" in capsys.readouterr().err
    assert json.loads(output.read_text()) == {f"WH_{k}": f"{k}.{x['answer'][0]}" for k, x in enumerate(examples)}


@pytest.mark.slow
def test_two_processes_make_the_updates_of_one(wikihop, tmp_path):
    """Without global tokens, whose projections get no gradients; also the logged figures are of both processes."""
    folder, _ = wikihop
    encoder, *sizes = ENCODERS[0]
    arguments = [
        *(folder, "--user-dir", USER_DIR, "--task", "wikihop", "--criterion", "document_task", "--arch", encoder),
        *(*sizes, *SMALL, "--no-global-attention", "--dropout", "0", "--attention-dropout", "0"),
        *("--optimizer", "adam", "--lr", "1e-3", "--batch-size", "1", "--max-update", "2", "--seed", "7", "--cpu"),
        *("--num-workers", "0", "--log-format", "json"),
    ]
    two = run(*TORCHRUN, "fairseq_cli.train", *arguments, "--save-dir", tmp_path / "two", cwd=tmp_path)
    assert two.returncode == 0, two.stderr
    one = run("fairseq_cli.train", *arguments, "--update-freq", 2, "--save-dir", tmp_path / "one", cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    checkpoints = [load(tmp_path / name / "checkpoint_last.pt") for name in ("two", "one")]
    assert_same_parameters(*checkpoints)
    losses = [checkpoint["extra_state"]["val_loss"] for checkpoint in checkpoints]
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


def test_chunks_are_more_and_shorter_segments(wikihop):
    folder, _ = wikihop
    counts = []
    for encoder in (ENCODERS[0], CHUNKED_ROBERTA):
        _, task, _ = make(folder, "wikihop", *encoder)
        task.load_dataset("valid")
        dataset = task.dataset("valid")
        segments = [segment for k in range(len(dataset)) for segment in dataset[k]["segments"]]
        assert max(len(segment.tokens) for segment in segments) <= task.max_positions()
        counts.append(len(segments))
    assert counts[1] > counts[0]
    _, task, _ = make(folder, "wikihop", *CHUNKED_ROBERTA, "--max-segments", "1", "--no-global-attention")
    for split in ("train", "valid"):
        task.load_dataset(split)
    assert {len(task.dataset("train")[k]["segments"]) for k in range(4)} == {1}
    assert max(len(task.dataset("valid")[k]["segments"]) for k in range(4)) > 1
    assert not task.dataset("train")[0]["segments"][0].global_mask.any()


def test_prediction_reads_whole_examples_of_the_training_split_too(wikihop):
    folder, _ = wikihop
    _, task, model = make(folder, "wikihop", *CHUNKED_ROBERTA, "--max-segments", "1")
    counts = {}

    class Counter:
        def add(self, numbers, output, batch):
            for row, number in enumerate(numbers):
                counts[number] = int((batch["net_input"]["head_inputs"]["example"] == row).sum())

    predict.predict(model.eval(), task, "train", Counter(), "cpu", 100)
    task.load_dataset("valid")
    assert counts == {k: len(task.dataset("valid")[k]["segments"]) for k in range(4)}
    assert max(counts.values()) > 1


def test_classification_learns_by_heart(tmp_path):
    rng = np.random.default_rng(0)
    documents = [words(rng, size) for size in (5, 100, 60, 12)]
    arrays = {"document": documents, "label": [[0], [2], [1], [2]]}
    texts = {"id": [f"d{k}" for k in range(4)]}
    folder = write(tmp_path / "data", "document_classification", "train", arrays, texts, labels=["a", "b", "c"])
    args, task, model = make(folder, "document_classification", *CHUNKED_ROBERTA)
    task.load_dataset("train")
    assert [len(task.dataset("train")[k]["segments"]) for k in range(4)] == [1, 3, 2, 1]
    assert fit(task, model) == 1
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    flags = ["--path", str(tmp_path / "model.pt"), "--subset", "train", "--device", "cpu", "--num-workers", "0"]
    assert predict.main([str(folder), *flags, "--output", str(tmp_path / "p.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [(record["id"], record["label"]) for record in found] == [("d0", "a"), ("d1", "c"), ("d2", "b"), ("d3", "c")]


@pytest.mark.parametrize("problem", [SEVERAL, AMOUNT])
def test_several_labels_and_amounts_from_records_to_figures(problem, tmp_path, capsys):
    """Documents of --test have no label, which counts nothing."""
    rng, amounts = np.random.default_rng(0), [0.5, -1.25, 2, 1e-3]
    documents = [" ".join(rng.choice(sorted(set(TEXT.split())), 4)) for _ in range(4)]
    labels = [["a", "b"], [], ["c"], ["a", "c"]] if problem == SEVERAL else amounts
    rows = [{"id": f"d{k}", "text": documents[k], "label": labels[k]} for k in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data, output = tmp_path / "data", tmp_path / "p.jsonl"
    flags = ["--gpt2-bpe", write_vocabulary(tmp_path / "gpt2"), "--output-folder", data, "--workers", 1]
    files = ["--train", tmp_path / "rows.jsonl", "--test", tmp_path / "rows.jsonl"]
    assert labelled_text.main(list(map(str, [*files, *flags]))) == 0
    assert f"problem type: {problem}" in capsys.readouterr().out.splitlines()
    args, task, model = make(data, "document_classification", *ENCODERS[1])
    for split in ("train", "test"):
        task.load_dataset(split)
    if problem == SEVERAL:
        assert fit(task, model) == 1
    else:
        criterion, dataset = DocumentTaskCriterion(task), task.dataset("train")
        batch = dataset.collater([dataset[k] for k in range(4)])
        optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        for _ in range(40):
            optimizer.zero_grad()
            loss, _, log = criterion(model, batch)
            loss.backward()
            optimizer.step()
        assert log["_mse_correct"] / log["_mse_total"] < 0.05
    unlabelled = task.dataset("test").collater([task.dataset("test")[k] for k in range(4)])
    loss, _, log = DocumentTaskCriterion(task)(model, unlabelled)
    assert loss == 0
    assert not any(value for name, value in log.items() if name.endswith("_total"))
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    path = ["--path", str(tmp_path / "model.pt"), "--device", "cpu", "--num-workers", "0", "--output", str(output)]
    assert predict.main([str(data), *path, "--subset", "test"]) == 0
    found = [json.loads(line)["label"] for line in output.read_text().splitlines()]
    assert found == labels if problem == SEVERAL else found == pytest.approx(labels, abs=0.5)
    capsys.readouterr()
    assert score.main(["--task", "document_classification", str(output), "--gold", str(tmp_path / "rows.jsonl")]) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed["macro_f1"] == "100.00" if problem == SEVERAL else float(printed["pearson"]) > 95
    state = task.state_dict()
    task.load_state_dict(state)
    with pytest.raises(ValueError, match=f"checkpoint's problem type is single_label_classification, .* is {problem}"):
        task.load_state_dict({"labels": state["labels"]})


def test_a_checkpoint_keeps_its_labels(tmp_path):
    """A folder with the same number of labels, of which two are exchanged, would be predicted wrong in silence."""
    folders = {}
    for name, labels in (("same", ["a", "b c"]), ("other", ["b c", "a"])):
        arrays = {"document": [[5, 6]], "label": [[0]]}
        path = tmp_path / name
        folders[name] = write(path, "document_classification", "valid", arrays, {"id": ["d"]}, labels=labels)
    args, task, model = make(folders["same"], "document_classification", *ENCODERS[0])
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    checkpoint = torch.load(tmp_path / "model.pt", weights_only=False)
    torch.save(checkpoint | {"task_state": task.state_dict()}, tmp_path / "model.pt")
    models, _, _ = load_model_ensemble_and_task([str(tmp_path / "model.pt")])
    assert len(models) == 1
    with pytest.raises(ValueError, match=r"labels are a, b c, but those of .*other are b c, a; .* --labels a 'b c'"):
        load_model_ensemble_and_task([str(tmp_path / "model.pt")], arg_overrides={"data": str(folders["other"])})


def test_a_roberta_gets_new_rows_for_the_marks_alone(wikihop, tmp_path, caplog):
    """Its own rows stay; the model's random ones are added to the embedding and the output layer, and are listed."""
    folder, _ = wikihop
    _, roberta = build(write_dictionary(tmp_path, 40), *SIZES, "--max-positions", "40", "--pooled-layers", "none")
    flags = ("longformer_roberta_tiny", *SIZES, "--max-positions", "40", "--window-size", "8")
    _, task, model = make(folder, "wikihop", *flags)
    state, own = roberta.state_dict(), {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(dict(state))
    rows = len(task.dictionary) - len(MARKS)
    assert f"newly initialized: the embeddings of {', '.join(MARKS)}" in caplog.text
    for name in ("sentence_encoder.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        found = model.state_dict()[f"encoder.{name}"]
        assert torch.equal(found[:rows], state[f"encoder.{name}"])
        assert torch.equal(found[rows:], own[f"encoder.{name}"][rows:])
    assert [task.dictionary[rows + number] for number in range(len(MARKS))] == list(MARKS)
    # the other way names say what to leave out; without them, and with any other number of rows, nothing is guessed
    del own["mark_names"]
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        roberta.load_state_dict(own)
    roberta.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(roberta.state_dict()["encoder.lm_head.bias"], state["encoder.lm_head.bias"])
    short = {name: value[:-1] if len(value) == rows else value for name, value in state.items()}
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        model.load_state_dict(short)


def test_longformers_weights_load_without_its_global_projections(wikihop, caplog):
    folder, _ = wikihop
    _, _, longformer = make(folder, "wikihop", *ENCODERS[0])
    flags = ("poolingformer_roberta_tiny", *ENCODERS[0][1:], "--pooled-layers", "none")
    _, _, model = make(folder, "wikihop", *flags)
    model.load_state_dict(longformer.state_dict(), strict=True)
    assert "left out, since the model has no separate global projections" in caplog.text
    name = "encoder.sentence_encoder.layers.0.self_attn.q_proj.weight"
    assert torch.equal(model.state_dict()[name], longformer.state_dict()[name])


def test_a_head_makes_way_for_the_next_tasks(wikihop, tmp_path):
    folder, _ = wikihop
    _, _, trained = make(folder, "wikihop", *ENCODERS[0])
    arrays = {"document": [[5, 6]], "label": [[0]]}
    other = write(tmp_path, "document_classification", "train", arrays, {"id": ["d"]}, labels=["a", "b"])
    _, _, model = make(other, "document_classification", *ENCODERS[0])
    model.load_state_dict(trained.state_dict(), strict=True)
    name = "encoder.sentence_encoder.embed_tokens.weight"
    assert torch.equal(model.state_dict()[name], trained.state_dict()[name])
    with pytest.raises(ValueError, match=r"must be letters, digits and _, for a model without a head; got wikihop"):
        model.register_head("wikihop", torch.nn.Linear(1, 1))


def test_a_forgotten_criterion_is_named(wikihop):
    args, task, _ = make(wikihop[0], "wikihop", *ENCODERS[0], "--criterion", "cross_entropy")
    with pytest.raises(ValueError, match="this task needs --criterion document_task, and it is cross_entropy"):
        task.build_criterion(args)


def test_contradictions_are_refused(wikihop, tmp_path, capsys):
    folder, _ = wikihop
    with pytest.raises(ValueError, match="--max-positions must be 8 or more, got 3"):
        make(folder, "wikihop", *ENCODERS[0], "--max-positions", "3")
    with pytest.raises(ValueError, match="--task wikihop needs an encoder such as"):
        make(folder, "wikihop", "poolingformer_bart_tiny")
    args, _, model = make(folder, "wikihop", *ENCODERS[0])
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    arrays = {"document": [[5, 6]], "label": [[0]]}
    other = write(tmp_path / "data", "document_classification", "valid", arrays, {"id": ["d"]}, labels=["a", "b"])
    flags = ["--path", str(tmp_path / "model.pt"), "--output", str(tmp_path / "p.json"), "--device", "cpu"]
    assert predict.main([str(other), *flags]) == 1
    assert (
        "model.pt: a checkpoint of --task wikihop; give one of --task document_classification"
        in capsys.readouterr().err
    )
    assert predict.main([str(folder), *flags, "--max-positions", "81"]) == 1
    assert "--max-positions 81, but the model takes 80 tokens" in capsys.readouterr().err
    for length in ("1", "2"):  # the coreference task would never end
        assert predict.main([str(folder), *flags, "--max-positions", length]) == 1
        assert f"--max-positions must be 8 or more, got {length}" in capsys.readouterr().err


def read_epochs(folder, epochs, workers, *flags):
    """The batches of each of these epochs, as a training that begins with the first one reads them."""
    _, task, _ = make(folder, "wikihop", *ENCODERS[0], *flags)
    task.load_dataset("train")
    batches = task.get_batch_iterator(
        task.dataset("train"), max_sentences=2, seed=1, num_workers=workers, epoch=epochs[0]
    )
    return [
        [
            (batch["id"].tolist(), batch["net_input"]["src_tokens"].tolist(), batch["target"]["answer"].tolist())
            for batch in batches.next_epoch_itr()
        ]
        for _ in epochs
    ]


def test_wikihops_order_is_that_of_the_epoch_whatever_was_read_before(wikihop):
    folder, examples = wikihop
    first, second = read_epochs(folder, [1, 2], 0)
    assert read_epochs(folder, [2], 2) == [second]  # a training that goes on, with workers

    rows = [sorted(row for _, tokens, _ in epoch for row in tokens) for epoch in (first, second)]
    assert rows[0] != rows[1]
    answers = {k: answer for ids, _, found in first for k, answer in zip(ids, found, strict=True)}
    assert answers == {k: example["answer"][0] for k, example in enumerate(examples)}  # candidates keep their numbers
    kept = read_epochs(folder, [1, 2], 0, "--keep-order")
    rows = [sorted(row for _, tokens, _ in epoch for row in tokens) for epoch in kept]
    assert rows[0] == rows[1]
    _, task, _ = make(folder, "wikihop", *ENCODERS[0])
    for split in ("train", "valid"):
        task.load_dataset(split)
    assert task.dataset("valid").examples.order is None
    task.read_whole()  # as poolingformer-predict does
    task.load_dataset("train")
    assert task.dataset("train").examples.order is None


def test_an_older_checkpoint_reads_supports_as_it_was_trained_to(wikihop):
    folder, _ = wikihop
    _, task, _ = make(folder, "wikihop", *ENCODERS[0])
    state = task.state_dict()
    task.load_state_dict(state)
    assert task.cfg.support_separators == 2
    del state["support_separators"]
    task.load_state_dict(state)
    assert task.cfg.support_separators == 1
    with pytest.raises(ValueError, match="--support-separators must be 1 or 2, got 3"):
        make(folder, "wikihop", *ENCODERS[0], "--support-separators", "3")

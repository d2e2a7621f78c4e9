import logging

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from fairseq_poolingformer.cli import predict
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.weights.files import write_checkpoint
from tests import lab
from tests.models.tiny_roberta import SIZES, build, write_dictionary
from tests.tasks.folders import random_wikihop, write, write_wikihop

SMALL = ("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "48", "--encoder-attention-heads", "4")
SHORT = ("--window-size", "40", "--max-positions", "40")
CHUNKED_ROBERTA = ("poolingformer_roberta_tiny", "--pooled-layers", "none", *SHORT)
ENCODERS = [
    ("longformer_roberta_tiny", "--max-positions", "80", "--window-size", "8"),
    ("poolingformer_roberta_tiny", "--max-positions", "80", "--window-size", "8", "--pooled-window-size", "16"),
    ("poolingformer_deberta_tiny", "--max-positions", "80", "--window-size", "8", "--pooled-window-size", "16"),
    CHUNKED_ROBERTA,
]


def make(folder, name, arch, *flags):
    """``(args, task, model)``."""
    args, task = lab.task(folder, name, arch, "--dropout", 0, "--attention-dropout", 0, *SMALL, *flags)
    torch.manual_seed(0)
    return args, task, task.build_model(args)


def labelled(folder, split, labels):
    """A data folder with a document of the first of these labels."""
    arrays = {"document": [[5, 6]], "label": [[0]]}
    return write(folder, "document_classification", split, arrays, {"id": ["d"]}, labels=labels)


@pytest.fixture(scope="module")
def wikihop(tmp_path_factory):
    examples = [example for example in random_wikihop(8, seed=3) if example["answer"]][:4]
    return write_wikihop(tmp_path_factory.mktemp("wikihop"), {"train": examples, "valid": examples}), examples


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
    whole = dict(counts)
    for k in range(4):
        counts.clear()
        assert (
            predict.predict(model, task, "train", Counter(), "cpu", 100, part=lambda count, k=k: range(k, k + 1)) == 1
        )
        assert counts == {k: whole[k]}


def test_a_checkpoint_keeps_its_labels(tmp_path):
    """A folder with the same number of labels, of which two are exchanged, would be predicted wrong in silence."""
    same = labelled(tmp_path / "same", "valid", ["a", "b c"])
    other = labelled(tmp_path / "other", "valid", ["b c", "a"])
    args, task, model = make(same, "document_classification", *ENCODERS[0])
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    checkpoint = torch.load(tmp_path / "model.pt", weights_only=False)
    torch.save(checkpoint | {"task_state": task.state_dict()}, tmp_path / "model.pt")
    models, _, _ = load_model_ensemble_and_task([str(tmp_path / "model.pt")])
    assert len(models) == 1
    with pytest.raises(
        ValueError, match=r"labels are a, b c, but those of .*other are b c, a; make the folder with --labels a 'b c'"
    ):
        load_model_ensemble_and_task([str(tmp_path / "model.pt")], arg_overrides={"data": str(other)})


def test_a_roberta_gets_new_rows_for_the_marks_alone(wikihop, tmp_path, caplog):
    """Its own rows stay; the model's random ones are added to the embedding and the output layer, and are listed."""
    folder, _ = wikihop
    _, roberta = build(write_dictionary(tmp_path, 40), *SIZES, "--max-positions", "40", "--pooled-layers", "none")
    flags = ("longformer_roberta_tiny", *SIZES, "--max-positions", "40", "--window-size", "8")
    _, task, model = make(folder, "wikihop", *flags)
    state, initial = roberta.state_dict(), {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(dict(state))
    rows = len(task.dictionary) - len(MARKS)
    assert f"newly initialized: the embeddings of {', '.join(MARKS)}" in caplog.text
    for name in ("sentence_encoder.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        weight = model.state_dict()[f"encoder.{name}"]
        assert torch.equal(weight[:rows], state[f"encoder.{name}"])
        assert torch.equal(weight[rows:], initial[f"encoder.{name}"][rows:])
    assert [task.dictionary[rows + number] for number in range(len(MARKS))] == list(MARKS)
    # the other way names say what to leave out; without them, and with any other number of rows, nothing is guessed
    del initial["mark_names"]
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        roberta.load_state_dict(initial)
    roberta.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(roberta.state_dict()["encoder.lm_head.bias"], state["encoder.lm_head.bias"])
    short = {name: value[:-1] if len(value) == rows else value for name, value in state.items()}
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        model.load_state_dict(short)


def test_a_longformers_weights_load_without_its_head_and_its_global_projections(wikihop, tmp_path, caplog):
    _, _, trained = make(wikihop[0], "wikihop", *ENCODERS[0])
    other = labelled(tmp_path, "train", ["a", "b"])
    pooling = ("poolingformer_roberta_tiny", *ENCODERS[0][1:], "--pooled-layers", "none")
    for folder, name, encoder, weight in (
        (wikihop[0], "wikihop", pooling, "layers.0.self_attn.q_proj.weight"),
        (other, "document_classification", ENCODERS[0], "embed_tokens.weight"),
    ):
        _, _, model = make(folder, name, *encoder)
        model.load_state_dict(trained.state_dict(), strict=True)
        weight = f"encoder.sentence_encoder.{weight}"
        assert torch.equal(model.state_dict()[weight], trained.state_dict()[weight])
    assert "left out, since the model has no separate global projections" in caplog.text
    with pytest.raises(ValueError, match=r"must be letters, digits and _, for a model without a head; got wikihop"):
        model.register_head("wikihop", torch.nn.Linear(1, 1))


def test_contradictions_are_refused(wikihop, tmp_path, capsys):
    folder, _ = wikihop
    with pytest.raises(ValueError, match="--max-positions must be 8 or more, got 3"):
        make(folder, "wikihop", *ENCODERS[0], "--max-positions", "3")
    with pytest.raises(ValueError, match="--task wikihop needs an encoder such as"):
        make(folder, "wikihop", "roberta", "--encoder-layers", "1", "--encoder-embed-dim", "12")  # fairseq's own
    args, _, model = make(folder, "wikihop", *ENCODERS[0])
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    other = labelled(tmp_path / "data", "valid", ["a", "b"])
    flags = ["--path", str(tmp_path / "model.pt"), "--output", str(tmp_path / "p.json"), "--device", "cpu"]
    assert predict.main([str(other), *flags]) == 1
    message = "model.pt: a checkpoint of --task wikihop; give one of --task document_classification"
    assert message in capsys.readouterr().err
    assert predict.main([str(folder), *flags, "--max-positions", "81"]) == 1
    assert "--max-positions 81, but the model takes 80 tokens" in capsys.readouterr().err


def read_epochs(folder, epochs, workers, *flags):
    """The batches of each of these epochs, as a training that begins with the first one reads them."""
    _, task, _ = make(folder, "wikihop", *ENCODERS[0], *flags)
    task.load_dataset("train")
    settings = {"max_sentences": 2, "seed": 1, "num_workers": workers, "epoch": epochs[0]}
    batches = task.get_batch_iterator(task.dataset("train"), **settings)

    def lists(batch):
        return batch["id"].tolist(), batch["net_input"]["src_tokens"].tolist(), batch["target"]["answer"].tolist()

    return [list(map(lists, batches.next_epoch_itr())) for _ in epochs]


def test_wikihops_order_is_that_of_the_epoch_whatever_was_read_before(wikihop):
    folder, examples = wikihop
    epoch_1, epoch_2 = read_epochs(folder, [1, 2], 0)
    assert read_epochs(folder, [2], 2) == [epoch_2]  # a training that goes on, with workers

    rows = [sorted(row for _, tokens, _ in epoch for row in tokens) for epoch in (epoch_1, epoch_2)]
    assert rows[0] != rows[1]
    answers = {k: answer for ids, _, numbers in epoch_1 for k, answer in zip(ids, numbers, strict=True)}
    assert answers == {k: example["answer"][0] for k, example in enumerate(examples)}  # candidates keep their numbers
    in_order = read_epochs(folder, [1, 2], 0, "--keep-order")
    rows = [sorted(row for _, tokens, _ in epoch for row in tokens) for epoch in in_order]
    assert rows[0] == rows[1]
    _, task, _ = make(folder, "wikihop", *ENCODERS[0])
    for split in ("train", "valid"):
        task.load_dataset(split)
    assert task.dataset("valid").examples.order is None
    task.read_whole()  # as poolingformer predict does
    task.load_dataset("train")
    assert task.dataset("train").examples.order is None

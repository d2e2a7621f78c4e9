"""Labels of words: segments by hand, and from columns to the figures of what was learned by heart."""

import itertools
import json

import numpy as np
import pytest
import torch

from fairseq_poolingformer.cli import predict, score
from fairseq_poolingformer.tasks.shared.heads import MarkLogits
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion
from fairseq_poolingformer.tasks.token_labels.data import TokenLabelExamples, TokenLabelSplit
from fairseq_poolingformer.tasks.token_labels.task import label_loss
from fairseq_poolingformer.weights.files import write_checkpoint
from preprocess import token_labels
from tests.tasks.folders import SYMBOLS, write
from tests.tasks.test_document_tasks import ENCODERS, fit, make
from tests.text.tiny_gpt2 import TEXT, write_vocabulary


def test_the_first_piece_of_each_word_has_its_label(tmp_path):
    arrays = {"document": [[10, 11, 12, 13, 14, 15]], "word": [[1, 3, 2]], "sentence": [[1, 2]], "label": [[2, 0, 1]]}
    write(tmp_path, "token_labels", "train", arrays, {"id": ["a"], "words": ["[]"]}, labels=["x", "y", "z"])
    examples = TokenLabelExamples(TokenLabelSplit.open(tmp_path, "train"), SYMBOLS, max_positions=5, use_global=True)
    rows = [
        ([10], [1], [3], [1]),  # a segment ends with a sentence where it can,
        ([11, 12, 13], [2, 0, 0], [1, 0, 0], [1, 0, 0]),  # else with a word
        ([14, 15], [3, 0], [2, 0], [0, 0]),
    ]
    for segment, (tokens, word, label, begins) in zip(examples.segments(0), rows, strict=True):
        assert segment.tokens.tolist() == [SYMBOLS.bos, *tokens, SYMBOLS.eos]
        assert segment.inputs["word"].tolist() == [0, *word, 0]
        assert [segment.targets[name].tolist() for name in ("label", "begins")] == [[0, *label, 0], [0, *begins, 0]]
        assert segment.global_mask.tolist() == [True] + [False] * (len(tokens) + 1)


def test_the_loss_is_the_mean_over_the_words_of_each_document():
    torch.manual_seed(0)
    logit, example = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1])
    words = MarkLogits(logit, torch.zeros(5, dtype=torch.long), torch.arange(5), example, torch.arange(5))
    loss, sums = label_loss(words, torch.tensor([[1, 3, 0, 2, 0]]))
    p = logit.log_softmax(-1)
    torch.testing.assert_close(loss, -(p[0, 0] + p[1, 2]) / 2 - p[3, 1])
    assert sums["_accuracy_total"] == 3
    assert sums["_accuracy_correct"] == sum(
        int(logit[row].argmax() == label) for row, label in ((0, 0), (1, 2), (3, 1))
    )


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    """Three documents of three sentences; "it" begins an entity that goes to the end of its sentence."""
    folder = tmp_path_factory.mktemp("columns")
    rng, words = np.random.default_rng(0), sorted(set(TEXT.split()) - {"it"})[:12]
    with open(folder / "train.conll", "w") as file:
        for _ in range(3):
            file.write("-DOCSTART- -X- O\n\n")
            for _ in range(3):
                sentence = [words[k] for k in rng.integers(0, len(words), 6)]
                sentence[int(rng.integers(0, 6))] = "it"
                labels = ["O" if "it" not in sentence[: k + 1] else "I-IT" for k in range(6)]
                labels[sentence.index("it")] = "B-IT"
                file.writelines(f"{word} X {label}\n" for word, label in zip(sentence, labels, strict=True))
                file.write("\n")
    return folder


def test_from_columns_to_figures(columns, tmp_path, capsys):
    data = tmp_path / "data"
    flags = ["--gpt2-bpe", write_vocabulary(tmp_path / "gpt2"), "--output-folder", data, "--workers", 1]
    files = ["--train", columns / "train.conll", "--valid", columns / "train.conll", "--test", columns / "train.conll"]
    assert token_labels.main(list(map(str, [*files, *flags]))) == 0
    assert json.loads((data / "corpus.json").read_text())["labels"] == ["B-IT", "I-IT", "O"]
    assert TokenLabelSplit.open(data, "test").label.num_values == 0  # labels of --test are not read
    args, task, model = make(data, "token_labels", *ENCODERS[1])
    for split in ("train", "valid"):
        task.load_dataset(split)
    assert fit(task, model) == 1
    dataset = task.dataset("valid")
    with torch.no_grad():
        _, _, log = DocumentTaskCriterion(task)(model, dataset.collater([dataset[k] for k in range(len(dataset))]))
    assert (log["_f1_correct"], log["_f1_total"]) == (18, 18)  # as the figures below
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    output = tmp_path / "predictions.jsonl"
    path = ["--path", str(tmp_path / "model.pt"), "--device", "cpu", "--num-workers", "0", "--output", str(output)]
    for split in ("valid", "test"):
        assert predict.main([str(data), *path, "--subset", split]) == 0
        capsys.readouterr()
        assert score.main(["--task", "token_labels", str(output), "--gold", str(columns / "train.conll")]) == 0
        printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
        assert (printed["f1_IT"], printed["accuracy"], printed["examples"]) == ("100.00", "100.00", "3")


def test_a_stretch_of_a_long_document_is_drawn_for_each_epoch(tmp_path):
    count = 40
    arrays = {"document": [np.arange(count) + 4], "word": [[1] * count], "sentence": [[count]], "label": [[0] * count]}
    write(tmp_path, "token_labels", "train", arrays, {"id": ["a"], "words": ["[]"]}, labels=["x", "y"])
    examples = TokenLabelExamples(TokenLabelSplit.open(tmp_path, "train"), SYMBOLS, 10, max_segments=2)
    read = set()
    for epoch in range(20):
        examples.set_epoch(epoch)
        places = [segment.inputs["word"].tolist() for segment in examples.segments(0)]
        assert len(places) == 2
        read |= set(itertools.chain.from_iterable(places))
    assert read == set(range(count + 1))

"""Labels of words: segments by hand, and from columns to the figures of what was learned by heart."""

import itertools

import numpy as np
import torch

from fairseq_poolingformer.tasks.shared.heads import MarkLogits
from fairseq_poolingformer.tasks.token_labels.data import TokenLabelExamples, TokenLabelSplit
from fairseq_poolingformer.tasks.token_labels.task import label_loss
from tests.tasks.folders import SYMBOLS, write


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

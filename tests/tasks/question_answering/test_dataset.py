"""Segments as the model gets them."""

import pickle

import numpy as np
import torch

from tests.tasks.question_answering.folders import Example, random_examples
from tests.tasks.question_answering.test_labels import POSITIVE, SHORT, labelled, naive_choice


def test_a_segment_is_framed_as_roberta_wants_pairs(tmp_path):
    dataset, _ = labelled(
        tmp_path, [Example([5, 6], list(range(10, 22)), [(0, 3), (5, 9)], [(SHORT, 1, 6, 8)], (0, 5))]
    )
    batch = dataset.collater([dataset[0], dataset[1]])
    tokens, places = batch["net_input"]["src_tokens"], batch["net_input"]["head_inputs"]
    assert tokens[0].tolist() == [0, 5, 6, 2, 2, *range(10, 20), 2]
    assert tokens[1].tolist() == [0, 5, 6, 2, 2, *range(14, 22), 2, 1, 1]
    assert batch["net_input"]["global_mask"].tolist() == [[True] * 3 + [False] * 13] * 2
    assert places["paragraph_ids"].tolist() == [
        [0] * 5 + [1, 1, 1, 0, 0, 2, 2, 2, 2, 0, 0],
        [0] * 5 + [0, 1, 1, 1, 1, 0, 0, 0] + [0] * 3,
    ]
    assert places["span_mask"].tolist() == [
        [True] + [False] * 4 + [True] * 10 + [False],
        [True] + [False] * 4 + [True] * 8 + [False] * 3,
    ]
    assert {name: target.tolist() for name, target in batch["target"].items()} == {
        "start": [11, 7],
        "end": [12, 8],
        "paragraph": [2, 1],
        "answer_type": [1, 1],
    }
    assert (places["num_paragraphs"], batch["first_paragraph"].tolist()) == (2, [0, 1])
    assert batch["document_start"].tolist() == [5, 5]
    has_text = [k not in (0, 5) for k in range(12)]
    assert batch["has_text"].tolist() == [
        [False] * 5 + has_text[:10] + [False],
        [False] * 5 + has_text[4:] + [False] * 3,
    ]
    assert (batch["nsentences"], batch["ntokens"]) == (2, 30)


def test_targets_point_at_the_answers_tokens(tmp_path):
    examples = random_examples(200, seed=1)
    dataset, _ = labelled(tmp_path, examples)
    found = 0
    for n in np.flatnonzero(dataset.labels == POSITIVE):
        item = dataset[int(n)]
        start, end, paragraph, kind = item["target"]
        _, row, a, b = naive_choice(examples[dataset.segments.example[n]].annotations)
        document = examples[dataset.segments.example[n]].document
        assert item["first_paragraph"] + paragraph - 1 == row
        if kind == SHORT:
            assert item["tokens"][start : end + 1].tolist() == document[a:b]
            assert item["paragraph_ids"][start : end + 1].eq(paragraph).all()
            found += 1
    assert found > 20


def test_a_worker_process_gets_paths_not_data(tmp_path):
    """Where worker processes are not forked, the dataset is pickled."""
    dataset, _ = labelled(tmp_path, random_examples(300, seed=2))
    pickled = pickle.dumps(dataset.split)
    assert len(pickled) < 2000
    again = pickle.loads(pickle.dumps(dataset))
    for number in range(0, len(dataset), 50):
        assert torch.equal(again[number]["tokens"], dataset[number]["tokens"])

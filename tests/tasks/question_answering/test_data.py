import itertools
from collections import Counter

import numpy as np
import pytest
from fairseq.data import Dictionary

from fairseq_poolingformer.tasks.question_answering import data
from fairseq_poolingformer.tasks.question_answering.task import QuestionAnsweringDataset
from tests.tasks.question_answering.folders import Example, random_examples, write_folder


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (10, [(0, 10)]),  # exactly the room of 16 - 2 - 4
        (11, [(0, 10), (4, 11)]),
        (14, [(0, 10), (4, 14)]),  # the second reaches the end exactly
        (15, [(0, 10), (4, 14), (8, 15)]),
        (18, [(0, 10), (4, 14), (8, 18)]),
    ],
)
def test_the_last_segment_is_the_first_that_reaches_the_end(document, expected):
    limits = data.SegmentLimits(16, doc_stride=4, max_question_length=6)
    segments = data.cut_into_segments(np.array([2]), np.array([document]), limits)
    assert list(zip(segments.first_token.tolist(), segments.end_token.tolist(), strict=True)) == expected
    assert segments.bounds.tolist() == [0, len(expected)]
    assert segments.size.tolist() == [end - first_token + 2 + 4 for first_token, end in expected]
    assert segments.number.tolist() == list(range(len(expected)))
    for numbers, message in (
        ((16, 7, 6), "doc_stride 7 would skip"),
        ((16, 0, 6), "doc_stride must"),
        ((64, 1, 64), "doc_stride 1 would"),
    ):
        with pytest.raises(ValueError, match=message):
            data.SegmentLimits(*numbers)


def test_paragraphs_of_a_segment_equal_a_loop_over_tokens():
    rng = np.random.default_rng(0)
    for _ in range(200):
        cuts = np.unique(rng.integers(0, 40, 8))
        rows = [[a, b, 0, 0, 0] for a, b in itertools.pairwise(cuts) if rng.random() < 0.7]
        rows = np.array(rows, np.int32).reshape(-1, 5)
        first_token, end = sorted(rng.choice(41, 2, replace=False).tolist())
        visible = [k for k, (a, b, *_) in enumerate(rows.tolist()) if any(first_token <= t < end for t in range(a, b))]
        begin, stop = data.visible_paragraphs(rows, first_token, end)
        assert list(range(begin, stop)) == visible
        expected = [
            next((1 + n for n, k in enumerate(visible) if rows[k, 0] <= token < rows[k, 1]), 0)
            for token in range(first_token, end)
        ]
        assert data.paragraph_ids(rows[begin:stop], first_token, end).tolist() == expected


def test_negatives_are_drawn_anew_in_each_epoch_and_evenly():
    segments = data.cut_into_segments(np.full(5000, 1), np.full(5000, 9), data.SegmentLimits(10, 1, 4))
    chosen = np.arange(len(segments))
    draws = [data.keep_negatives(segments, chosen, 0.5, seed, epoch) for seed in (1, 2) for epoch in (1, 2, 3)]
    for number, draw in enumerate(draws):
        assert abs(draw.mean() - 0.5) < 0.01
        for other in draws[:number]:
            assert abs((draw == other).mean() - 0.5) < 0.02, "draws depend on one another"
    by_number = [draws[0][segments.number == n].mean() for n in range(4)]
    assert max(abs(share - 0.5) for share in by_number) < 0.03
    alone = data.keep_negatives(segments, chosen[7::3], 0.5, 1, 1)
    assert np.array_equal(alone, draws[0][7::3]), "of each segment alone"
    for share, tolerance in ((1.0, 0), (0.0, 0), (0.1, 0.01)):
        assert abs(data.keep_negatives(segments, chosen, share, 1, 1).mean() - share) <= tolerance


NEGATIVE, PARTIAL, POSITIVE = data.Label
LIMITS = data.SegmentLimits(16, doc_stride=4, max_question_length=6)  # ten document tokens beside a question of two
SHORT, YES, NO, LONG = range(1, 5)


def labelled(folder, examples, limits=LIMITS):
    """The dataset of a split with those examples, and its segments' labels."""
    split = data.QuestionAnsweringSplit.open(write_folder(folder, {"train": examples}), "train")
    segments = data.cut_into_segments(split.question.sizes, split.document.sizes, limits)
    answers = data.read_answers(split)
    labels = data.label_segments(segments, answers)
    dataset = QuestionAnsweringDataset(split, segments, Dictionary(), answers=answers, labels=labels)
    return dataset, data.LabelCounts.of(segments, answers, labels)


def test_answers_that_are_too_long_to_be_predicted_are_counted(tmp_path):
    annotations = [(SHORT, 0, 3, 6), (SHORT, 0, 3, 15), (SHORT, 0, 3, 4), (LONG, 0, -1, -1)]
    dataset, _ = labelled(tmp_path, [Example([5], [6] * 30, [(2, 20)], [annotation]) for annotation in annotations])
    counts = [data.count_longer(dataset.answers, longest) for longest in (1, 2, 3, 11, 12)]
    assert counts == [2, 2, 1, 1, 0]


def naive_choice(annotations):
    """The answer to learn from: votes on whether there is one, on the paragraph, on the short answer."""
    enough = min(2, len(annotations))
    answers = [a for a in annotations if a[0] != 0]
    if not answers or len(answers) < enough:
        return 0, -1, -1, -1
    paragraph = Counter(a[1] for a in answers).most_common(1)[0][0]
    short = [a for a in answers if a[0] in (SHORT, YES, NO)]
    inside = [a for a in short if a[1] == paragraph]
    if len(short) >= enough and inside:
        return Counter(inside).most_common(1)[0][0]
    return LONG, paragraph, -1, -1


def naive_label(example, limits):
    """``(label, target)`` of each segment of an example, by the rules of the documentation."""
    kind, row, a, b = naive_choice(example.annotations)
    q, n = min(len(example.question), limits.max_question_length), len(example.document)
    room = limits.max_positions - q - 4
    cuts = [(0, min(room, n))]
    while cuts[-1][1] < n:
        first_token = cuts[-1][0] + limits.doc_stride
        cuts.append((first_token, min(first_token + room, n)))
    if kind == 0:
        return [(NEGATIVE, [0, 0, 0, 0]) for _ in cuts]
    p, e = example.paragraphs[row]
    needed = (a, b) if kind == SHORT else (p, e)
    holders = [k for k, (x, y) in enumerate(cuts) if x <= needed[0] and needed[1] <= y]
    if not holders and kind != SHORT:
        holders = [max(k for k, (x, y) in enumerate(cuts) if x <= p < y)]
    labels = []
    for k, (x, y) in enumerate(cuts):
        if k in holders:
            number = 1 + sum(1 for c, d in example.paragraphs[:row] if d > x)
            span = [q + 3 + a - x, q + 3 + b - 1 - x] if kind == SHORT else [0, 0]
            labels.append((POSITIVE, [*span, number, kind]))
        else:
            sees = any(x <= token < y for token in range(p, e))
            labels.append((PARTIAL if sees else NEGATIVE, [0, 0, 0, 0]))
    return labels


@pytest.mark.parametrize("limits", [LIMITS, data.SegmentLimits(24, 14, 6), data.SegmentLimits(70, 10, 20)])
def test_labels_equal_a_loop_over_segments(tmp_path, limits):
    examples = random_examples(400)
    dataset, counts = labelled(tmp_path, examples, limits)
    expected = [naive_label(example, limits) for example in examples]
    flat = [pair for pairs in expected for pair in pairs]
    assert dataset.labels.tolist() == [label for label, _ in flat]
    assert [dataset[n]["target"] for n in range(len(dataset))] == [target for _, target in flat]
    kinds = Counter(label for label, _ in flat)
    assert (counts.negative, counts.partial, counts.positive) == (kinds[NEGATIVE], kinds[PARTIAL], kinds[POSITIVE])
    lost = [any(x == PARTIAL for x, _ in e) and not any(x == POSITIVE for x, _ in e) for e in expected]
    assert counts.without_segment == sum(lost)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [((SHORT, 3, 1, 2), "paragraph': 3"), ((SHORT, 0, 11, 13), "end_token': 13"), ((9, 0, 1, 2), "answer_type': 9")],
)
def test_annotations_that_contradict_the_document_are_refused(tmp_path, annotation, message):
    good = Example([5], [6] * 12, [(0, 6)], [(LONG, 0, -1, -1)])
    with pytest.raises(ValueError, match=f"train.annotation, example 1: .*{message}.*12 tokens and 1 paragraphs"):
        labelled(tmp_path, [good, Example([5], [6] * 12, [(0, 6)], [annotation])])


def test_a_segment_is_framed_as_roberta_wants_pairs(tmp_path):
    dataset, _ = labelled(tmp_path, [Example([5, 6], [*range(10, 22)], [(0, 3), (5, 9)], [(SHORT, 1, 6, 8)], (0, 5))])
    batch = dataset.collater([dataset[0], dataset[1]])
    tokens, places = batch["net_input"]["src_tokens"], batch["net_input"]["head_inputs"]
    assert tokens[0].tolist() == [0, 5, 6, 2, 2, *range(10, 20), 2]
    assert tokens[1].tolist() == [0, 5, 6, 2, 2, *range(14, 22), 2, 1, 1]
    assert batch["net_input"]["global_mask"].tolist() == [[True] * 3 + [False] * 13] * 2
    assert places["paragraph_ids"].tolist() == [[*map(int, row)] for row in ("0000011100222200", "0000001111000000")]
    assert places["span_mask"].tolist() == [
        [True] + [False] * 4 + [True] * 10 + [False],
        [True] + [False] * 4 + [True] * 8 + [False] * 3,
    ]
    target = {name: values.tolist() for name, values in batch["target"].items()}
    assert target == {"start": [11, 7], "end": [12, 8], "paragraph": [2, 1], "answer_type": [1, 1]}
    assert (places["num_paragraphs"], batch["first_paragraph"].tolist()) == (2, [0, 1])
    assert batch["document_start"].tolist() == [5, 5]
    has_text = [k not in (0, 5) for k in range(12)]
    assert batch["has_text"].tolist() == [
        [False] * 5 + has_text[:10] + [False],
        [False] * 5 + has_text[4:] + [False] * 3,
    ]
    assert (batch["nsentences"], batch["ntokens"]) == (2, 30)

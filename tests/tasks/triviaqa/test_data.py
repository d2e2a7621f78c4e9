import json

import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.shared.examples import Symbols
from fairseq_poolingformer.tasks.shared.heads import SpanLogits
from fairseq_poolingformer.tasks.triviaqa.data import TriviaqaExamples, TriviaqaSplit
from fairseq_poolingformer.tasks.triviaqa.task import TriviaqaPredictor
from tests.tasks.released_files import triviaqa_folder

SYMBOLS = Symbols(bos=0, eos=2, pad=1, marks={})
SIZES = {"max_positions": 24, "max_length": 60, "max_question_length": 9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return triviaqa_folder(tmp_path_factory.mktemp("triviaqa"))


@pytest.fixture(scope="module")
def split(folder):
    return TriviaqaSplit.open(folder, "train")


@pytest.mark.parametrize("max_segments", [0, 2])
def test_segments_are_the_question_and_the_document_in_order(split, max_segments):
    examples = TriviaqaExamples(split, SYMBOLS, **SIZES, max_segments=max_segments)
    counts = []
    for number in range(len(split)):
        head, document = [0, *split.question[number][:9], 2], split.document[number]
        segments, read = examples.segments(number), []
        assert sum(len(segment.tokens) for segment in segments) == examples.sizes[number]
        for segment in segments:
            size = len(segment.tokens)
            assert size <= 24
            assert segment.tokens[: len(head)].tolist() == head
            assert segment.tokens[-1] == 2
            assert segment.global_mask.tolist() == [k < len(head) - 1 for k in range(size)]
            assert np.flatnonzero(segment.inputs["piece"]).tolist() == list(range(len(head), size - 1))
            read += segment.tokens[len(head) : -1].tolist()
        room = min(60 - len(head) - 1, max_segments * (24 - len(head) - 1) or 60)
        assert read == document[:room].tolist()
        counts.append(len(segments))
    assert max(counts) == (2 if max_segments else 4)


def test_right_tokens_and_trainable_examples_equal_a_search_for_each_answer(split):
    """The twin looks at every answer and every segment; some answers are cut off, or a cut goes through them."""
    outcomes = set()
    for max_positions, max_length in ((16, 24), (20, 40), (24, 60), (17, 0)):
        examples = TriviaqaExamples(split, SYMBOLS, max_positions, max_length, max_question_length=9)
        trainable = []
        for number in range(len(split)):
            begin, count = 0, 0
            for segment in examples.segments(number):
                offset = int(segment.inputs["piece"].argmax())
                end = begin + int(segment.inputs["piece"].sum())
                held = [(a, b) for a, b in split.answers(number).tolist() if begin <= a and b <= end]
                for name, tokens in (("first", {a for a, _ in held}), ("last", {b - 1 for _, b in held})):
                    expected = sorted(token - begin + offset for token in tokens)
                    assert np.flatnonzero(segment.targets[name]).tolist() == expected
                begin, count = end, count + len(held)
            trainable.append(bool(count))
        assert list(examples.trainable) == trainable
        outcomes |= set(trainable)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    "sizes", [{"max_positions": 12}, {"max_length": 12}, {"max_length": -1}, {"max_question_length": 0}]
)
def test_sizes_without_room_are_refused(split, sizes):
    with pytest.raises(ValueError, match="leaves no room"):
        TriviaqaExamples(split, SYMBOLS, **(SIZES | sizes))
    for least in ({"max_positions": 13, "max_length": 13}, {"max_positions": 5, "max_question_length": 1}):
        segments = TriviaqaExamples(split, SYMBOLS, **(SIZES | least)).segments(0)
        assert len(segments[0].tokens) == least["max_positions"]  # with one token of the document


def predictions(folder, scores, tmp_path):
    """The predictions where the only good span of each example is its first answer, with the given scores."""
    split = TriviaqaSplit.open(folder, "train")
    examples = TriviaqaExamples(split, SYMBOLS, 200, 0)
    predictor = TriviaqaPredictor(folder, "train")
    for number, score in enumerate(scores):
        (segment,) = examples.segments(number)
        starts, ends = (torch.from_numpy(segment.targets[name]).clone() for name in ("first", "last"))
        start, end = torch.full((2, 1, len(starts)), -9.0)
        begin = int(starts.nonzero()[0])
        start[0, begin] = score
        end[0, begin + int(ends[begin:].argmax())] = score
        piece = torch.from_numpy(segment.inputs["piece"]).unsqueeze(0)
        tokens = torch.from_numpy(segment.tokens).unsqueeze(0)
        output = SpanLogits(start, end, piece, torch.tensor([0]), 1)
        predictor.add([number], output, {"net_input": {"src_tokens": tokens}})
    predictor.write(tmp_path / "predictions.json")
    return json.loads((tmp_path / "predictions.json").read_text(encoding="utf-8"))


def test_the_best_of_a_questions_documents_answers_it_and_each_document_in_the_web_set(folder, tmp_path):
    answers = predictions(folder, [1.0, 3.0, 2.0, 2.0], tmp_path)
    assert answers == {"tc_1": "city of light", "tc_2": "Ross Bagdasarian", "tc_3": "Sunset-Boulevard"}
    assert predictions(folder, [4.0, 3.0, 2.0, 2.0], tmp_path)["tc_1"] == "PARIS"
    answers = predictions(triviaqa_folder(tmp_path, domain="Web"), [1.0, 3.0, 2.0, 2.0], tmp_path)
    assert list(answers) == ["tc_1--France.txt", "tc_1--Paris.txt", "tc_2--Chipmunks.txt", "tc_3--Webber.txt"]
    assert answers["tc_1--France.txt"] == "PARIS"

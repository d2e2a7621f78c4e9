import pytest

from fairseq_poolingformer.tasks.coreference.data import CoreferenceSplit
from fairseq_poolingformer.tasks.hotpotqa.data import HotpotqaSplit
from fairseq_poolingformer.tasks.triviaqa.data import TriviaqaSplit
from fairseq_poolingformer.tasks.wikihop.data import WikihopSplit
from tests.tasks.folders import write

WORDS = {"document": [5, 6, 7], "word": [1, 2], "sentence": [1, 1]}
WHOLE = {  # an example that fits
    WikihopSplit: {
        **{"question": [5], "candidates": [5, 6, 7], "candidate_sizes": [1, 2], "answer": [1]},
        **{"supports": [5, 6], "support_sizes": [2]},
    },
    TriviaqaSplit: {"question": [5], "document": [5, 6, 7], "answer": [0, 1, 1, 3]},
    HotpotqaSplit: {
        **{"question": [5], "document": [5, 6, 7], "paragraph": [1, 2, 0], "sentence": [1, 0, 1, 1]},
        **{"answer": [0, 1], "answer_type": [0]},
    },
    CoreferenceSplit: {**WORDS, "speaker": [0, 1], "mention": [0, 1, 1]},
}
CASES = [
    (WikihopSplit, "answer", [2], "no such candidate"),
    (WikihopSplit, "supports", [5], "the sizes do not add up to valid.supports"),
    (TriviaqaSplit, "answer", [0], "answers are not pairs of tokens"),
    (TriviaqaSplit, "answer", [0, 4], "an answer is empty or lies outside the document"),
    (HotpotqaSplit, "paragraph", [1, 2], "not rows of 3"),
    (HotpotqaSplit, "paragraph", [1, 1, 0], "not all paragraphs' sentences"),
    (HotpotqaSplit, "document", [5, 6], "titles and sentences have another number of tokens"),
    (HotpotqaSplit, "answer_type", [0, 1], "more than one type of answer"),
    (CoreferenceSplit, "document", [5, 6], "not the number of pieces for each word"),
    (CoreferenceSplit, "speaker", [0], "not one speaker for each word"),
    (CoreferenceSplit, "mention", [0, 1], "not rows of three numbers"),
]


@pytest.mark.parametrize(("split", "array", "values", "message"), CASES)
def test_arrays_that_contradict_each_other_are_named(tmp_path, split, array, values, message):
    whole = {name: [row, row] for name, row in WHOLE[split].items()}
    split.open(write(tmp_path / "whole", "any", "valid", whole, {}), "valid")
    wrong = {name: [row, values if name == array else row] for name, row in WHOLE[split].items()}
    with pytest.raises(ValueError, match=f"example 1: {message}; preprocess again"):
        split.open(write(tmp_path / "wrong", "any", "valid", wrong, {}), "valid")

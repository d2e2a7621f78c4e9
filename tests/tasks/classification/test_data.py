import numpy as np
import pytest

from fairseq_poolingformer.tasks.classification.data import ClassificationExamples, ClassificationSplit, read_labels
from tests.tasks.folders import SYMBOLS, words, write

SIZES = (0, 1, 5, 6, 7, 12, 13, 40)
LABELS = ([1], [], [0], [2], [0], [1], [2], [0])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    documents = [words(rng, size) for size in SIZES]
    arrays = {"document": documents, "label": list(LABELS)}
    texts = {"id": [f"é/{number}" for number in range(len(SIZES))]}
    folder = tmp_path_factory.mktemp("data")
    write(folder, "document_classification", "valid", arrays, texts, labels=["a", "ü", "c"])
    return folder, documents, ClassificationSplit.open(folder, "valid")


@pytest.mark.parametrize(("max_segments", "use_global"), [(0, True), (2, False)])
def test_segments_are_the_document_between_two_symbols(data, max_segments, use_global):
    _, documents, split = data
    options = {} if use_global else {"use_global": False}
    examples = ClassificationExamples(split, SYMBOLS, 8, max_segments, **options)
    for number, document in enumerate(documents):
        pieces = [document[start : start + 6] for start in range(0, len(document), 6)] or [[]]
        pieces = pieces[:max_segments] if max_segments else pieces
        segments = examples.segments(number)
        assert [s.tokens.tolist() for s in segments] == [[SYMBOLS.bos, *piece, SYMBOLS.eos] for piece in pieces]
        assert all(s.global_mask.tolist() == [use_global] + [False] * (len(s.tokens) - 1) for s in segments)
        assert examples.sizes[number] == sum(len(s.tokens) for s in segments)
        assert examples.targets(number) == {"label": LABELS[number][0] if LABELS[number] else -1}


def test_folders_that_contradict_themselves_are_refused(data, tmp_path):
    arrays = {"document": [[5], [6]], "label": [[0], [0, 1]]}
    folder = write(tmp_path, "document_classification", "valid", arrays, {"id": ["d", "e"]}, labels=[])
    split = ClassificationSplit.open(folder, "valid")
    with pytest.raises(ValueError, match="example 1: several labels"):
        ClassificationExamples(split, SYMBOLS, 8)
    with pytest.raises(ValueError, match=r"no labels in corpus\.json"):
        read_labels(folder)

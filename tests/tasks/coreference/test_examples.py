"""Coreference's segments against a builder that works piece by piece; predictions; damaged folders."""

import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.coreference.data import (
    CoreferenceExamples,
    CoreferenceSplit,
    genre_of,
)
from fairseq_poolingformer.tasks.coreference.head import Antecedents
from fairseq_poolingformer.tasks.coreference.scores import read_files
from fairseq_poolingformer.tasks.coreference.task import CoreferencePredictor
from fairseq_poolingformer.tasks.shared.examples import cut_document
from tests.tasks.folders import SYMBOLS, write


def random_document(rng):
    """Arrays of a document; its pieces are numbered, so that each tells its place."""
    sentences = rng.integers(1, 6, size=rng.integers(1, 7))
    words = rng.integers(1, 5, size=sentences.sum())
    mentions = [(start, start + 1 + int(rng.integers(2)), int(rng.integers(1, 4))) for start in range(len(words) - 1)]
    return {
        "document": np.arange(words.sum()) + 100,
        "word": words,
        "sentence": sentences,
        "speaker": rng.integers(0, 3, size=len(words)),
        "mention": np.array(mentions).reshape(-1),
    }


def write_documents(folder, documents):
    arrays = {name: [document[name] for document in documents] for name in documents[0]}
    names = [f"(wb/{number}); part 000" for number in range(len(documents))]
    words = [" ".join(f"w{n}" for n in range(len(document["word"]))) for document in documents]
    write(folder, "coreference", "valid", arrays, {"id": names, "words": words})
    with open(folder / "dict.txt", "a") as dictionary:
        dictionary.writelines(f"piece{number} 1\n" for number in range(240))
    return folder, names


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    documents = [random_document(rng) for _ in range(40)]
    folder, names = write_documents(tmp_path_factory.mktemp("data"), documents)
    return documents, CoreferenceSplit.open(folder, "valid"), names


def naive_borders(document, room):
    """The end of a sentence where one is in reach, else that of a word, else as far as there is room."""
    word_of = np.repeat(np.arange(len(document["word"])), document["word"])
    sentence_of = np.repeat(np.arange(len(document["sentence"])), document["sentence"])[word_of]
    borders = [0]
    while borders[-1] < len(word_of):
        reach = range(min(borders[-1] + room, len(word_of)), borders[-1], -1)
        for unit in (sentence_of, word_of, np.arange(len(word_of))):
            ends = [end for end in reach if end == len(word_of) or unit[end - 1] != unit[end]]
            if ends:
                borders.append(ends[0])
                break
    return borders


@pytest.mark.parametrize("room", [1, 3, 6, 13, 200])
def test_documents_are_cut_after_sentences_then_words(data, room):
    for document in data[0]:
        assert cut_document(document["word"], document["sentence"], room).tolist() == naive_borders(document, room)


@pytest.mark.parametrize(("max_positions", "max_segments"), [(300, 0), (9, 0), (9, 2), (4, 3)])
def test_segments_words_and_mentions_belong_together(data, max_positions, max_segments):
    documents, split, names = data
    examples = CoreferenceExamples(split, names, SYMBOLS, max_positions, max_segments, seed=5)
    first_pieces = set()
    for epoch in (1, 2, 3):
        examples.set_epoch(epoch)
        for number, document in enumerate(documents):
            segments, inputs = examples.segments(number), examples.inputs(number)
            assert all(len(segment.tokens) <= max_positions for segment in segments)
            assert sum(len(segment.tokens) for segment in segments) <= examples.sizes[number]
            assert not any(segment.global_mask.any() for segment in segments)
            borders = naive_borders(document, max_positions - 2)
            assert len(segments) == (min(len(borders) - 1, max_segments) if max_segments else len(borders) - 1)
            for segment in segments:
                assert (segment.tokens[0], segment.tokens[-1]) == (SYMBOLS.bos, SYMBOLS.eos)
            pieces = np.concatenate([segment.tokens[1:-1] for segment in segments]) - 100
            assert inputs["segment_sizes"].tolist() == [len(segment.tokens) - 2 for segment in segments]
            assert pieces.tolist() == list(range(pieces[0], pieces[-1] + 1))
            assert {pieces[0], pieces[-1] + 1} <= set(borders)
            first_pieces.add((number, int(pieces[0])))

            word_of = np.repeat(np.arange(len(document["word"])), document["word"])[pieces]
            sentence_of = np.repeat(np.arange(len(document["sentence"])), document["sentence"])
            words = np.unique(word_of)
            found = list(zip(inputs["word_starts"], inputs["word_ends"], strict=True))
            assert [set(word_of[start:end]) for start, end in found] == [{word} for word in words]
            assert inputs["word_ends"][-1] == len(pieces)
            assert inputs["sentences"].tolist() == sentence_of[words].tolist()
            assert inputs["speakers"].tolist() == document["speaker"][words].tolist()
            mentions = {tuple(row) for row in examples.targets(number)["mentions"][:, :2] + words[0]}
            expected = {(start, end) for start, end, _ in document["mention"].reshape(-1, 3).tolist()}
            assert mentions == {(start, end) for start, end in expected if start >= words[0] and end <= words[-1] + 1}
    assert (len(first_pieces) > len(documents)) == bool(max_segments)  # each epoch draws its own stretches


def test_genres_come_from_names():
    names = ("(bc/a/00/a_0001); part 000", "(wb/b); part 001", "(xx/b); part 000", "(bcd/b)")
    assert [genre_of(name) for name in names] == [1, 7, 0, 0]


def test_predictions_are_written_in_the_column_format(data, tmp_path):
    documents, _, _ = data
    folder, names = write_documents(tmp_path / "data", documents[:3])
    predictor = CoreferencePredictor(folder, "valid")
    scores = torch.tensor([[0, -torch.inf], [0, 1.0]])
    spans = torch.tensor([[0, 1], [1, 3]])
    output = Antecedents(spans, torch.zeros(2, 1, dtype=torch.long), scores, spans, torch.zeros(2))
    predictor.add([2, 0], [output, tuple(output)], {})
    predictor.add([1], [output._replace(scores=-scores.abs())], {})
    predictor.write(tmp_path / "predictions")
    found = read_files([tmp_path / "predictions"])
    assert list(found) == names[:3]
    for document, read in zip(documents, found.values(), strict=False):
        assert read.sentences == tuple(document["sentence"].tolist())
        assert read.words == tuple(f"w{n}" for n in range(len(document["word"])))
    assert [sorted(map(sorted, read.clusters)) for read in found.values()] == [
        [[(0, 1), (1, 3)]],
        [],
        [[(0, 1), (1, 3)]],
    ]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ("document", "not the number of pieces for each word"),
        ("sentence", "not the number of words for each sentence"),
        ("speaker", "not one speaker for each word"),
        ("mention", "not rows of three numbers"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(data, tmp_path, array, message):
    documents = [dict(document) for document in data[0][:3]]
    documents[1][array] = np.append(documents[1][array], 1)
    folder, _ = write_documents(tmp_path, documents)
    with pytest.raises(ValueError, match=f"example 1: {message}; preprocess again"):
        CoreferenceSplit.open(folder, "valid")

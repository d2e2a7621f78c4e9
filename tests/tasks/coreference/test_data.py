import numpy as np
import pytest

from fairseq_poolingformer.tasks.coreference.data import (
    SCORED_COLUMNS,
    CoreferenceExamples,
    CoreferenceSplit,
    RawDocument,
    genre_of,
    parse_document,
    split_documents,
    write_document,
)
from fairseq_poolingformer.text.json_values import BadLine
from tests.tasks.coreference.test_scores import CASES, as_tuples
from tests.tasks.folders import SYMBOLS, write


def raw(*cells, begin="#begin document (a/b); part 001", end="#end document"):
    """A document whose words have these last columns; an empty one ends a sentence."""
    lines = [f"a/b 1 0 w{n} NN * - - - Ann * {cell}" if cell else "" for n, cell in enumerate(cells)]
    return RawDocument([begin, *lines, end], 1)


@pytest.mark.parametrize(
    ("cells", "clusters"),
    [
        (["(1|(2", "-", "1)|2)"], [[(0, 3)], [(0, 3)]]),  # the same words twice
        (["(1", "(2", "1)", "2)"], [[(0, 3)], [(1, 4)]]),  # crossing
        (["(1", "(1", "1)", "1)"], [[(1, 3), (0, 4)]]),  # of one entity the last one to begin ends first
        (["(3|(7)|(3", "3)", "", "3)"], [[(0, 1)], [(0, 2), (0, 3)]]),
        (["(1(2", "2)1)"], [[(0, 2)], [(0, 2)]]),  # the official scorer needs no |
    ],
)
def test_reads_every_kind_of_mention(cells, clusters):
    assert [list(cluster) for cluster in parse_document(raw(*cells)).clusters] == clusters


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (raw("(1", "-"), r"unbalanced bracket: \(1 of line 2 is never closed"),
        (raw("-", "", "4)"), r"unbalanced bracket: 4\) in line 4 closes nothing"),
        (raw("-", "(x)"), r"no mentions: the last column of line 3 is '\(x\)'"),
        (raw("-", end="a/b 1 1 w NN * - - - - * -"), "no end: the document that begins in line 1"),
        (raw("-", begin="#begin document a/b"), "no name: line 1 must read"),
        (RawDocument(["#begin document (a); part 0", "a 0 0 word -", "#end document"], 7), "line 8 has 5, and .* 12"),
    ],
)
def test_a_bad_line_is_named(document, message):
    with pytest.raises(BadLine, match=message):
        parse_document(document)


def test_bad_documents_leave_their_neighbours_whole():
    lines = ["# a comment", "", "stray line", "#begin document (a); part 000", "a 0 0 one -"]
    lines += ["#begin document (b); part 000", "b 0 0 two -", "", "#end document", " \t"]
    lines += ["#begin document (c); part 000", "c 0 0 three -"]
    documents = list(split_documents(lines))
    assert [(document.first_line, len(document.lines)) for document in documents] == [(3, 1), (4, 2), (6, 4), (11, 2)]
    assert parse_document(documents[2], SCORED_COLUMNS).words == ("two",)
    for bad in (0, 1, 3):
        with pytest.raises(BadLine):
            parse_document(documents[bad], SCORED_COLUMNS)


def test_writes_what_it_reads():
    """Random entities: nested, crossing those of others, of one word, with the same words."""
    for number, clusters in enumerate(as_tuples(case[side]) for case in CASES for side in ("key", "response")):
        words, speakers = [f"w{n}" for n in range(24)], ["Ann" if n % 3 else "Bob" for n in range(24)]
        lines = list(write_document(f"(x/{number}); part 003", words, [10, 1, 13], clusters, speakers))
        (document,) = split_documents(lines)
        parsed = parse_document(document)
        assert sorted(map(sorted, parsed.clusters)) == sorted(map(sorted, clusters))
        assert (parsed.name, parsed.sentences) == (f"(x/{number}); part 003", (10, 1, 13))
        assert (parsed.words, parsed.speakers) == (tuple(words), tuple(speakers))


def test_one_word_is_a_bracket_of_its_own_and_genres_come_from_names():
    lines = list(write_document("(a); part 000", ["w"] * 3, [3], [[(0, 1), (1, 3)], [(0, 3), (2, 3)]]))
    assert [line.split("\t")[-1] for line in lines[1:4]] == ["(1|(0)", "(0", "(1)|0)|1)"]
    names = ("(bc/a/00/a_0001); part 000", "(wb/b); part 001", "(xx/b); part 000", "(bcd/b)")
    assert [genre_of(name) for name in names] == [1, 7, 0, 0]


def random_document(rng):
    """Arrays of a document; its pieces are numbered, so that each tells its place."""
    sentences = rng.integers(1, 6, size=rng.integers(1, 7))
    words = rng.integers(1, 5, size=sentences.sum())
    mentions = [(start, start + 1 + int(rng.integers(2)), int(rng.integers(1, 4))) for start in range(len(words) - 1)]
    arrays = {"document": np.arange(words.sum()) + 100, "word": words, "sentence": sentences}
    return arrays | {"speaker": rng.integers(0, 3, size=len(words)), "mention": np.array(mentions).reshape(-1)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    documents = [random_document(rng) for _ in range(40)]
    arrays = {name: [document[name] for document in documents] for name in documents[0]}
    names = [f"(wb/{number}); part 000" for number in range(len(documents))]
    words = [" ".join(f"w{n}" for n in range(len(document["word"]))) for document in documents]
    write(folder, "coreference", "valid", arrays, {"id": names, "words": words})
    with open(folder / "dict.txt", "a") as dictionary:
        dictionary.writelines(f"piece{number} 1\n" for number in range(240))
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
            places = list(zip(inputs["word_starts"], inputs["word_ends"], strict=True))
            assert [set(word_of[start:end]) for start, end in places] == [{word} for word in words]
            assert inputs["word_ends"][-1] == len(pieces)
            assert inputs["sentences"].tolist() == sentence_of[words].tolist()
            assert inputs["speakers"].tolist() == document["speaker"][words].tolist()
            mentions = {tuple(row) for row in examples.targets(number)["mentions"][:, :2] + words[0]}
            expected = {(start, end) for start, end, _ in document["mention"].reshape(-1, 3).tolist()}
            assert mentions == {(start, end) for start, end in expected if start >= words[0] and end <= words[-1] + 1}
    assert (len(first_pieces) > len(documents)) == bool(max_segments)  # each epoch draws its own stretches

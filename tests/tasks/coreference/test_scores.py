import json
from dataclasses import astuple
from pathlib import Path

import pytest

from fairseq_poolingformer.tasks.coreference.scores import read_files, score, score_document
from tests.tasks.coreference.official_coreference import METRICS, write

CASES = json.loads((Path(__file__).parent / "fixtures" / "official_coreference.json").read_text())["documents"]


def as_tuples(chains):
    return [[tuple(mention) for mention in chain] for chain in chains]


def test_counts_equal_the_official_scorers(tmp_path):
    repeated = 0
    for case in CASES:
        write(tmp_path / "key", [as_tuples(case["key"])])
        write(tmp_path / "response", [as_tuples(case["response"])])
        (key,) = read_files([tmp_path / "key"]).values()
        (response,) = read_files([tmp_path / "response"]).values()
        counts = score_document(key.clusters, response.clusters)
        repeated += counts.repeated
        for name in METRICS:
            assert astuple(getattr(counts, name)) == pytest.approx(case["counts"][name], abs=1e-9), (name, case)
    assert repeated >= 5


def test_figures_of_several_files_are_quotients_of_sums(tmp_path):
    cases = [case for case in CASES if not score_document(as_tuples(case["key"]), as_tuples(case["response"])).repeated]
    keys = [as_tuples(case["key"]) for case in cases]
    write(tmp_path / "key", keys)
    write(tmp_path / "response", [as_tuples(case["response"]) for case in cases])
    figures = score([tmp_path / "key"], tmp_path / "response")
    f1 = []
    for name in METRICS:
        sums = [sum(column) for column in zip(*(case["counts"][name] for case in cases), strict=True)]
        recall, precision = sums[0] / sums[1], sums[2] / sums[3]
        f1.append(200 * recall * precision / (recall + precision))
        assert figures[f"{name}_recall"] == pytest.approx(100 * recall)
        assert figures[f"{name}_precision"] == pytest.approx(100 * precision)
        assert figures[f"{name}_f1"] == pytest.approx(f1[-1])
    assert figures["conll_f1"] == pytest.approx(sum(f1) / 3)


def test_files_are_read_as_preprocessing_reads_them(tmp_path):
    """It takes a byte order mark, ends of lines of Windows, and a carriage return in a word."""
    lines = ["#begin document (a); part 000", "a 0 0 b\rc - (1)", "", "a 0 0 d - -", "#end document"]
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    (document,) = read_files([tmp_path / "key"]).values()
    assert (document.words, document.sentences, document.clusters) == (("b\rc", "d"), (1, 1), (((0, 1),),))


def test_a_missing_document_has_no_mentions_and_ten_may_be_repeated(tmp_path):
    write(tmp_path / "key", [[MENTIONS], [MENTIONS]])
    for response in ([MENTIONS], [MENTIONS, MENTIONS[:10]]):
        write(tmp_path / "response", [response])
        assert score([tmp_path / "key"], tmp_path / "response")["muc_recall"] == 50


MENTIONS = [(word, word + 1) for word in range(12)]
OTHER = "#begin document (other); part 000\nx\t-\n#end document\n"


@pytest.mark.parametrize(
    ("response", "copies", "message"),
    [
        ({"chains": [[MENTIONS]], "words": 26}, 1, r"response: \(case/0\); part 000 has 26 words, but 24"),
        ({"chains": [[MENTIONS], [MENTIONS]]}, 2, r"key, line 1: \(case/0\); part 000 occurs a second time"),
        ("#begin document (case/0); part 000\nx\t(3\n#end document\n", 1, r"unbalanced bracket: \(3 of line 2"),
        (OTHER, 1, "no document of the gold files"),
        ({"chains": [[MENTIONS, MENTIONS]]}, 1, "response: 12 mentions occur twice"),
    ],
)
def test_files_that_cannot_be_scored_are_named(tmp_path, response, copies, message):
    write(tmp_path / "key", [[MENTIONS], [MENTIONS]])
    if isinstance(response, str):
        (tmp_path / "response").write_text(response)
    else:
        write(tmp_path / "response", **response)
    with pytest.raises(ValueError, match=message):
        score([tmp_path / "key"] * copies, tmp_path / "response")

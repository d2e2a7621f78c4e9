"""Which examples and rejects of its parts a split takes; unfinished work that is torn."""

import pytest

from preprocess.pipeline import data_folder
from preprocess.pipeline.data_folder import SplitResult
from preprocess.pipeline.parts import Part
from tests.preprocess.conftest import contents


def content(lines, first):
    """What a part holds of lines: a letter is the id of a good example, - a bad line."""
    places, rejects = [], []
    for number, line in enumerate(lines, first):
        if line == "-":
            rejects.append({"before": len(places), "file": "file", "line": number, "reason": "bad"})
        else:
            places.append(["file", number])
    ids = [line for line in lines if line != "-"]
    return {
        "places": places,
        "texts": {"id": ids},
        "digests": [0] * len(ids),
        "rejects": rejects,
        "skipped": {"kind": 1},
        "lost": {},
    }


@pytest.mark.parametrize(
    ("limit", "taken", "rejected"),
    [
        (None, "abacad", [1, 2, 6, 9]),
        (7, "abacad", [1, 2, 6, 9]),
        (4, "abac", [1, 2, 6]),
        (3, "aba", [1, 2]),
        (1, "a", [1, 2]),
    ],
)
def test_a_limit_takes_the_first_examples_and_the_rejects_before_them(tmp_path, limit, taken, rejected):
    result, number, found = SplitResult(), 1, []
    for index, lines in enumerate(("--", "ab", "a-ca", "-d")):
        result.add(Part(tmp_path, "train", index), content(lines, number), reused=index == 0, limit=limit)
        ids = [line for line in lines if line != "-"]
        found += [name for name, take in zip(ids, result.parts[-1][1], strict=True) if take]
        number += len(lines)
        if result.examples == limit:
            break
    assert "".join(found) == taken
    assert result.examples == len(taken)
    assert [reject["line"] for reject in result.rejects] == rejected
    assert (result.reused, result.skipped["kind"]) == (1, len(result.parts))


def test_an_id_that_was_there_is_a_reject_and_does_not_count(tmp_path):
    result = SplitResult(seen=set())
    for index, lines in enumerate(("a-a", "bacd")):
        result.add(Part(tmp_path, "train", index), content(lines, 1 + 3 * index), reused=False, limit=3)
    assert [take.tolist() for _, take, _ in result.parts] == [[True, False], [True, False, True, False]]
    assert [(reject["line"], reject["reason"][:16]) for reject in result.rejects] == [
        (2, "bad"),
        (3, "example id twice"),
        (5, "example id twice"),
    ]


@pytest.mark.parametrize("name", ["fingerprint", "tokenizer.sha256", "tokenizer/config.json", "tokenizer/vocab.bpe"])
@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\xff\xfe"])
def test_unfinished_work_that_a_loss_of_power_has_torn(command, release, tmp_path, name, content, monkeypatch):
    assert command(tmp_path / "one", "--input-folder", release) == 0
    with monkeypatch.context() as patch:
        patch.setattr(data_folder, "write", None)  # stops before the data folder is written
        with pytest.raises(TypeError):
            command(tmp_path / "torn", "--input-folder", release)
    (tmp_path / "torn" / ".parts" / name).write_bytes(content)
    assert command(tmp_path / "torn", "--input-folder", release) == 0
    assert contents(tmp_path / "torn") == contents(tmp_path / "one")

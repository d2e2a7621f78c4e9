"""Which examples and rejects of its parts a split takes; shards joined give the folder of one machine."""

import json
import shutil

import pytest

from preprocess.pipeline import data_folder, parts
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


@pytest.fixture
def many_parts(monkeypatch):
    """A part for every record or two of the tiny release."""
    monkeypatch.setattr(parts, "PART_BYTES", 300)


def run_shards(command, release, folder, count, *args):
    for number in range(count):
        shard = ["--num-shards", count, "--shard-id", number]
        assert command(folder / f"shard{number}", "--input-folder", release, *shard, *args) == 0
    return [folder / f"shard{number}" for number in range(count)]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shards_join_to_the_bytes_of_one_run(command, release, tmp_path, many_parts, count, monkeypatch, capsys):
    assert command(tmp_path / "one", "--input-folder", release, "--limit", 4) == 0
    folders = run_shards(command, release, tmp_path, count, "--limit", 4)
    made = [sorted(path.name for path in folder.glob(".parts/*.json")) for folder in folders]
    assert len({name for names in made for name in names}) == sum(map(len, made)) >= 4, "each part once"
    assert not any((folder / "corpus.json").exists() for folder in folders)
    monkeypatch.setattr(parts, "encode_part", None)  # joining encodes nothing
    assert command(tmp_path / "joined", "--input-folder", release, "--limit", 4, "--join", *folders) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "joined")
    assert f"shard 0 of {count}: {len(made[0])} parts in" in capsys.readouterr().out


def test_shards_train_the_same_tokenizer(command, release, tmp_path, many_parts):
    trained = ["--sentencepiece-train", "340"]
    assert command(tmp_path / "one", "--input-folder", release, tokenizer=trained) == 0
    for number in range(2):
        shard = ["--num-shards", 2, "--shard-id", number]
        assert command(tmp_path / f"{number}", "--input-folder", release, *shard, tokenizer=trained) == 0
    joined = ["--input-folder", release, "--join", tmp_path / "0", tmp_path / "1"]
    assert command(tmp_path / "joined", *joined, tokenizer=trained) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "joined")


def test_what_no_shard_has_encoded_is_encoded_when_joining(command, release, tmp_path, many_parts, caplog):
    assert command(tmp_path / "one", "--input-folder", release) == 0
    folders = run_shards(command, release, tmp_path, 2)
    lost = sorted(folders[1].glob(".parts/train-*.json"))
    lost[0].unlink()  # as a kill leaves a part: its arrays without the file that says that they are whole
    assert command(tmp_path / "joined", "--input-folder", release, "--join", *folders) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "joined")


def test_a_shard_continues_after_a_kill_and_is_not_mixed_with_another(command, release, tmp_path, many_parts, capsys):
    (folder,) = run_shards(command, release, tmp_path, 1)
    before = contents(folder)
    assert command(folder, "--input-folder", release, "--num-shards", 1, "--shard-id", 0) == 0
    assert contents(folder) == before
    assert command(folder, "--input-folder", release, "--num-shards", 2, "--shard-id", 1) == 1
    assert "has the work of shard 0 of 1: give each shard an --output-folder of its own" in capsys.readouterr().err


def test_parts_that_do_not_fit_are_refused(command, release, tmp_path, many_parts, capsys):
    joined = [tmp_path / "joined", "--input-folder", release]
    assert command(*joined, "--join", tmp_path) == 1
    assert "no shard has worked there" in capsys.readouterr().err
    (folder,) = run_shards(command, release, tmp_path, 1)
    other = tmp_path / "other"
    shutil.copytree(release, other)
    lines = (other / "train.txt").read_text(encoding="utf-8").splitlines()
    (other / "train.txt").write_text("\n".join(lines[:3]) + "\n", encoding="utf-8")
    assert command(tmp_path / "joined", "--input-folder", other, "--join", folder) == 1
    assert "other options or from other input files" in capsys.readouterr().err


def test_another_tokenizer_is_refused(command, release, tmp_path, many_parts, capsys):
    folders = run_shards(command, release, tmp_path, 2)
    words = folders[1] / ".parts" / "tokenizer" / "encoder.json"
    symbols = json.loads(words.read_text(encoding="utf-8"))
    first, second = list(symbols)[:2]
    symbols[first], symbols[second] = symbols[second], symbols[first]
    words.write_text(json.dumps(symbols), encoding="utf-8")
    assert command(tmp_path / "joined", "--input-folder", release, "--join", *folders) == 1
    assert "another tokenizer than the first one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [["--num-shards", 2], ["--shard-id", 0], ["--num-shards", 2, "--shard-id", 2], ["--num-shards", 0]]
)
def test_shards_that_do_not_exist_are_refused(command, release, tmp_path, given, capsys):
    for more, message in (([], "give both"), (["--shard-id", 0, "--num-shards", 1, "--join", tmp_path], "joined by a")):
        with pytest.raises(SystemExit) as end:
            command(tmp_path / "out", "--input-folder", release, *given, *more)
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_files_are_copied_where_they_cannot_be_linked(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError

    monkeypatch.setattr(data_folder.os, "link", fail)
    (tmp_path / "source").write_bytes(b"bytes")
    data_folder._link(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"bytes"

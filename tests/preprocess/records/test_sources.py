"""Data sources and their splits."""

import pytest

from preprocess.pipeline.records import InputError
from preprocess.records.sources import expand, split_named, splits_of


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


def found(folder, **options):
    splits = splits_of(str(folder), **options)
    return {split: [str(one.path.relative_to(folder)) for one in sources] for split, sources in splits.items()}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.jsonl", "train"),
        ("data/val-00000-of-00002.parquet", "valid"),
        ("my_dev.csv", "valid"),
        ("x/test/a.json", "test"),
        ("validation", "valid"),
        ("train_test.json", None),
        ("attestation.json", None),
        ("rows.csv", None),
    ],
)
def test_names_tell_splits(name, split):
    assert split_named(name) == split


def test_shards_of_a_split_are_read_together(tmp_path):
    names = ["data/train-00000-of-2.jsonl", "data/train-00001-of-2.jsonl", "data/test-00000-of-1.jsonl"]
    write(tmp_path, *names, ".git/x", "README.md")
    assert found(tmp_path) == {"test": names[2:], "train": names[:2]}


def test_a_file_of_the_very_name_comes_before_others(tmp_path):
    write(tmp_path, "train.txt", "training-notes.txt", "val.txt", "vocabulary")
    assert found(tmp_path) == {"train": ["train.txt"], "valid": ["val.txt"]}


def test_folders_and_files_of_splits(tmp_path):
    write(tmp_path, "train/a/1.gz", "train/b/1.gz", "test.txt", "notes.txt")
    (tmp_path / "train/a/1.gz").write_bytes(b"")
    assert found(tmp_path) == {"train": ["train/a/1.gz", "train/b/1.gz"], "test": ["test.txt"]}


@pytest.mark.parametrize(
    "names", [("train.txt", "train.txt.gz"), ("a/train.txt", "b/train.txt"), ("train.txt", "val.txt", "valid.txt")]
)
def test_two_forms_of_a_split_are_refused(names, tmp_path):
    write(tmp_path, *names)
    with pytest.raises(InputError, match=r"both .* and .*; name files with --train"):
        splits_of(str(tmp_path))


def test_names_that_tell_nothing(tmp_path):
    write(tmp_path, "d/x.jsonl", "d/y.jsonl")
    assert found(tmp_path / "d") == {"train": ["x.jsonl", "y.jsonl"]}
    assert found(tmp_path / "d", unnamed=False) == {}
    assert list(splits_of(str(tmp_path / "d" / "x.jsonl"), unnamed=False)) == ["train"]
    with pytest.raises(InputError, match=r"nowhere\.jsonl: no such file"):
        splits_of(str(tmp_path / "nowhere.jsonl"))


def test_a_source_is_known_by_its_content(tmp_path):
    (tmp_path / "texts").mkdir()
    for name, text in (("a.txt", "x"), ("a.summary.txt", "y")):
        (tmp_path / "texts" / name).write_text(text)
    (before,) = expand([str(tmp_path / "texts")])[0].describe()
    assert (before["files"], before["file"]) == (2, "texts")
    (tmp_path / "texts" / "a.txt").write_text("z")
    assert expand([str(tmp_path / "texts")])[0].describe() != [before]

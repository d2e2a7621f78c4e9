import pytest

from preprocess.records.sources import expand, split_named, splits_of


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


def splits_in(folder, **options):
    splits = splits_of(str(folder), **options)
    return {split: [str(x.path.relative_to(folder)) for x in sources] for split, sources in splits.items()}


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("train", ["train.jsonl"]),
        ("valid", ["val-00000-of-00002.parquet", "my_dev.csv", "validation"]),
        (None, ["train_test.json", "attestation.json", "rows.csv"]),
    ],
)
def test_names_tell_splits(split, names):
    assert {split_named(name) for name in names} == {split}


SHARDS, GZIPPED = ["d/train-0-of-2", "d/train-1-of-2"], ["train/a/1.gz", "train/b/1.gz"]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        ("d/train-0-of-2 d/train-1-of-2 d/test-0-of-1 .git/x README.md", {"train": SHARDS, "test": ["d/test-0-of-1"]}),
        ("train.txt training-notes.txt val.txt vocabulary", {"train": ["train.txt"], "valid": ["val.txt"]}),
        ("train/a/1.gz train/b/1.gz test.txt notes.txt", {"train": GZIPPED, "test": ["test.txt"]}),
    ],
)
def test_folders_and_files_of_splits(tmp_path, names, splits):
    write(tmp_path, *names.split())
    for empty in tmp_path.glob("train/a/1.gz"):
        empty.write_bytes(b"")
    assert splits_in(tmp_path) == splits


@pytest.mark.parametrize(
    "names", [("train.txt", "train.txt.gz"), ("a/train.txt", "b/train.txt"), ("train.txt", "val.txt", "valid.txt")]
)
def test_two_forms_of_a_split_are_refused(names, tmp_path):
    write(tmp_path, *names)
    with pytest.raises(ValueError, match=r"both .* and .*; name files with --train"):
        splits_of(str(tmp_path))


def test_names_that_tell_nothing(tmp_path):
    write(tmp_path, "d/x.jsonl", "d/y.jsonl")
    assert splits_in(tmp_path / "d") == {"train": ["x.jsonl", "y.jsonl"]}
    assert splits_in(tmp_path / "d", unnamed=False) == {}
    assert list(splits_of(str(tmp_path / "d" / "x.jsonl"), unnamed=False)) == ["train"]
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: no such file"):
        splits_of(str(tmp_path / "nowhere.jsonl"))


def test_a_source_is_known_by_its_content(tmp_path):
    (tmp_path / "texts").mkdir()
    for name, text in (("a.txt", "x"), ("a.summary.txt", "y")):
        (tmp_path / "texts" / name).write_text(text)
    (before,) = expand([str(tmp_path / "texts")])[0].describe()
    assert (before["files"], before["file"]) == (2, "texts")
    (tmp_path / "texts" / "a.txt").write_text("z")
    assert expand([str(tmp_path / "texts")])[0].describe() != [before]

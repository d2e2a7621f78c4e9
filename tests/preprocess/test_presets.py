"""Presets: made archives in the format of the real ones, to data folders, and the references of their ids."""

import json

import numpy as np
import pytest

from fairseq_poolingformer.tasks.presets import PRESETS, SUITES
from fairseq_poolingformer.tasks.presets.metrics import METRICS
from fairseq_poolingformer.tasks.summarization import PAIRS, QUERY
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import presets
from preprocess.__main__ import main
from tests.preprocess import made_presets

MADE = {
    f"{suite}/{task}": made_presets.suite(task, made_presets.OUTPUTS.get(task, "so"), suite == "zero_scrolls")
    for suite, tasks in SUITES.items()
    for task in tasks
}


def convert(name, files, folder, gpt2_folder, *more):
    words = [name, *files, "--gpt2-bpe", gpt2_folder, "--output-folder", folder, "--workers", 1, *more]
    return main([*map(str, words)])


def texts(folder, split):
    """The id, input and output of each example."""
    tokenizer, data = load_tokenizer(folder), DataFolder(folder, PAIRS)
    sides = [data.sequences(split, array) for array in PAIRS.ids]
    decoded = [[tokenizer.decode(np.asarray(side[i])[:-1].tolist()) for i in range(len(side))] for side in sides]
    return list(zip((folder / f"{split}.id.txt").read_text().splitlines(), *decoded, strict=True))


@pytest.mark.parametrize("name", PRESETS)
def test_a_release_becomes_a_data_folder(name, tmp_path, gpt2_folder, capsys):
    files = MADE[name](tmp_path / "release")
    assert convert(name, files, tmp_path / "data", gpt2_folder) == 0, capsys.readouterr().err
    corpus = json.loads((tmp_path / "data" / "corpus.json").read_text())
    assert tuple(corpus["examples"].values()) == ((2, 2) if name.startswith("zero") else (3, 2, 2))
    assert sum(corpus["rejects"].values()) == 0
    assert corpus["skipped"]["valid"] == {presets.ANOTHER: 1}
    assert corpus["preset"] == name
    assert PRESETS[name].metric in METRICS


def test_texts(tmp_path, gpt2_folder):
    for name, split, expected in (
        ("scrolls/qasper", "valid", ("validation0", "What is 0?\n\nIt is so.", "so")),
        ("scrolls/quality", "test", ("test1", "What is 1?\n\nIt is (B) two.", "")),
    ):
        assert convert(name, MADE[name](tmp_path / "release"), tmp_path / split, gpt2_folder) == 0
        assert expected in texts(tmp_path / split, split)


def test_questions_before_any_articles(tmp_path, gpt2_folder, command, write_lines):
    rows = [{"id": "a", "question": " Who? ", "article": "Text.", "summary": "Ann."}, {"id": "b", "question": ""}]
    lines = write_lines("train.jsonl", rows)
    options = ["--train", lines, "--query-key", "question", "--max-reject-fraction", 1]
    assert command(tmp_path / "data", *options) == 0
    assert texts(tmp_path / "data", "train") == [("a", "Who?\n\nText.", "Ann.")]
    (count,) = np.asarray(DataFolder(tmp_path / "data", PAIRS).sequences("train", QUERY)[0]).tolist()
    document = np.asarray(DataFolder(tmp_path / "data", PAIRS).sequences("train", PAIRS.ids[0])[0])
    assert load_tokenizer(tmp_path / "data").decode(document[:count].tolist()) == "Who?"


def one_unnamed(folder):
    folder.mkdir()
    (folder / "data.jsonl").write_text(json.dumps({"id": "a", "input": "Text.", "output": "so"}) + "\n")
    return [folder / "data.jsonl"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (made_presets.suite("qasper", "so"), "holds qasper, not qmsum"),
        (one_unnamed, "data.jsonl: its name says neither train"),
        (lambda folder: [folder / "nothing.jsonl"], "nothing.jsonl: no such file"),
    ],
)
def test_wrong_files_are_named(files, message, tmp_path, gpt2_folder, capsys):
    assert convert("scrolls/qmsum", files(tmp_path / "release"), tmp_path / "data", gpt2_folder) == 1
    assert message in capsys.readouterr().err


def test_the_folders_of_an_archive_that_was_unpacked(tmp_path, gpt2_folder):
    for task in ("qasper", "quality"):
        for split in ("train", "validation"):
            path = tmp_path / "scrolls" / task / f"{split}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"id": task, "pid": "1", "input": f"Of {task}.", "output": "so"}) + "\n")
    assert convert("scrolls/quality", [tmp_path / "scrolls"], tmp_path / "data", gpt2_folder) == 0
    assert texts(tmp_path / "data", "train") == [("quality", "Of quality.", "so")]


def test_references_by_id(tmp_path):
    files = [*map(str, MADE["scrolls/qasper"](tmp_path / "scrolls"))]
    assert presets.gold("scrolls/qasper", files) == {"validation0": ["so", "so"], "validation1": ["so"]}
    with pytest.raises(ValueError, match=r"qasper\.zip: no document has a reference; those of a test set may not be"):
        presets.gold("scrolls/qasper", files, "test")
    with pytest.raises(ValueError, match="there is no split dev2; it has train, valid, test, and --split names one"):
        presets.gold("scrolls/qasper", files, "dev2")

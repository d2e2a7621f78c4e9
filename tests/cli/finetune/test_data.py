"""Examples as people have them: division by equal text, what is left out, and what the command says of it."""

import json

import pytest

from tests.cli.finetune.conftest import read


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_no_text_is_in_two_splits(tmp_path):
    rows = [
        {"id": str(n), "text": f"the  Text {n // 4}" if n % 2 else f"The text {n // 4}", "label": n % 2}
        for n in range(80)
    ]
    data = read(write(tmp_path / "data.jsonl", rows))
    texts = {
        split: {" ".join(one.texts[0].lower().split()) for one in examples} for split, examples in data.splits.items()
    }
    assert {split: len(examples) for split, examples in data.splits.items()} == {"train": 64, "test": 8, "valid": 8}
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == 20
    assert "no file says test or valid: by a hash of the texts, 10 % as test and 10 % as valid" in data.notes
    assert data.is_divided


@pytest.mark.parametrize("same", [{"context": "a b c"}, {}])
def test_questions_about_one_text_stay_together(tmp_path, same):
    rows = [
        {"id": str(n), "question": f"q {n}", "context": f"text {n // 2}", "answers": {"text": [], "answer_start": []}}
        for n in range(40)
    ]
    path = write(tmp_path / "data.jsonl", [row | same for row in rows])
    if same:
        with pytest.raises(
            ValueError, match="40 examples of 1 different texts are too few to divide; name files with --valid"
        ):
            read(path)
        return
    data = read(path)
    contexts = [{one.texts[1] for one in examples} for examples in data.splits.values()]
    assert sum(map(len, contexts)) == 20
    assert any("of 32 questions have no answer" in note for note in data.notes)


def test_shares_and_seed(tmp_path):
    path = write(tmp_path / "data.jsonl", [{"text": f"t {n}", "label": n % 2} for n in range(100)])
    first = read(path, valid_share=0.2, test_share=0.0)
    assert {split: len(examples) for split, examples in first.splits.items()} == {"train": 80, "valid": 20}
    assert {one.id for one in first.splits["valid"]} != {one.id for one in read(path, split_seed=1).splits["valid"]}


def test_test_documents_without_a_reference_are_counted(tmp_path):
    for split in ("train", "valid", "test"):
        rows = [{"article": f"a {n} {split}", "abstract": "b" * (split != "test" or n > 2)} for n in range(12)]
        write(tmp_path / f"{split}.jsonl", rows)
    data = read(tmp_path)
    assert "test: 3 documents have no reference and are left out" in data.notes
    assert [one.texts[1] for one in data.splits["test"]] == ["b"] * 9
    assert not data.is_divided


def test_the_reason_reaches_the_user(tmp_path):
    path = write(tmp_path / "data.jsonl", [{"text": " " * (n < 3) or f"t {n}", "label": n % 2} for n in range(20)])
    with pytest.raises(ValueError, match=r"3 of 20 records of train cannot be used, such as line 1: empty document"):
        read(path)
    assert sum(map(len, read(path, max_reject_fraction=0.2).splits.values())) == 17


def test_few_examples(tmp_path):
    path = write(tmp_path / "data.jsonl", [{"text": f"t {n}", "label": n % 2} for n in range(5)])
    with pytest.raises(
        ValueError, match="5 examples of 5 different texts are too few to divide; name files with --valid and --test"
    ):
        read(path)


def test_the_columns_are_named(files, tmp_path):
    rows = [{"text": f"t {n}", "label": n % 2, "stars": 3, "url": "x"} for n in range(20)]
    report = read(write(tmp_path / "data.jsonl", rows)).report()
    assert report.startswith("classification, columns used: text, label; left out: stars, url\nexamples: 16 train, 2")

"""What data are for, told by their columns."""

import json

import pytest

from preprocess.guess import examples, guess
from preprocess.pipeline.records import InputError


def write(path, columns, count=12):
    rows = [{name: f"{name} {number}" for name in columns} for number in range(count)]
    for number, row in enumerate(rows):
        row.update(
            {"label": number % 2} if "label" in row else {},
            **({"words": ["a", "b"], "ner_tags": ["O", f"B-{number % 2}"]} if "words" in row else {}),
            **({"answers": {"text": [], "answer_start": []}} if "answers" in row else {}),
        )
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("columns", "task", "options"),
    [
        (("article", "abstract"), "long_summarization", []),
        (("report", "summary"), "long_summarization", ["--article-key", "report"]),
        (("id", "pid", "input", "output"), "long_summarization", ["--article-key", "input", "--summary-key", "output"]),
        (("text", "label"), "document_classification", ["--text-key", "text", "--label-key", "label"]),
        (("premise", "hypothesis", "label"), "document_classification", ["--pair-key", "hypothesis"]),
        (("words", "ner_tags"), "token_labels", ["--tokens-key", "words", "--labels-key", "ner_tags"]),
        (("id", "title", "context", "question", "answers"), "triviaqa", []),
    ],
)
def test_columns_tell_the_task(tmp_path, columns, task, options):
    found = guess(write(tmp_path / "data.jsonl", columns), [])
    assert found.purpose.task == task
    assert set(options) <= set(found.options)
    assert ("--article-key" in found.options) == ("--article-key" in options)
    assert set(found.corpus().splits) == {"train", "valid", "test"}
    assert list(examples(found.corpus(), "test")), "with labels, which preprocessing does not read there"


def test_several_meanings_are_listed(tmp_path):
    data = write(tmp_path / "data.jsonl", ("text", "summary", "label"))
    with pytest.raises(
        InputError, match=r"columns are text, summary, label.*--task summarization \(text to summary\) or"
    ):
        guess(data, [])
    assert guess(data, [], "classification").purpose.corpus == "labelled_text"
    assert guess(data, ["--summary-key", "summary"]).purpose.corpus == "arxiv_pubmed"


def test_files_of_different_tasks_are_named(tmp_path):
    write(tmp_path / "reports.jsonl", ("article", "abstract"))
    write(tmp_path / "reviews.jsonl", ("text", "label"))
    (tmp_path / "LICENSE").write_text("free")
    answer = {"text": "a", "answer_start": 0}
    questions = [{"context": "a b", "qas": [{"id": f"{n}", "question": "q", "answers": [answer]}]} for n in range(12)]
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": questions}]}))
    message = (
        r": its files are for different tasks: reports.jsonl for summarization \(article to abstract\); reviews.jsonl "
        r"for classification \(text to label\); squad.json for question-answering .* Name one file as DATA"
    )
    for task in (None, "classification"):
        with pytest.raises(InputError, match=message):
            guess(str(tmp_path), [], task)
    assert guess(str(tmp_path / "reviews.jsonl"), []).purpose.name == "classification"
    (tmp_path / "squad.json").unlink()
    write(tmp_path / "reports.jsonl", ("text", "abstract", "label"))  # may be for both
    write(tmp_path / "test.jsonl", ("text",))  # without labels
    assert guess(str(tmp_path), [], "classification").purpose.name == "classification"


def test_unknown_columns_are_listed_and_flags_name_them(tmp_path):
    data = write(tmp_path / "data.jsonl", ("foo", "bar"))
    with pytest.raises(InputError, match="columns are foo, bar, which do not tell what to learn"):
        guess(data, [])
    found = guess(
        data, ["--article-key", "foo", "--patience", "3", "--summary-key", "bar", "--max-reject-fraction=0.5"]
    )
    assert found.others == ["--patience", "3"]
    assert [word for word in found.options if word.startswith("--article")] == ["--article-key"]
    assert "--max-reject-fraction=0.5" in found.options


def test_splits_that_are_there_are_left_alone(tmp_path):
    for name in ("train", "validation"):
        write(tmp_path / f"{name}.jsonl", ("article", "abstract"))
    assert "--valid-share" not in (found := guess(str(tmp_path), [])).options
    assert set(found.corpus().splits) == {"train", "valid"}
    assert not found.notes
    found = guess(str(tmp_path / "train.jsonl"), ["--valid", str(tmp_path / "validation.jsonl")])
    assert found.options[:2] == ["--train", str(tmp_path / "train.jsonl")]
    (tmp_path / "validation.jsonl").rename(tmp_path / "test.jsonl")
    found = guess(str(tmp_path), [])
    assert found.options[-2:] == ["--valid-share", "0.1"] or "--split-seed" in found.options
    assert "no file says valid: a hash of the ids takes 10 % as valid" in found.notes[0]


def test_a_small_corpus_is_divided_so_that_no_split_is_empty(tmp_path):
    seeds = 0
    for name in "abcdefgh":
        found = guess(write(tmp_path / f"{name}.jsonl", ("text", "label"), 10), [])
        counts = [len(list(examples(found.corpus(), split))) for split in ("train", "valid", "test")]
        assert min(counts) > 0
        assert sum(counts) == 10
        seeds += "--split-seed" in found.options
    assert seeds, "of one of these files, the usual hash leaves a split empty"


@pytest.mark.parametrize(
    ("count", "message"), [(0, "no records with columns"), (5, "5 records, too few to divide; name files with --valid")]
)
def test_too_little_data(tmp_path, count, message):
    with pytest.raises(InputError, match=message):
        guess(write(tmp_path / "data.jsonl", ("article", "abstract"), count), [])


def test_nothing_to_train_on(tmp_path):
    write(tmp_path / "test.jsonl", ("article", "abstract"))
    with pytest.raises(InputError, match="only test in it, and nothing to train on"):
        guess(str(tmp_path), [])


@pytest.mark.parametrize("splits", [("train", "valid"), ("train",)])
def test_a_release_is_read_as_its_preset_says(tmp_path, splits):
    (tmp_path / "qasper").mkdir()
    rows = [{"id": f"q{number}", "pid": f"q{number}_0", "input": "a b", "output": "b"} for number in range(20)]
    for split in splits:
        (tmp_path / "qasper" / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = guess(str(tmp_path), ["--patience", "3", "--max-source-length", "1024"], "scrolls/qasper")
    assert (found.purpose.task, found.purpose.corpus) == ("long_summarization", "scrolls/qasper")
    assert found.options[:3] == [str(tmp_path), "--max-source-length", "1024"]
    assert found.others == ["--patience", "3"]
    assert found.is_divided == (splits == ("train",))
    assert set(found.corpus().splits) == ({"train", "valid", "test"} if found.is_divided else set(splits))


@pytest.mark.parametrize("flag", ["--text-key", "--summary-key", "--label-key"])
def test_a_column_that_no_record_has_is_refused_first(tmp_path, flag):
    data = write(tmp_path / "data.jsonl", ("text", "summary", "label"))
    with pytest.raises(InputError, match=rf"data.jsonl: no column sumary \({flag}\); its columns are text, summary"):
        guess(data, [flag, "sumary"])


def test_keys_inside_are_not_columns(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps({"rows": [{"article": f"a {n}", "tldr": "b"}]}) for n in range(12)))
    found = guess(str(path), ["--each", "rows", "--article-key", "article", "--summary-key", "tldr"])
    assert found.purpose.corpus == "arxiv_pubmed"

"""Presets: made releases in the formats of the real ones, to data folders, and the references of their ids."""

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
    **{name: getattr(made_presets, name.partition("/")[0]) for name in PRESETS if "scrolls" not in name},
    **{
        f"{suite}/{task}": made_presets.suite(task, made_presets.OUTPUTS.get(task, "so"), suite == "zero_scrolls")
        for suite, tasks in SUITES.items()
        for task in tasks
    },
}
COUNTS = {  # examples of train, valid and test, and what is skipped, of all splits
    "govreport": ((4, 2, 2), 0),
    "qmsum": ((4, 2, 2), 0),
    "booksum": ((1, 1, 1), 0),
    "summscreen": ((2, 2, 2), 0),
    "multi_news": ((2, 2, 2), 0),
    "bigpatent": ((1, 1, 1), 0),
    "squality": ((4, 2, 2), 4),
    "multi_lexsum/long": ((3, 2, 2), 0),
    "multi_lexsum/short": ((2, 1, 2), 2),  # in test a case without a summary is predicted
    "multi_lexsum/tiny": ((2, 1, 2), 2),
    "scrolls": ((3, 2, 2), 1),
    "zero_scrolls": ((2, 2), 1),
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
    counts, skipped = COUNTS.get(name) or COUNTS[name.partition("/")[0]]
    assert tuple(corpus["examples"].values()) == counts
    assert sum(corpus["rejects"].values()) == 0
    assert sum(sum(kinds.values()) for kinds in corpus["skipped"].values()) == skipped
    assert corpus["preset"] == name
    assert PRESETS[name].metric in METRICS


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("govreport", "train", ("R40", "It begins.\nPart\nReport 0.\nDeep\nEnd.", "It pools. It ends.")),
        ("govreport", "test", ("GAO-3", "Letter\nDear all.\nBody\nSo.", "Because 3. GAO found it. Twice.")),
        (
            "qmsum",
            "valid",
            (
                "val.jsonl, 2:1",
                "What did A say?\n\nProject Manager: Théâtre 0 of val .\nA: {vocalsound} Yes .",
                "A said théâtre.",
            ),
        ),
        (
            "booksum",
            "valid",
            ("finished_summaries/validation/s.txt", 'Chapter, "I" of validation\nIt ran.', "Summary, of validation."),
        ),
        ("summscreen", "test", ("Show-test.json", "[ Scene : a lab ]\nAnn : Hi .", "Ann says hi .")),
        (
            "multi_news",
            "train",
            ("train.src.cleaned:1", "One train. \n  Two. \n\n Other news.", "– Two stories say so."),
        ),
        ("bigpatent", "valid", ("US-val", "It pools water.", "A pool.")),
        ("squality", "train", ("55-1", "What is the plot of the story?\n\nA story\n \n of train.", "Answer 2 to 1.")),
        ("multi_lexsum/tiny", "train", ("train-0", "Text of train-0-1.\nText of shared.", "Tiny.")),
        ("scrolls/qasper", "valid", ("validation0", "What is 0?\n\nIt is so.", "so")),
        ("scrolls/quality", "test", ("test1", "What is 1?\n\nIt is (B) two.", "")),
    ],
)
def test_texts(name, split, expected, tmp_path, gpt2_folder):
    assert convert(name, MADE[name](tmp_path / "release"), tmp_path / "data", gpt2_folder) == 0
    assert expected in texts(tmp_path / "data", split)


def test_the_tokens_of_a_question_are_counted(tmp_path, gpt2_folder):
    assert convert("qmsum", made_presets.qmsum(tmp_path / "release"), tmp_path / "data", gpt2_folder) == 0
    tokenizer, layout = load_tokenizer(tmp_path / "data"), json.loads((tmp_path / "data" / "corpus.json").read_text())
    assert layout["preset"] == "qmsum"
    counts = DataFolder(tmp_path / "data", PAIRS).sequences("train", QUERY)
    documents = DataFolder(tmp_path / "data", PAIRS).sequences("train", PAIRS.ids[0])
    for number, query in enumerate(("Discuss the whole meeting.", "What did A say?")):
        (count,) = np.asarray(counts[number]).tolist()
        assert tokenizer.decode(np.asarray(documents[number])[:count].tolist()) == query


def test_questions_before_any_articles(tmp_path, gpt2_folder, command, write_lines):
    rows = [{"id": "a", "question": " Who? ", "article": "Text.", "summary": "Ann."}, {"id": "b", "question": ""}]
    lines = write_lines("train.jsonl", rows)
    options = ["--train", lines, "--query-key", "question", "--max-reject-fraction", 1]
    assert command(tmp_path / "data", *options) == 0
    assert texts(tmp_path / "data", "train") == [("a", "Who?\n\nText.", "Ann.")]


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("scrolls/qmsum", made_presets.suite("qasper", "so"), "holds qasper, not qmsum"),
        ("bigpatent", lambda folder: [made_presets.bigpatent(folder)[0] / "a" / "data-0.gz"], "says neither train"),
        ("qmsum", lambda folder: [folder / "nothing.jsonl"], "nothing.jsonl: no such file"),
        ("squality", made_presets.qmsum, "no list of objects: questions"),
    ],
)
def test_wrong_files_are_named(name, files, message, tmp_path, gpt2_folder, capsys):
    assert convert(name, files(tmp_path / "release"), tmp_path / "data", gpt2_folder) == 1
    assert message in capsys.readouterr().err


def test_a_case_whose_document_is_missing_is_rejected(tmp_path, gpt2_folder):
    files = made_presets.multi_lexsum(tmp_path / "release")
    sources = json.loads((tmp_path / "release" / "sources.json").read_text())
    del sources["train-1-1"]
    (tmp_path / "release" / "sources.json").write_text(json.dumps(sources))
    more = ["--max-reject-fraction", 0.5]
    assert convert("multi_lexsum/long", files, tmp_path / "data", gpt2_folder, *more) == 0
    (reject,) = [json.loads(line) for line in (tmp_path / "data" / "train.rejects.jsonl").read_text().splitlines()]
    assert reject["reason"].startswith("no such document: 'train-1-1' is not in ")


def test_documents_in_a_list_need_an_id(tmp_path, gpt2_folder):
    files = made_presets.multi_lexsum(tmp_path / "release")
    sources = json.loads((tmp_path / "release" / "sources.json").read_text())
    listed = [{"doc_text": "no id"}, *({"id": name, **fields} for name, fields in sources.items())]
    (tmp_path / "release" / "sources.json").write_text(json.dumps(listed))
    assert convert("multi_lexsum/long", files, tmp_path / "data", gpt2_folder) == 0
    assert texts(tmp_path / "data", "train")[0][1] == "Text of train-0-1.\nText of shared."


def test_an_archive_of_all_tasks(tmp_path, gpt2_folder):
    """And the folders of an archive that was unpacked."""
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
    files = [*map(str, made_presets.squality(tmp_path / "squality"))]
    assert presets.gold("squality", files, "dev")["53-2"] == ["Answer 1 to 2.", "Answer 2 to 2."]

import json

import pytest

from preprocess import arxiv_pubmed
from preprocess.pipeline.records import InputError, Reject

ROW = {"id": "a", "article": "A text.", "summary": "One.", "part": "holdout", "queries": []}
SENTENCEPIECE = ["--sentencepiece-train", "100"]


def corpus(folder, *options):
    for name in ("train.jsonl", "valid.jsonl", "other.jsonl"):
        (folder / name).write_text(f"{json.dumps(ROW)}\n[1]\n")
    words = [word.replace("FOLDER", str(folder)) for word in options]
    tokenizer = [] if SENTENCEPIECE[0] in words else ["--gpt2-bpe", "x"]
    return arxiv_pubmed.make_corpus(arxiv_pubmed.make_parser().parse_args([*words, *tokenizer, "--output-folder", "x"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no data: give --data, or files with --train"),
        (["--data", "FOLDER", "--valid", "FOLDER/valid.jsonl"], "exclude each other: give the one or the others"),
        (["--data", "FOLDER", "--valid-share", "0.1"], "valid: there are files of this split already"),
        (["--valid", "FOLDER/valid.jsonl"], "no training data: give --train"),
        (["--data", "FOLDER/valid.jsonl"], "no training data: give --train; no name in .* says it"),
        (["--valid", "FOLDER/valid.jsonl", *SENTENCEPIECE], "there is no --train to train a model on"),
        (["--data", "FOLDER/other.jsonl", "--splits", "nowhere"], "--splits nowhere: no such file"),
        (["--data", "FOLDER/other.jsonl", "--splits", "x", "--split-key", "y"], "exclude each other: give one"),
        (["--data", "FOLDER/other.jsonl", "--split-key", "part"], "--split-key part must hold train, .* is 'holdout'"),
    ],
)
def test_refusals(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        corpus(tmp_path, *options)


def test_lists_that_are_not_there(tmp_path):
    made = corpus(tmp_path, "--train", "FOLDER/train.jsonl", "--each", "queries", "summaries")
    first, second = made.splits["train"].records()
    reason = "no list of objects: queries and summaries (--each); the keys are id, article, summary, part, queries"
    assert (first.data, first.problem) == (None, reason)
    assert isinstance(made.parse(second), Reject)

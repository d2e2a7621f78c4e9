import json

import pytest

from preprocess import arxiv_pubmed

ROW = {"id": "a", "article": "A text.", "summary": "One."}
SENTENCEPIECE = ["--sentencepiece-train", "100"]


def corpus(folder, *options):
    for name in ("train.jsonl", "valid.jsonl", "other.jsonl"):
        (folder / name).write_text(f"{json.dumps(ROW)}\n[1]\n")
    (folder / "two.json").write_text(json.dumps({"a": [ROW], "x": ["{"], "b": [ROW]}))
    (folder / "lines.json").write_text(json.dumps(ROW, indent=1))
    for saved, name in (("saved", "state.json"), ("dict", "dataset_dict.json")):
        (folder / saved).mkdir()
        (folder / saved / name).write_text("{}")
    words = [word.replace("FOLDER", str(folder)) for word in options]
    tokenizer = [] if SENTENCEPIECE[0] in words else ["--gpt2-bpe", "x"]
    made = arxiv_pubmed.make_corpus(arxiv_pubmed.make_parser().parse_args([*words, *tokenizer, "--output-folder", "x"]))
    return list(made.splits["train"].records())


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
        (["--data", "FOLDER/other.jsonl", "--splits", "x", "--valid-share", "0.1"], "exclude each other: give one"),
        (["--data", "FOLDER/nowhere"], r"nowhere: no such file; write JSON lines of .*load_dataset\(….*\)\.to_json"),
        (["--data", "FOLDER/saved"], r"saved: a folder that datasets saved; .*load_from_disk\('.*/saved'\)\.to_json"),
        (["--data", "FOLDER/dict"], r"datasets\.load_from_disk\('.*/dict'\)\[\"train\"\]\.to_json"),
        (
            ["--train", "FOLDER/two.json"],
            r"two\.json: one JSON object, which has several lists of records, a, b",
        ),
        (["--train", "FOLDER/lines.json"], r"lines\.json: one JSON object, .* no list of records, and fills several"),
    ],
)
def test_refusals(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        corpus(tmp_path, *options)

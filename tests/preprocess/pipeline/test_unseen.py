"""Tokens that a pretrained model has never seen: counted in the report, and line breaks are not among them."""

import json
import re

import pytest

from fairseq_poolingformer.tasks.classification.examples import ClassificationSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import labelled_text, plain_text

TEXTS = ["the theory\n\nof the\r\nlong\tdocument", "attention\n", "café the"]


@pytest.fixture
def vocabulary(gpt2_folder, tmp_path):
    """GPT-2's files with a dictionary like RoBERTa's: it counts no tab, no line break, and none of their pairs."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    ids = json.loads((gpt2_folder / "encoder.json").read_text(encoding="utf-8"))
    never = {str(number) for token, number in ids.items() if set(token) <= set("ĊĉčċČ")}
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        text = (gpt2_folder / name).read_text(encoding="utf-8")
        if name == "dict.txt":
            text = re.sub(r"(?m)^(\d+) \d+$", lambda m: f"{m[1]} 0" if m[1] in never else m[0], text)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def convert(corpus, output, vocabulary, *args):
    flags = ("--gpt2-bpe", vocabulary, "--output-folder", output, "--workers", 1, *args)
    return corpus.main([str(flag) for flag in flags])


def decoded(folder):
    tokenizer, split = load_tokenizer(folder), ClassificationSplit.open(folder, "train")
    return [tokenizer.decode(split.document[number]) for number in range(len(split))]


def test_a_corpus_that_roberta_reads_has_blanks_for_line_breaks(vocabulary, tmp_path, write_lines, capsys):
    lines = write_lines("train.jsonl", [{"text": text, "label": k % 2} for k, text in enumerate(TEXTS)])
    assert convert(labelled_text, tmp_path / "data", vocabulary, "--train", lines) == 0
    assert decoded(tmp_path / "data") == ["the theory  of the  long document", "attention ", "café the"]
    assert "unknown to the dictionary" not in capsys.readouterr().out
    # the same command again finds the folder finished; the other reading is another corpus
    assert convert(labelled_text, tmp_path / "data", vocabulary, "--train", lines) == 0
    assert convert(labelled_text, tmp_path / "data", vocabulary, "--train", lines, "--white-space", "keep") == 1
    assert "differs in: tokenizer" in capsys.readouterr().err


def test_tokens_of_count_0_are_reported(vocabulary, tmp_path, write_lines, capsys):
    lines = write_lines("train.jsonl", [{"text": text, "label": k % 2} for k, text in enumerate(TEXTS)])
    assert convert(labelled_text, tmp_path / "data", vocabulary, "--train", lines, "--white-space", "keep") == 0
    assert decoded(tmp_path / "data") == TEXTS
    found = re.search(r"train: (\d+) of (\d+) tokens \(.*count 0 for them: (.*)", capsys.readouterr().out)
    split = ClassificationSplit.open(tmp_path / "data", "train")
    tokens = [load_tokenizer(tmp_path / "data").decode([token]) for token in split.document.values.tolist()]
    unseen = [token for token in tokens if token and not token.strip(" \n\r\t") and token.strip(" ")]
    assert (int(found[1]), int(found[2])) == (len(unseen), len(tokens))
    assert unseen
    assert "'\\n' 4" in found[3] or "'\\n\\n'" in found[3]


def test_documents_keep_their_line_breaks(vocabulary, tmp_path, capsys):
    """A model that is trained on them learns their symbols."""
    (tmp_path / "text.txt").write_text("the theory of\nthe document\n", encoding="utf-8")
    flags = ("--input", tmp_path / "text.txt", "--valid-share", 0, "--min-chars", 1)
    assert convert(plain_text, tmp_path / "data", vocabulary, *flags) == 0
    assert "count 0 for them: '\\n' 1" in capsys.readouterr().out


def test_a_dictionary_without_counts_reports_unknown_tokens_only(vocabulary, tmp_path, write_lines, capsys):
    path = vocabulary / "dict.txt"
    path.write_text(re.sub(r"(?m) \d+$", " 0", path.read_text(encoding="utf-8")), encoding="utf-8")
    lines = write_lines("train.jsonl", [{"text": "the z\n", "label": k} for k in range(2)])  # "z" is not in dict.txt
    assert convert(labelled_text, tmp_path / "data", vocabulary, "--train", lines) == 0
    assert "count 0 for them: <unk> 2\n" in capsys.readouterr().out

import copy
import json

import pytest

from fairseq_poolingformer.tasks.question_answering.data import AnswerType
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import tydiqa
from tests.preprocess.conftest import convert, rejects
from tests.preprocess.qa_folder import FIXTURES, answer_offsets, check_paragraphs, counted, read_json_lines, read_split
from tests.preprocess.test_natural_questions import DEL, change, changed
from tests.text.tiny_gpt2 import train_sentencepiece

TRAIN, VALID = FIXTURES / "tydiqa_train.jsonl", FIXTURES / "tydiqa_valid.jsonl"
NOT_EXACT = "short answer not on token edges"


@pytest.fixture(params=["gpt2", "sentencepiece"])
def tokenizer(request, gpt2_folder):
    if request.param == "gpt2":
        return ["--gpt2-bpe", gpt2_folder]
    return ["--sentencepiece-train", "390"]


def check_examples(folder, split, examples):
    """Every stored answer leads back to the bytes of the annotated one; returns how many did exactly."""
    exact = 0
    for example, stored in zip(examples, read_split(folder, split), strict=True):
        data = example["document_plaintext"].encode()
        assert stored["id"] == f"{example['example_id']}\t{example['language']}"
        places = [(c["plaintext_start_byte"], c["plaintext_end_byte"]) for c in example["passage_answer_candidates"]]
        check_paragraphs(stored, [(index, *place) for index, place in enumerate(places)])
        for token_start, token_end in zip(stored["start"], stored["end"], strict=True):
            data[token_start:token_end].decode()  # whole characters
        notes = counted([stored["notes"]])
        for annotation, row in zip(example["annotations"], stored["annotation"], strict=True):
            index = annotation["passage_answer"]["candidate_index"]
            minimal = annotation["minimal_answer"]
            start, end = minimal["plaintext_start_byte"], minimal["plaintext_end_byte"]
            if index == -1:
                assert row == (AnswerType.NULL, -1, -1, -1)
                continue
            assert stored["paragraph"][row[1]][2:] == (index, *places[index])
            if annotation["yes_no_answer"] != "NONE":
                assert row[0] == AnswerType[annotation["yes_no_answer"]]
            elif start == -1:
                assert row[0] == AnswerType.LONG
            else:
                found_start, found_end = answer_offsets(stored, row)
                if (found_start, found_end) == (start, end):
                    assert data[found_start:found_end].decode() == data[start:end].decode()
                    exact += 1
                else:
                    # White space at its edges is left out, a token that is cut is taken whole.
                    core = data[start:end].decode().strip()
                    start += data[start:end].index(core.encode())
                    assert found_start <= start < start + len(core.encode()) <= found_end
                    notes[NOT_EXACT] -= 1
        assert notes.get(NOT_EXACT, 0) == 0
    return exact


def test_every_answer_leads_back_to_its_bytes(tmp_path, capsys, tokenizer):
    assert convert(tydiqa, tmp_path, "--train", TRAIN, "--valid", VALID, tokenizer=tokenizer) == 0
    exact = check_examples(tmp_path, "train", list(read_json_lines(TRAIN)))
    exact += check_examples(tmp_path, "valid", list(read_json_lines(VALID)))
    not_exact = counted(e["notes"] for split in ("train", "valid") for e in read_split(tmp_path, split))
    assert exact + not_exact.get(NOT_EXACT, 0) == 6
    assert exact == 6 or tokenizer[0] == "--sentencepiece-train"
    corpus = json.loads((tmp_path / "corpus.json").read_text(encoding="utf-8"))
    assert (corpus["kind"], corpus["unit"]) == ("tydiqa", "byte")
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in table[1:7]] == [
        ["train", "6"], ["arabic", "2"], ["japanese", "2"], ["telugu", "1"], ["thai", "1"], ["valid", "1"],
    ]  # fmt: skip


def test_an_edge_inside_a_token_is_widened_and_counted(tmp_path, write_lines):
    """A model of whole words: "window" is one token, and so is "pooled", whose first letters are the answer."""
    text = "the pooled window"
    train_sentencepiece(tmp_path / "words.model", [text] * 9, 6, model_type="word")
    example = next(read_json_lines(TRAIN)) | {"document_plaintext": text, "question_text": "the window"}
    example["passage_answer_candidates"] = [{"plaintext_start_byte": 0, "plaintext_end_byte": 17}]
    example["annotations"][0]["minimal_answer"] = {"plaintext_start_byte": 4, "plaintext_end_byte": 8}
    other = copy.deepcopy(example) | {"example_id": 2}
    other["annotations"][0]["minimal_answer"] = {"plaintext_start_byte": 4, "plaintext_end_byte": 17}
    train = write_lines("train.jsonl", [example, other])
    model = ["--sentencepiece-model", tmp_path / "words.model"]
    assert convert(tydiqa, tmp_path / "out", "--train", train, tokenizer=model) == 0
    first, second = read_split(tmp_path / "out", "train")
    assert (first["start"], first["end"]) == ([0, 4, 11], [3, 10, 17])
    assert (first["annotation"], first["notes"]) == ([(1, 0, 1, 2)], NOT_EXACT)
    assert (second["annotation"], second["notes"]) == ([(1, 0, 1, 3)], "")


MINIMAL, CANDIDATES = ("annotations", 0, "minimal_answer"), "passage_answer_candidates"
BAD = [
    (change(["document_plaintext"], "\n \t"), "empty document"),
    (change(["document_plaintext"], "x" * 500 + "\ud800"), "not Unicode: half a character at 500"),
    (change(["language"], DEL), "malformed: 'language'"),
    (change([CANDIDATES, 1, "plaintext_end_byte"], 10**6), "candidate out of range: number 1"),
    (change([CANDIDATES, 1, "plaintext_start_byte"], 50), "candidates overlap"),
    (change([CANDIDATES, 1, "plaintext_start_byte"], 10**6), "malformed: passage_answer_candidates[1]"),
    (change([CANDIDATES, 0], {"plaintext_start_byte": -1, "plaintext_end_byte": -1}), "long answer in no"),
    (change([CANDIDATES, 0], {"plaintext_start_byte": 120, "plaintext_end_byte": 120}), "long answer in no"),
    (change(["annotations", 0, "passage_answer", "candidate_index"], 2), "candidate out of range: candidate_index 2"),
    (change(["annotations", 0, "passage_answer", "candidate_index"], -1), "answer without a long answer"),
    (change([*MINIMAL, "plaintext_start_byte"], -1), "malformed: annotations[0].minimal_answer"),
    (change([*MINIMAL], {"plaintext_start_byte": 4, "plaintext_end_byte": 9}), "answer cuts a character"),
]


def test_bad_examples_are_named_and_the_good_ones_go_on(tmp_path, write_lines):
    good = list(read_json_lines(TRAIN))
    bad = changed(good[0], BAD)
    train = write_lines("train.jsonl", [good[0], *bad, good[1], good[1]])
    assert convert(tydiqa, tmp_path / "out", "--train", train, "--max-reject-fraction", "1") == 0
    for reject, (_, reason) in zip(rejects(tmp_path / "out"), [*BAD, (None, "example id twice: 22")], strict=True):
        assert reject["reason"].startswith(reason)
    assert check_examples(tmp_path / "out", "train", good[:2]) == 2


def test_real_examples(shared_data, tmp_path, tokenizer):
    dev, plain = (shared_data / "tydiqa" / name for name in ("tiny_dev.jsonl.gz", "tiny_dev_no_annotations.jsonl.gz"))
    gold = shared_data / "tydiqa" / "small_gold_annotation.jsonl"
    larger = {"--gpt2-bpe": shared_data / "gpt2_bpe", "--sentencepiece-train": "3000"}
    files = ("--train", dev, "--valid", gold, "--test", plain)
    assert convert(tydiqa, tmp_path, *files, tokenizer=[tokenizer[0], larger[tokenizer[0]]]) == 0
    for split, path, fewest in (("train", dev, 4), ("valid", gold, 6)):
        examples = list(read_json_lines(path))
        exact = check_examples(tmp_path, split, examples)
        inexact = counted(example["notes"] for example in read_split(tmp_path, split)).get(NOT_EXACT, 0)
        minimal = [a["minimal_answer"]["plaintext_start_byte"] for e in examples for a in e["annotations"]]
        assert exact + inexact == sum(start >= 0 for start in minimal) >= fewest
        assert inexact < exact
    examples, stored = list(read_json_lines(dev)), read_split(tmp_path, "train")
    tokens = load_tokenizer(tmp_path)
    for example, other in zip(stored, read_split(tmp_path, "test"), strict=True):
        assert other["annotation"] == []
        assert all(example[name] == other[name] for name in ("question", "document", "start", "end", "paragraph"))
    for example, annotated in zip(stored, examples, strict=True):
        assert example["question"] == tokens.encode(annotated["question_text"]).tolist()

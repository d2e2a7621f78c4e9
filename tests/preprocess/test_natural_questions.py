import copy
import functools
import json

import pytest

from fairseq_poolingformer.tasks.question_answering.data import AnswerType
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import natural_questions
from preprocess.pipeline.records import Record
from tests import lab
from tests.preprocess import conftest
from tests.preprocess.conftest import contents
from tests.preprocess.qa_folder import (
    FIXTURES,
    answer_offsets,
    check_paragraphs,
    counted,
    read_json_lines,
    read_split,
    simplified,
)

TRAIN, VALID = FIXTURES / "nq_train.jsonl", FIXTURES / "nq_valid.jsonl"


@pytest.fixture(scope="module")
def marked_gpt2(tmp_path_factory):
    """The small vocabulary with all three spare symbols; the one of the tests has one."""
    folder = lab.copy(lab.gpt2(), tmp_path_factory.mktemp("marked"))
    with open(folder / "dict.txt", "a", encoding="utf-8") as file:
        file.write("madeupword0001 0\nmadeupword0002 0\n")
    return folder


@pytest.fixture
def convert(marked_gpt2):
    """Runs the command line in this process."""

    return functools.partial(conftest.convert, natural_questions, tokenizer=["--gpt2-bpe", marked_gpt2])


def check_examples(folder, split, examples):
    """Every stored paragraph and answer leads back to the corpus's tokens; returns how many short answers did."""
    tokenizer = load_tokenizer(folder)
    count = 0
    for example, stored in zip(examples, read_split(folder, split), strict=True):
        tokens = [token["token"] for token in example["document_tokens"]]
        assert stored["id"] == str(example["example_id"])
        assert tokenizer.decode(stored["question"]).replace("<unk>", "z").strip() == example["question_text"]
        for start, end in zip(stored["start"], stored["end"], strict=True):
            assert end in (start, start + 1)
        candidates = example["long_answer_candidates"]
        tops = [(k, c["start_token"], c["end_token"]) for k, c in enumerate(candidates) if c["top_level"]]
        check_paragraphs(stored, tops)
        assert len(stored["annotation"]) == len(example["annotations"])
        for annotation, row in zip(example["annotations"], stored["annotation"], strict=True):
            kind, paragraph, *_ = row
            long_answer, short = annotation["long_answer"], annotation["short_answers"]
            if long_answer["candidate_index"] == -1:
                assert row == (AnswerType.NULL, -1, -1, -1)
                continue
            _, _, index, start, end = stored["paragraph"][paragraph]
            assert candidates[index]["top_level"]
            assert start <= long_answer["start_token"] < long_answer["end_token"] <= end
            if annotation["yes_no_answer"] != "NONE":
                assert kind == AnswerType[annotation["yes_no_answer"]]
            elif not short:
                assert kind == AnswerType.LONG
            else:
                start, end = answer_offsets(stored, row)
                expected = tokens[short[0]["start_token"] : short[-1]["end_token"]]
                assert tokens[start:end] == expected
                ids = stored["document"][row[2] : row[3]]
                text = tokenizer.decode(ids).replace("<unk>", "z").strip()
                assert text in (" ".join(expected), " ".join(t for t in expected if not t.startswith("<")))
                count += 1
    return count


@pytest.mark.parametrize("html_tokens", ["markers", "drop", "keep"])
def test_every_answer_leads_back_to_its_tokens(convert, tmp_path, capsys, html_tokens):
    assert convert(tmp_path, "--train", TRAIN, "--valid", VALID, "--html-tokens", html_tokens) == 0
    assert check_examples(tmp_path, "train", list(read_json_lines(TRAIN))) == 3
    assert check_examples(tmp_path, "valid", list(read_json_lines(VALID))) == 2
    train = read_split(tmp_path, "train")
    assert [row[0] for example in train for row in example["annotation"]] == [1, 1, 1, 2, 4]
    notes = {"several short answers": 1, "long answer inside another candidate": 2}
    assert counted(example["notes"] for example in train) == notes
    corpus = json.loads((tmp_path / "corpus.json").read_text(encoding="utf-8"))
    assert (corpus["kind"], corpus["unit"]) == ("natural_questions", "token")
    table = capsys.readouterr().out
    assert "train: 2 × long answer inside another candidate" in table
    assert "train: 1 × short answer of more than 30 tokens" in table
    assert table.count("× short answer of more than") == 1  # none in valid
    assert table.splitlines()[1].split()[:2] == ["train", "5"]
    assert "60.0 %  20.0 %  0.0 %  20.0 %" in table


def test_markers_begin_paragraphs_tables_and_lists(convert, tmp_path):
    assert convert(tmp_path / "markers", "--valid", TRAIN) == 0
    assert convert(tmp_path / "drop", "--valid", TRAIN, "--html-tokens", "drop") == 0
    tokenizer = load_tokenizer(tmp_path / "markers")
    paragraph, table, item = tokenizer.spare_symbols()
    kinds = {0: [paragraph, table, paragraph, item], 1: [paragraph, item, paragraph], 3: [paragraph]}
    both = zip(read_split(tmp_path / "markers", "valid"), read_split(tmp_path / "drop", "valid"), strict=True)
    for number, (marked, plain) in enumerate(both):
        firsts = [row[0] for row in marked["paragraph"]]
        markers = [marked["document"][first] for first in firsts]
        assert markers == kinds.get(number, markers)
        assert not set(plain["document"]) & {paragraph, table, item}
        assert [id for id in marked["document"] if id not in (paragraph, table, item)] == plain["document"]
        for first in firsts:
            assert marked["start"][first] == marked["end"][first] == marked["start"][first + 1]
    text = tokenizer.decode(read_split(tmp_path / "drop", "valid")[0]["document"])
    assert text.startswith("Café Größe The café was founded in 1998 by")
    assert "<" not in text.replace("<unk>", "z")


def test_kept_tags_are_text_and_in_the_simplified_format_whole_tokens(convert, tmp_path):
    assert convert(tmp_path, "--valid", TRAIN, "--html-tokens", "keep") == 0
    text = load_tokenizer(tmp_path).decode(read_split(tmp_path, "valid")[0]["document"]).replace("<unk>", "z")
    assert text == simplified(next(read_json_lines(TRAIN)))["document_text"]
    assert '<th_colspan="2">' in text
    text = 'x <P> <th_colspan="2"> <3 <b>bold </P> <!--_no_--> a<b <'
    fields = {"example_id": 1, "question_text": "q", "document_text": text, "long_answer_candidates": []}
    record = Record("file", 1, json.dumps(fields).encode())
    assert natural_questions.parse(record, "drop", annotated=False).texts[1] == "x <3 <b>bold a<b <"


@pytest.mark.parametrize("html_tokens", ["markers", "keep"])
def test_the_simplified_format_gives_the_same_data(convert, tmp_path, write_lines, html_tokens):
    lines = write_lines("simplified.jsonl", [simplified(example) for example in read_json_lines(TRAIN)])
    assert convert(tmp_path / "original", "--train", TRAIN, "--html-tokens", html_tokens) == 0
    assert convert(tmp_path / "simplified", "--train", lines, "--html-tokens", html_tokens) == 0
    original, other = contents(tmp_path / "original"), contents(tmp_path / "simplified")
    original.pop("corpus.json"), other.pop("corpus.json")  # which name the input
    assert original == other


def change(path, value):
    """A change of the first example at a path of keys; DEL removes."""

    def apply(example):
        *parents, last = path
        for key in parents:
            example = example[key]
        if value is DEL:
            del example[last]
        else:
            example[last] = value

    return apply


def changed(good, changes):
    """Copies of an example, each with one of the changes."""
    examples = [copy.deepcopy(good) | {"example_id": 1000 + number} for number in range(len(changes))]
    for example, (apply, _) in zip(examples, changes, strict=True):
        apply(example)
    return examples


DEL = object()
LONG, SHORT = ("annotations", 0, "long_answer"), ("annotations", 0, "short_answers")
BAD = [
    (change(["document_tokens"], DEL), "missing key"),
    (change(["document_tokens"], [{"token": "<p>", "html_token": True}]), "empty document"),
    (change(["question_text"], " "), "empty question"),
    (change(["example_id"], DEL), "malformed: 'example_id'"),
    (change(["annotations"], []), "no annotations"),
    (change(["long_answer_candidates", 1, "end_token"], 10**6), "candidate out of range: number 1"),
    (change(["long_answer_candidates", 1, "start_token"], 20), "candidates overlap: numbers 0 and 1"),
    (change(["long_answer_candidates", 0, "top_level"], False), "long answer in no paragraph"),
    (change([*LONG, "candidate_index"], 99), "candidate out of range: candidate_index 99"),
    (change([*LONG, "candidate_index"], -1), "answer without a long answer"),
    (change([*LONG, "candidate_index"], 1), "short answer outside the long answer"),
    (change([*LONG, "end_token"], 22), "long answer contradicts its candidate"),
    (change([*SHORT, 0, "end_token"], 3), "malformed: annotations[0].short_answers[0]: start"),
    (change([*SHORT, 0], {"start_byte": 3, "end_byte": 5}), "short answer without tokens"),
    (change(["annotations", 0, "yes_no_answer"], "MAYBE"), "malformed: 'yes_no_answer'"),
]


def test_bad_examples_are_named_and_the_good_ones_go_on(convert, tmp_path, write_lines):
    good = list(read_json_lines(TRAIN))
    bad = changed(good[0], BAD)
    train = write_lines("train.jsonl", [good[0], *bad, b"[1]", b'{"a', good[1], good[0], good[2]])
    assert convert(tmp_path / "out", "--train", train, "--max-reject-fraction", "1") == 0
    rejects = conftest.rejects(tmp_path / "out")
    reasons = [*(reason for _, reason in BAD), "wrong type", "broken JSON", "example id twice: 11"]
    for reject, reason in zip(rejects, reasons, strict=True):
        assert reject["reason"].startswith(reason)
    lines = [*range(2, len(BAD) + 4), len(BAD) + 5]
    assert [reject["line"] for reject in rejects] == lines
    assert [example["id"] for example in read_split(tmp_path / "out", "train")] == ["11", "-12", "13"]
    assert check_examples(tmp_path / "out", "train", good[:3]) == 3


def test_answers_of_tags_alone_have_no_text(convert, tmp_path, write_lines):
    """Candidate 1 of the second example is an empty paragraph."""
    long_only, short = (list(read_json_lines(TRAIN))[1] for _ in range(2))
    place = {key: long_only["long_answer_candidates"][1][key] for key in ("start_token", "end_token")}
    annotation = {"long_answer": place | {"candidate_index": 1}, "short_answers": [], "yes_no_answer": "NONE"}
    long_only["annotations"] = [annotation]
    short["example_id"] = 5
    short["annotations"][0]["short_answers"] = [{"start_token": 3, "end_token": 4}]
    train = write_lines("train.jsonl", [long_only, short])
    assert convert(tmp_path, "--train", train) == 0
    first, second = read_split(tmp_path, "train")
    assert first["annotation"] == [(AnswerType.LONG, -1, -1, -1)]
    assert second["annotation"] == [(AnswerType.LONG, 0, -1, -1)]
    assert counted([first["notes"], second["notes"]]) == {"answer without text": 2}
    assert [row[2] for row in first["paragraph"]] == [0, 2, 5]


def test_only_test_files_need_no_annotations(convert, tmp_path, write_lines):
    examples = [simplified(example) for example in read_json_lines(TRAIN)]
    for example in examples[1:]:
        del example["annotations"]
    examples[0]["annotations"] = [{"broken": True}]
    test = write_lines("test.jsonl", examples)
    assert convert(tmp_path / "out", "--train", TRAIN, "--valid", VALID, "--test", test, VALID) == 0
    assert [example["annotation"] for example in read_split(tmp_path / "out", "test")] == [[]] * 6
    (valid,) = read_split(tmp_path / "out", "valid")
    assert len(valid["annotation"]) == 5
    assert convert(tmp_path / "bad", "--train", test) == 1


def test_wrong_arguments_are_explained(convert, tmp_path, capsys):
    for args, tokenizer, message in (
        ([], {}, "give files with --train"),
        (["--train", "no.jsonl"], {}, "no.jsonl: no such file"),
        (["--valid", VALID], {"tokenizer": ["--sentencepiece-train", "400"]}, "there is no --train to train a model"),
        (["--valid", VALID, "--max-positions", "512"], {}, "doc_stride 1568 would skip document tokens"),
        (["--valid", VALID], {"tokenizer": None}, "has 1 of the 3 spare symbols"),
    ):
        assert convert(tmp_path / "out", *args, **tokenizer) == 1
        assert message in capsys.readouterr().err
    assert convert(tmp_path / "out", "--valid", VALID, "--max-positions", "512", "--doc-stride", "128") == 0

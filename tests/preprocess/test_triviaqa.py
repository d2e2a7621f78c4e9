import gzip
import json
import os
import re

import numpy as np
import pytest

from fairseq_poolingformer.tasks.shared.answers import triviaqa_words
from fairseq_poolingformer.tasks.triviaqa.data import TriviaqaSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import triviaqa
from tests.preprocess import conftest
from tests.tasks.released_files import TRIVIAQA_DOCUMENTS, TRIVIAQA_QUESTIONS, write_triviaqa


def convert(output, evidence, *flags):
    return conftest.convert(triviaqa, output, "--evidence-folder", evidence, *flags)


def ids(folder, split="train"):
    return [json.loads(line) for line in (folder / f"{split}.id.txt").read_text(encoding="utf-8").splitlines()]


def test_questions_and_documents_come_back(tmp_path, capsys):
    source = write_triviaqa(tmp_path)
    folder = tmp_path / "data"
    assert convert(folder, tmp_path / "evidence", "--train", source, "--test", source) == 0
    tokenizer, split = load_tokenizer(folder), TriviaqaSplit.open(folder, "train")
    pairs = [(name, question, page) for name, question, _, pages in TRIVIAQA_QUESTIONS for page in pages]
    assert ids(folder) == [[name, f"wikipedia/{page}"] for name, _, page in pairs]
    for number, (_, question, page) in enumerate(pairs):
        assert tokenizer.decode(split.question[number]) == question
        assert tokenizer.decode(split.document[number]) == TRIVIAQA_DOCUMENTS[page].replace("\n", " ")
    answers = [[tokenizer.decode(split.document[k][a:b]).strip() for a, b in split.answers(k)] for k in range(4)]
    assert answers == [
        ["PARIS"],
        ["city of light", "Paris"],
        ["Ross Bagdasarian", "David Seville"],
        ["Sunset-Boulevard"],
    ]
    assert not TriviaqaSplit.open(folder, "test").answer.sizes.any()
    assert json.loads((folder / "corpus.json").read_text(encoding="utf-8"))["kind"] == "triviaqa"
    assert "without the answer" not in capsys.readouterr().out


def test_the_domain_is_the_files_and_the_web_sets_keys_name_the_document(tmp_path, capsys):
    source = write_triviaqa(tmp_path, "Web")
    compressed = source.with_suffix(".json.gz")
    compressed.write_bytes(gzip.compress(source.read_bytes()))
    assert convert(tmp_path / "web", tmp_path / "evidence", "--train", compressed) == 0
    assert ids(tmp_path / "web")[0] == ["tc_1--France.txt", "web/France.txt"]
    source = write_triviaqa(tmp_path)
    data = json.loads(source.read_text(encoding="utf-8"))
    data["Data"][0]["Domain"] = "Web"
    source.write_text(json.dumps({"Data": data["Data"], "Domain": data["Domain"]}), encoding="utf-8")
    capsys.readouterr()
    assert convert(tmp_path / "data", tmp_path / "evidence", "--train", source) == 0
    assert ids(tmp_path / "data")[0] == ["tc_1", "wikipedia/France.txt"]
    # the report says what training cuts and what prediction cannot give
    out = capsys.readouterr().out
    split = TriviaqaSplit.open(tmp_path / "data", "train")
    longest = max(split.question.sizes)
    assert f"train: questions have up to {longest} tokens; 0 have more than 64, to which --max-question-length" in out
    shortest = [int(np.diff(split.answers(number)).min()) for number in range(len(split))]
    more = sum(size > 30 for size in shortest)
    assert f"(median), up to {max(shortest)}; {more} have more than 30, which prediction" in out


def question(name, pages, answer=("Paris",), **fields):
    record = {
        "QuestionId": name,
        "Question": "Which city?",
        "Answer": {"NormalizedAliases": list(answer)},
        "EntityPages": [{"Filename": page} for page in pages],
    }
    return {key: value for key, value in (record | fields).items() if value is not ...}


BAD = {
    "no evidence": (question("b1", ["Atlantis.txt"]), "no evidence file: .*wikipedia/Atlantis.txt"),
    "bytes": (question("b2", ["bytes.txt"]), "unreadable evidence file: .*bytes.txt"),
    "outside": (question("o1", ["../../../../../../../../etc/passwd"]), "outside of --evidence-folder: wikipedia/../"),
    "beside": (question("o2", ["../../evidence-2/secret.txt"]), "outside of --evidence-folder: "),
    "link": (question("o4", ["link.txt"]), "outside of --evidence-folder: wikipedia/link.txt"),
    "pipe": (question("o7", ["pipe.txt"]), "evidence that is not a file: .*pipe.txt"),
    "huge": (question("o10", ["huge.txt"]), "evidence file of more than 67,108,864 bytes"),
    "empty": (question("b3", ["empty.txt"]), "empty document: wikipedia/empty.txt"),
    "unasked": (question("b4", ["Paris.txt"], Question=" "), "empty question"),
    "unnamed": (question(..., ["Paris.txt"]), "'QuestionId' must be a string, is missing"),
    "no alias": (question("b6", ["Paris.txt"], answer=()), "there must be one at least"),
    "pages": (question("b7", [], EntityPages="Paris.txt"), "'EntityPages' must be a list"),
    "list": (["b9"], "wrong type: the line is a list"),
    "again": (question("g1", ["Paris.txt"]), r'\["g1", "wikipedia/Paris.txt"\]'),
}


def bad_release(folder):
    """Good and bad questions, and one element that is no JSON."""
    write_triviaqa(folder)
    evidence = folder / "evidence" / "wikipedia"
    (evidence / "bytes.txt").write_bytes(b"Paris \xff")
    (evidence / "empty.txt").write_text(" \n")
    (folder / "evidence-2").mkdir()
    (folder / "evidence-2" / "secret.txt").write_text("Paris")
    (evidence / "link.txt").symlink_to(folder / "evidence-2" / "secret.txt")
    os.mkfifo(evidence / "pipe.txt")
    with open(evidence / "huge.txt", "wb") as huge:
        huge.truncate(2**26 + 1)  # a hole, which takes no disk
    good = [question("g1", ["Paris.txt", "Paris.txt"]), question("g2", ["France.txt"]), question("g3", [])]
    last = question("g4", ["Webber.txt"])
    elements = [json.dumps(value) for value in (*good, *(value for value, _ in BAD.values()))]
    path = folder / "bad.json"
    text = ",\n".join([*elements, '{"QuestionId": "b0",, }', json.dumps(last)])
    path.write_text(f'{{"Data": [{text}], "Domain": "Wikipedia"}}', encoding="utf-8")
    return path


def test_everything_bad_is_named_and_nothing_good_is_lost(tmp_path, capsys):
    source = bad_release(tmp_path)
    options = ("--train", source, "--max-reject-fraction", 0.9)
    assert convert(tmp_path / "data", tmp_path / "evidence", *options) == 0
    assert [name for name, _ in ids(tmp_path / "data")] == ["g1", "g2", "g4"]
    rejects = conftest.rejects(tmp_path / "data")
    assert len(rejects) == len(BAD) + 1
    for reject, (_, reason) in zip(rejects, BAD.values(), strict=False):
        assert reject["file"].startswith(f"{source}, element ")
        assert re.search(reason, reject["reason"]), reject
    assert "broken JSON" in rejects[-1]["reason"]
    assert rejects[0]["line"] == 4
    output = capsys.readouterr()
    assert "train: 1 × document without the answer" in output.out  # g4
    assert "2 skipped (1 × document that a question names twice; 1 × question without documents)" in output.err


class Words:
    """A tokenizer of what is between spaces."""

    def encode(self, text):
        return np.arange(len(text.split()))

    def encode_with_offsets(self, text):
        spans = [match.span() for match in re.finditer(r"[^ ]+", text)]
        return (np.arange(len(spans)), *np.array(spans, np.int64).reshape(-1, 2).T)


@pytest.mark.parametrize(
    ("answer", "tokens", "notes"),
    [("Paris", [4, 5], ""), ("Rome", [2, 3], triviaqa.NOT_EXACT), ("Oslo", [1, 2], triviaqa.NOT_EXACT)],
)
def test_answers_inside_tokens_are_widened_and_counted(answer, tokens, notes):
    document = "In (Oslo Rome, or Paris"
    start = document.index(answer)
    example = triviaqa.TriviaqaExample("name", ("Which city?", document), ((start, start + len(answer)),))
    encoded = triviaqa.encode(Words(), example)
    assert encoded.arrays["answer"].tolist() == tokens
    assert encoded.texts["notes"] == notes
    for texts in (("", "Paris"), ("Which city?", "")):
        example = triviaqa.TriviaqaExample("name", texts, ())
        assert triviaqa.encode(Words(), example).reason.startswith("nothing to encode")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"Data": [{"Question": "q", "Domain": "Web"}]}', "'Domain' must be Wikipedia or Web, and it names none"),
        ('{"Data": [], "Domain": "News"}', "'Domain' must be Wikipedia or Web, and it names 'News'; is this TriviaQA?"),
        ('{"Domain": "Web", "Data": [], "Domain": "Wikipedia"}', "and it names 'Web' and 'Wikipedia'"),
    ],
)
def test_files_that_are_not_the_release_stop_the_command(tmp_path, capsys, text, message):
    write_triviaqa(tmp_path)
    path = tmp_path / "wrong.json"
    path.write_text(text, encoding="utf-8")
    flags = ("--evidence-folder", tmp_path / "evidence", "--train", path)
    error = conftest.refused(capsys, triviaqa, tmp_path / "data", *flags)
    assert message in error
    assert str(path) in error


def test_real_files(tmp_path, shared_data):
    """Every stored answer is a piece that the official script counts as right; a missing document is a reject."""
    for sample, name in (("sample_allennlp", "wikipedia"), ("sample_hf", "web")):
        root, output = shared_data / "triviaqa" / sample, tmp_path / sample / name
        train, valid = (root / "qa" / f"{name}-{split}.json" for split in ("train", "dev"))
        flags = ("--train", train, "--valid", valid, "--max-reject-fraction", 1, "--evidence-folder", root / "evidence")
        assert conftest.convert(triviaqa, output, *flags, tokenizer=["--gpt2-bpe", shared_data / "gpt2_bpe"]) == 0
        tokenizer, split = load_tokenizer(output), TriviaqaSplit.open(output, "train")
        questions = json.loads(train.read_text(encoding="utf-8"))["Data"]
        right = {question["QuestionId"]: question["Answer"]["NormalizedAliases"] for question in questions}
        for number, (key, _) in enumerate(ids(output)):
            aliases = {tuple(triviaqa_words(alias)) for alias in right[key.partition("--")[0]]}
            texts = [tokenizer.decode(split.document[number][a:b]) for a, b in split.answers(number)]
            assert {tuple(triviaqa_words(text)) for text in texts} <= aliases
        assert np.count_nonzero(split.answer.sizes) > 0

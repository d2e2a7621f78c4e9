import copy
import json
import re

import pytest

from fairseq_poolingformer.tasks.hotpotqa.data import AnswerType, HotpotqaSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import hotpotqa
from tests.preprocess.conftest import convert, refused, rejects
from tests.tasks.released_files import HOTPOTQA_QUESTIONS, write_hotpotqa

BRIDGE = HOTPOTQA_QUESTIONS[1]


def changed(base=BRIDGE, **fields):
    record = copy.deepcopy(base) | {key.removeprefix("the"): value for key, value in fields.items()}
    return {key: value for key, value in record.items() if value is not ...}


def pieces(folder, split, number):
    """Title and sentences of each paragraph, and which of them are to be found."""
    tokenizer = load_tokenizer(folder)
    sentences = iter(split.sentences(number).tolist())
    read, paragraphs = 0, []
    for size, count, is_relevant in split.paragraphs(number).tolist():
        rows = [(size, is_relevant), *(next(sentences) for _ in range(count))]
        texts = []
        for length, mark in rows:
            texts.append((tokenizer.decode(split.document[number][read : read + length]).strip(), mark))
            read += length
        paragraphs.append(texts)
    return paragraphs


def answers(folder, split, number):
    tokenizer, rows = load_tokenizer(folder), split.answer[number].reshape(-1, 2)
    return [tokenizer.decode(split.document[number][first:end]).strip() for first, end in rows]


def test_paragraphs_facts_and_answers_come_back(tmp_path):
    source = write_hotpotqa(tmp_path / "hotpot.json")
    assert convert(hotpotqa, tmp_path / "data", "--train", source, "--test", source) == 0
    split = HotpotqaSplit.open(tmp_path / "data", "train")
    tokenizer = load_tokenizer(tmp_path / "data")
    for number, question in enumerate(HOTPOTQA_QUESTIONS):
        facts = [tuple(fact) for fact in question["supporting_facts"]]
        expected = [
            [(title, title in dict(facts)), *((text.strip(), (title, k) in facts) for k, text in enumerate(sentences))]
            for title, sentences in question["context"]
        ]
        assert pieces(tmp_path / "data", split, number) == expected
        assert tokenizer.decode(split.question[number]).strip() == question["question"]
    assert split.answer_type.values.tolist() == [AnswerType.YES, AnswerType.SPAN, AnswerType.NO]
    assert [answers(tmp_path / "data", split, number) for number in range(3)] == [[], ["Chief of Protocol"], []]
    test = HotpotqaSplit.open(tmp_path / "data", "test")
    assert not test.answer_type.sizes.any()
    texts = [text for number in range(3) for paragraph in pieces(tmp_path / "data", test, number) for text in paragraph]
    assert not any(mark for _, mark in texts)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Shirley Temple", ["Shirley Temple", "Shirley Temple"]),  # every place in supporting facts
        ("shirley temple", ["Shirley Temple", "Shirley Temple"]),  # not as it is written
        ("Kiss and Tell (film)", ["Kiss and Tell (film)"]),  # in a title, which comes after the facts
        ("success", ["success"]),  # in another sentence of a relevant paragraph
        ("the Chief of Protocol", ["Chief of Protocol"]),
        ("an actress", []),  # only in a paragraph that is not relevant
        ("Temp", []),  # a part of a word
        ("!", []),
    ],
)
def test_places_of_an_answer(tmp_path, answer, expected):
    source = write_hotpotqa(tmp_path / "hotpot.json", [changed(answer=answer)])
    assert convert(hotpotqa, tmp_path / "data", "--train", source) == 0
    split = HotpotqaSplit.open(tmp_path / "data", "train")
    assert answers(tmp_path / "data", split, 0) == expected
    notes = (tmp_path / "data" / "train.notes.txt").read_text(encoding="utf-8")
    assert ("answer that is not in its paragraphs" in notes) == (not expected)


def test_facts_without_a_place_are_counted_and_unusual_characters_keep_theirs(tmp_path, capsys):
    facts = [["Shirley Temple", 1], ["Shirley Temple", 9], ["Janet Waldo", -1], ["Nobody", 0], ["Shirley Temple", 1]]
    context = [["Zoë 長\ud800", ["  Ünï 長い – “São Paulo” é.", "", "  "]], ["B", ["It is."]]]
    unusual = {"context": context, "answer": "São Paulo", "supporting_facts": [["Zoë 長\ud800", 0], ["B", 0]]}
    records = [changed(supporting_facts=facts), changed(the_id="a\nb\ud800", **unusual)]
    source = write_hotpotqa(tmp_path / "hotpot.json", records)
    assert convert(hotpotqa, tmp_path / "data", "--train", source) == 0
    split = HotpotqaSplit.open(tmp_path / "data", "train")
    marks = [[mark for _, mark in texts] for texts in pieces(tmp_path / "data", split, 0)]
    assert marks == [[0, 0, 0], [1, 0], [1, 0, 1]]
    output = capsys.readouterr().out
    assert "train: 2 × supporting fact whose number no sentence has" in output
    assert "train: 1 × supporting fact whose title no paragraph has" in output
    assert answers(tmp_path / "data", split, 1) == ["São Paulo"]
    assert split.paragraphs(1)[:, 1].tolist() == [3, 1]
    titles = (tmp_path / "data" / "train.titles.txt").read_text(encoding="utf-8").splitlines()[1]
    assert json.loads(titles) == [title for title, _ in context]  # as the official script compares them
    assert (tmp_path / "data" / "train.id.txt").read_text(encoding="utf-8").splitlines()[1] == "a b\ufffd"


BAD = {
    "id": (changed(the_id=...), "'_id' must be a string, is missing"),
    "question": (changed(question="\n"), "empty question"),
    "answer": (changed(answer=...), "'answer' must be a string, is missing"),
    "facts": (changed(supporting_facts=[["Shirley Temple"]]), "pairs of a title and the number of a sentence"),
    "context": (changed(context=[]), "no paragraphs"),
    "paragraph": (changed(context=[["A", "B"]]), r"context\[0\] must be a title and a list of sentences"),
    "empty": (changed(the_id="blank", context=[["", [" ", ""]]]), "nothing to encode"),
    "again": (BRIDGE, BRIDGE["_id"]),
}


def test_everything_bad_is_named_and_nothing_good_is_lost(tmp_path):
    values = [*HOTPOTQA_QUESTIONS[:2], *(value for value, _ in BAD.values()), HOTPOTQA_QUESTIONS[2]]
    source = write_hotpotqa(tmp_path / "hotpot.json", values)
    assert convert(hotpotqa, tmp_path / "data", "--train", source, "--max-reject-fraction", 0.9) == 0
    ids = (tmp_path / "data" / "train.id.txt").read_text(encoding="utf-8").split()
    assert ids == [question["_id"] for question in HOTPOTQA_QUESTIONS]
    for number, (reject, (_, reason)) in enumerate(zip(rejects(tmp_path / "data"), BAD.values(), strict=True), 3):
        assert reject["file"] == f"{source}, element {number}"
        assert re.search(reason, reject["reason"]), reject


def write_scores(folder, scores, **others):
    """Predictions of the first stage with these scores for the three paragraphs of the bridge question."""
    titles = [title for title, _ in BRIDGE["context"]]
    rows = scores if scores is None or isinstance(scores, int) else list(zip(titles, scores, strict=True))
    content = {"answer": {}, "sp": {}, "paragraph_scores": {BRIDGE["_id"]: rows, **others}}
    (folder / "first.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "first.json"


@pytest.mark.parametrize(
    ("scores", "options", "kept"),
    [
        ((2.0, 1.0, 3.0), (), [0, 1, 2]),
        ((2.0, -3.0, 3.0), (), [0, 2]),  # the score must be above -3
        ((2.0, -3.0, 3.0), ("--min-score", -3.5), [0, 1, 2]),
        ((-4.0, -5.0, -6.0), (), [0, 1]),  # evidence comes from two
        ((2.0, None, 3.0), ("--min-score", -99), [0, 2]),  # beyond the first stage's last segment
        ((1.0, 2.0, 3.0), ("--max-paragraphs", 2), [1, 2]),
    ],
)
def test_the_second_stage_keeps_the_best_paragraphs(tmp_path, capsys, scores, options, kept):
    source = write_hotpotqa(tmp_path / "hotpot.json", [BRIDGE])
    flags = ("--train", source, "--paragraph-scores", write_scores(tmp_path, scores), *options)
    assert convert(hotpotqa, tmp_path / "data", *flags) == 0
    titles = json.loads((tmp_path / "data" / "train.titles.txt").read_text(encoding="utf-8"))
    assert titles == [BRIDGE["context"][number][0] for number in kept]
    split = HotpotqaSplit.open(tmp_path / "data", "train")
    marked = [(title, int(title != "Janet Waldo")) for title in titles]
    assert [texts[0] for texts in pieces(tmp_path / "data", split, 0)] == marked
    dropped = "train: 1 × relevant paragraph that the first stage dropped" in capsys.readouterr().out
    assert dropped == (len({0, 2} & set(kept)) < 2)


def test_five_paragraphs_are_kept_by_default_as_longformers_second_stage_reads(tmp_path):
    titles = [f"title {number}" for number in range(10)]
    path = write_scores(tmp_path, None, name=[[title, 1.0] for title in titles])
    assert hotpotqa.Selection(((path, ""),)).kept("name", titles) == [0, 1, 2, 3, 4]


def test_scores_of_other_questions_or_paragraphs_are_refused(tmp_path, capsys):
    source = write_hotpotqa(tmp_path / "hotpot.json")
    scores = write_scores(tmp_path, (1.0, 2.0, 3.0), **{HOTPOTQA_QUESTIONS[0]["_id"]: [["Adam Collis", 1.0]]})
    arguments = ("--train", source, "--paragraph-scores", scores, "--max-reject-fraction", 0.9)
    assert convert(hotpotqa, tmp_path / "data", *arguments) == 0
    reasons = [reject["reason"].partition(":")[0] for reject in rejects(tmp_path / "data")]
    assert reasons == ["scores of other paragraphs", "no scores of the first stage"]
    alone = write_hotpotqa(tmp_path / "alone.json", [BRIDGE])
    titles = [title for title, _ in BRIDGE["context"]]
    for number, bad in enumerate((7, titles, [[title, "1"] for title in titles], [[title] for title in titles])):
        write_scores(tmp_path, None, **{BRIDGE["_id"]: bad})
        flags = ("--train", alone, "--paragraph-scores", scores)
        assert "scores of other paragraphs" in refused(capsys, hotpotqa, tmp_path / f"bad{number}", *flags)
    scores.write_text("{}", encoding="utf-8")
    for options, message in (
        (("--paragraph-scores", scores), "no 'paragraph_scores' in it; give predictions of --task hotpotqa"),
        (("--paragraph-scores", tmp_path / "absent"), "absent: no such file"),
        (("--max-paragraphs", 1), "--max-paragraphs 1: must be 2 or more"),
    ):
        assert message in refused(capsys, hotpotqa, tmp_path / "third", "--train", source, *options)


def test_other_scores_make_another_folder(tmp_path):
    """The scores are a part of the input: a finished folder is not taken for that of other scores."""
    source = write_hotpotqa(tmp_path / "hotpot.json", [BRIDGE])
    for scores, count in (((2.0, 1.0, 3.0), 3), ((2.0, -9.0, 3.0), 2)):
        arguments = ("--train", source, "--paragraph-scores", write_scores(tmp_path, scores), "--overwrite")
        assert convert(hotpotqa, tmp_path / "data", *arguments) == 0
        assert len(HotpotqaSplit.open(tmp_path / "data", "train").paragraphs(0)) == count

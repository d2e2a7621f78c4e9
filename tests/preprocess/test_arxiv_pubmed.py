import json

import numpy as np
import pytest

from fairseq_poolingformer.tasks.summarization import PAIRS, QUERY
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess.arxiv_pubmed import parse
from preprocess.pipeline.records import Example, Record, Reject

THREE = ["one  sentence .", "\n two .", "three ."]


def parsed(line, **options):
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    return parse(Record("folder/some.txt", 7, data), **options)


def release(**changes):
    fields = {
        "article_id": "a1",
        "article_text": ["one  sentence .", "", "\n two .", "three ."],
        "abstract_text": ["<S> first . </S>", "<S> second <b> . \n </S>"],
        **{"labels": None, "section_names": ["intro", "end"], "sections": [THREE[:1], THREE[1:]]},
    }
    return fields | changes


@pytest.mark.parametrize(
    ("article", "sections", "text"),
    [
        (THREE, [THREE[:1], THREE[1:]], "one sentence .\ntwo . three ."),  # the very strings of the article
        (THREE, [["one sentence ."], [], ["two .", "three ."]], "one sentence .\ntwo . three ."),  # other whitespace
        (["one .", "", "", " ", "two ."], [["one .", ""], ["", " "], ["two ."]], "one .\ntwo ."),
        *((THREE, sections, "one sentence . two . three .") for sections in (None, [["other ."]], [[]], "one")),
    ],
)
def test_sections_of_the_same_sentences_give_breaks(article, sections, text):
    assert parsed(release()) == Example("a1", ("one sentence .\ntwo . three .", "first . second <b> ."))
    assert parsed(release(article_text=article, sections=sections)).texts[0] == text


@pytest.mark.parametrize("article", ["article", "document", "text"])
@pytest.mark.parametrize("summary", ["abstract", "summary"])
def test_plain_format(article, summary):
    line = {article: " Body  text.\nSecond line. ", summary: "Short\nsummary."}
    assert parsed(line) == Example("some.txt:7", ("Body  text.\nSecond line.", "Short summary."))
    for ids, name in (({"article_id": None, "id": 0}, "0"), ({"id": None}, "some.txt:7"), ({"id": ""}, "some.txt:7")):
        assert parsed(line | ids).id == name
    assert parsed(line | {"article_id": "", "id": " \n", "publication_number": "p"}).id == "p"
    assert parsed({article: ["a b", "c"], summary: ["d", "e"], "id": 5}) == Example("5", ("a b\nc", "d e"))
    assert parsed({"article": None, "text": "x", "abstract": None, "summary": "y"}).texts == ("x", "y")


def test_keys_of_other_corpora():
    line = {"paper": {"body": "Body.", "tl.dr": "no"}, "a.b": ["Short.", "Short."], "text": "not this"}
    keys = {"article_keys": ["paper.html", "paper.body", "text"], "summary_keys": ["paper.tl.dr", "a.b"]}
    assert parsed(line, **keys).texts == ("Body.", "Short. Short.")
    reason = "no article: the line lacks paper.html and paper.body and text; its keys are paper"
    assert parsed({"paper": "Body."}, **keys).reason == f"{reason} (name one with --article-key)"


def test_a_record_without_a_known_key_says_what_it_has():
    """In a table without a header, a key may be a whole document."""
    reason = parsed({"x" * 1000: "", **dict.fromkeys(map(str, range(1000)), "")}).reason
    assert "its keys are " + "x" * 40 + "…, 0, 1" in reason
    assert len(reason) < 400


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"article_text": ["x"', "broken JSON: Expecting"),
        (b'{"article": ' + b'[{"text": ' * 400 + b'"x"' + b"}]" * 400 + b"}", "wrong type: article[0].text is neither"),
        (release(article_text=[]), "empty article: article_text"),
        (release(abstract_text=["<S>  </S>"]), "empty summary"),
        (release(article_text=3), "wrong type: article_text is a number"),
        (release(article_id=["a"]), "wrong type: the id is a list"),
        ({"article": "x"}, "no summary: the line lacks abstract_text and abstract and summary; its keys are article"),
        ({"abstract": "x"}, "no article: the line lacks article_text and"),
    ],
)
def test_bad_lines_say_why(line, reason):
    result = parsed(line)
    assert isinstance(result, Reject)
    assert result.reason.startswith(reason)


def test_questions_before_any_articles(tmp_path, command, write_lines):
    rows = [{"id": "a", "question": " Who? ", "article": "Text.", "summary": "Ann."}, {"id": "b", "question": ""}]
    lines = write_lines("train.jsonl", rows)
    options = ["--train", lines, "--query-key", "question", "--max-reject-fraction", 1]
    assert command(tmp_path / "data", *options) == 0
    data, decode = DataFolder(tmp_path / "data", PAIRS), load_tokenizer(tmp_path / "data").decode
    document, summary = (np.asarray(data.sequences("train", array)[0])[:-1].tolist() for array in PAIRS.ids)
    assert (decode(document), decode(summary)) == ("Who?  Text.", "Ann.")
    (count,) = np.asarray(data.sequences("train", QUERY)[0]).tolist()
    assert decode(document[:count]) == "Who?"

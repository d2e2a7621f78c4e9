"""Hyperpartisan's two files: articles with their labels, splits by shares or by a file, and bad input.

Texts are cleaned as worked out by hand.
"""

import gzip
import json
import time

import pytest

from preprocess import hyperpartisan
from tests.preprocess.conftest import convert, refused, rejects
from tests.preprocess.test_labelled_text import examples
from tests.samples import write_hyperpartisan as write


def flags_of(folder):
    return ("--articles", folder / "articles.xml", "--truth", folder / "truth.xml")


def test_articles_are_paired_with_the_ground_truth(tmp_path):
    expected = write(tmp_path / "raw", 30)
    flags = (*flags_of(tmp_path / "raw"), "--valid-share", 0.3, "--test-share", 0.3)
    assert convert(hyperpartisan, tmp_path / "data", *flags) == 0
    splits = [examples(tmp_path / "data", split) for split in ("train", "valid", "test")]
    assert splits[0] | splits[1] | splits[2] == expected
    assert sum(map(len, splits)) == 30
    assert sum(len({text for text, _ in split.values()}) for split in splits) == 12  # equal articles are on one side


PUBLISHED = {"train": [0, 1, 2, 3, 5], "dev": [4, 6], "test": [5, 7, 1]}
PLAIN = "0000000 train\n1 train\n2\ttrain\n3 train\n5 train\n\n0000004 valid\n6 dev\n5 test\n7 test\n1 test\n"


@pytest.mark.parametrize("content", [json.dumps(PUBLISHED), PLAIN])
def test_a_file_names_the_splits(tmp_path, capsys, content):
    expected = write(tmp_path / "raw", 9)
    (tmp_path / "splits").write_text(content)
    flags = (*flags_of(tmp_path / "raw"), "--splits", tmp_path / "splits")
    assert convert(hyperpartisan, tmp_path / "data", *flags) == 0
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        ids = [f"{number:07d}" for number in sorted(PUBLISHED[name])]
        assert examples(tmp_path / "data", split) == {number: expected[number] for number in ids}
    lines = capsys.readouterr().out.splitlines()
    warning = "2 of 3 documents of test are in train as well, as splits has it: figures on test are not those of unseen"
    corpus = json.loads((tmp_path / "data" / "corpus.json").read_text())
    assert corpus["table"][-2].startswith(warning)
    assert corpus["table"][-1] == "1 documents are in no split of splits"
    assert [*corpus["table"], *corpus["warnings"]] == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"train": [0, 99]}', "train has '99', and there is no such document"),
        ('{"train": [0, 1, 0]}', "train has '0' twice"),
        ('{"train": [0], "eval": [1]}', "'eval' is not one of train, valid, test"),
        ('{"train": [0], "dev": 1}', "'dev' must be a list of ids, is 1"),
        ("0 train\n1\n", "line 2: must be an id and a split, is '1'"),
        ('{"train": [0', "not JSON"),
    ],
)
def test_splits_that_cannot_be_are_named(tmp_path, capsys, content, message):
    write(tmp_path / "raw", 4)
    (tmp_path / "splits").write_text(content)
    flags = (*flags_of(tmp_path / "raw"), "--splits", tmp_path / "splits")
    assert message in refused(capsys, hyperpartisan, tmp_path / "data", *flags)


def test_any_valid_xml_is_read(tmp_path):
    articles = b"""<articles><article
 id='1' title="x">one</article><article id="2"><![CDATA[two </article>]]></article></articles>"""
    (tmp_path / "articles.xml.gz").write_bytes(gzip.compress(articles))
    truth = "<article id='1' hyperpartisan='true'></article>\n<article hyperpartisan='false'\nid='2'/>"
    (tmp_path / "truth.xml").write_text(f"<articles>{truth}</articles>")
    flags = ("--articles", tmp_path / "articles.xml.gz", "--truth", tmp_path / "truth.xml")
    assert convert(hyperpartisan, tmp_path / "data", *flags, "--valid-share", 0, "--test-share", 0) == 0
    assert examples(tmp_path / "data", "train") == {"1": ("one", "true"), "2": ("two </article>", "false")}


def test_bad_articles_are_named(tmp_path, capsys):
    write(tmp_path / "raw", 12)
    articles, truth = tmp_path / "raw" / "articles.xml", tmp_path / "raw" / "truth.xml"
    text = articles.read_text().replace('id="0000003"', 'id="99"').replace("theory of attention 0 <a", "<a", 1)
    text = text.replace('id="0000005"', 'id=""')
    articles.write_text(text)
    flags = (*flags_of(tmp_path / "raw"), "--valid-share", 0, "--test-share", 0)
    assert convert(hyperpartisan, tmp_path / "data", *flags, "--max-reject-fraction", 0.5) == 0
    bad = [(reject["file"].rpartition(", ")[2], reject["reason"]) for reject in rejects(tmp_path / "data")]
    assert bad == [("article 4", "no ground truth: article '99'"), ("article 6", "empty id")]
    for path, content, message in (
        (articles, text[: text.rindex("more")], "articles.xml: not XML, or cut (no element found: line 38"),
        (articles, text.replace("another document 1 <a", "<b", 1), "articles.xml: not XML, or cut (mismatched tag: "),
        (truth, "<articles><article id='1' hyperpartisan='maybe'/></articles>", "needs an id of its own and hyper"),
    ):
        path.write_text(content)
        assert message in refused(capsys, hyperpartisan, tmp_path / "cut", *flags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" one\ntwo\n\nthree ", "one two three"),
        ("he/she said 1/2 and/or a/b/c", "said 1/2 /c"),
        ("a&#160;b \xa0c", "ab c"),
        ("see https://x.org/a?b=c, or www.x.org) and href='y' now", "see ?b=c, or and now"),
        ("a http b", "a http b"),
        ("What?!! No... Yes. A?", "What! No. Yes. A?"),
        ("sooo looong goood yesss!", "so looong goood yes!"),
        ("aaa--- ---b", "a--- ---b"),
        ("000 111a", "0 111a"),
        ("wait---what", "wait-what"),
        ("", ""),
        ("http://only.a.link", ""),
    ],
)
def test_what_stays(text, expected):
    assert hyperpartisan.clean(text) == expected


@pytest.mark.parametrize("text", ["a-", "!", "a/"])
def test_time_grows_with_the_length(text):
    start = time.process_time()
    hyperpartisan.clean(text * 300_000)
    assert time.process_time() - start < 10

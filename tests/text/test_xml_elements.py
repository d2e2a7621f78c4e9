"""Any XML that is valid, what is wrong with the rest, and files that want to fill the memory."""

import io
import itertools
import time
import tracemalloc
from xml.etree import ElementTree

import pytest

from fairseq_poolingformer.text import xml_elements
from fairseq_poolingformer.text.xml_elements import Element, read_elements

VALID = """<?xml version="1.0" encoding="UTF-8"?>
<!-- <article id="comment"/> -->
<articles><article
  id='1'
  title="a > b &amp; 'c'">one <p>two <a href="x>y">three</a></p> four<br/>five</article>
<article id="2"><![CDATA[</article><article id="x">]]> &lt;article&#160;&#x9577;</article ><article id="3"/>
<article id="4"><article id="inner">nested</article></article></articles>
"""
EXPECTED = [
    Element(3, {"id": "1", "title": "a > b & 'c'"}, ("one ", "two three", " four", "five")),
    Element(6, {"id": "2"}, ('</article><article id="x"> <article\xa0長',)),
    Element(6, {"id": "3"}, ()),
    Element(7, {"id": "4"}, ("nested",)),
]


def read(text, tag="article"):
    content = text if isinstance(text, bytes) else text.encode()
    return list(read_elements(io.BytesIO(content), "f.xml", tag))


@pytest.mark.parametrize("block", [1, 3, 100, 2**20])
def test_valid_xml_is_read_whatever_its_form(monkeypatch, block):
    monkeypatch.setattr(xml_elements, "_BLOCK", block)
    assert read(VALID) == EXPECTED


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_the_declared_encoding_counts(encoding):
    text = '<?xml version="1.0" encoding="ENC"?><articles><article id="é">naïve</article></articles>'
    assert read(text.replace("ENC", encoding).encode(encoding)) == [Element(1, {"id": "é"}, ("naïve",))]


def test_the_text_is_that_of_elementtree():
    for element, expected in zip(read(VALID), ElementTree.fromstring(VALID).findall("article"), strict=True):
        assert "".join(element.parts) == "".join(expected.itertext())
        assert element.attributes == expected.attrib


BROKEN = ["&nbsp;", "a & b", "<p>", "</p>", "<a b=c>", "<a b='1' b='2'/>", "\x01", "]]>", "<article id='x'", "\udcff"]


@pytest.mark.parametrize("block", [1, 7, 2**20])
@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_element_spoils_no_other(monkeypatch, content, block):
    monkeypatch.setattr(xml_elements, "_BLOCK", block)
    lines = ["<articles>", '<article id="1">one</article>', f'<article id="2">\n{content}</article>']
    lines += ['<article id="3">three</article>', "<article>four</article>", "</articles>"]
    found = read("\n".join(lines).encode("utf-8", "surrogateescape"))
    good = [element for element in found if element.problem is None]
    assert [(e.line, e.attributes, e.parts) for e in good] == [
        (2, {"id": "1"}, ("one",)),
        (5, {"id": "3"}, ("three",)),
        (6, {}, ("four",)),
    ]
    assert [(e.line, e.attributes.get("id")) for e in found if e.problem] == [(3, "2")]
    assert all(e.problem.startswith("broken XML: ") for e in found if e.problem)


def test_a_broken_start_is_named_by_its_own_line():
    with pytest.raises(ValueError, match=r"f.xml: not XML \(not well-formed .*, line 3\); is it one whole file\?"):
        read('<articles>\n<article id="1"/>\n<article id=2/>\n</articles>')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.xml: ends too early"),
        ("plain text", "f.xml: not XML"),
        ("<articles><article>a", r"ends inside the <article> of line 1 \(no element found, line 1\); fetch it again"),
        ("<articles>\n<article><![CDATA[ <article/>", "ends inside the <article> of line 2"),
        ("<articles><article/>", "ends too early"),
        ("<articles><article/></articles>\n<articles><article/></articles>", r"not XML \(junk after document element"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_another_element_in_an_elements_place_is_named():
    found = read("<articles>\n<Article id='1'>text</Article>\n<article/></articles>")
    assert [(element.line, element.problem) for element in found] == [
        (2, "no <article>: <Article> is its place"),
        (3, None),
    ]


LAUGHS = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))


@pytest.mark.parametrize(
    "head",
    [
        f"<!DOCTYPE articles [{LAUGHS}]>",
        '<!DOCTYPE articles [<!ENTITY a12 SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE articles [<!ENTITY % a12 SYSTEM "http://127.0.0.1/x.dtd"> %a12;]>',
        '<!DOCTYPE articles SYSTEM "http://127.0.0.1/x.dtd">',  # whatever it declares: nothing is fetched
    ],
)
def test_entities_are_refused_and_nothing_is_expanded_or_fetched(head):
    with pytest.raises(ValueError, match=r"f.xml, line 1: has an entity of its own, 'a"):
        read(f"{head}<articles><article>&a12;</article></articles>")


class Endless(io.RawIOBase):
    """A file of a beginning and 6 MiB of something."""

    def __init__(self, begin, repeated):
        self._blocks = itertools.chain([begin], itertools.repeat(repeated * (2**20 // len(repeated)), 6))

    def read(self, size=-1):
        return next(self._blocks, b"")


@pytest.mark.parametrize(
    ("begin", "repeated", "message"),
    [
        (b"<articles><!--", b"x", "a tag or a comment of more than"),
        (b'<articles><article id="', b"x", "a tag or a comment of more than"),
        (b"<articles>", b"<p>", "more than 1,000 elements nested"),
        (b"<articles><article>", b"<p>a</p>", "ends inside"),
        (b"<articles><article>", b"text ", "ends inside"),
    ],
)
def test_memory_is_bounded(monkeypatch, begin, repeated, message):
    monkeypatch.setattr(xml_elements, "MAX_SIZE", 2**19)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ValueError, match=message):
        for _ in read_elements(Endless(begin, repeated), "f.xml", "article"):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20
    assert time.process_time() - start < 60


def test_an_element_that_is_too_long_is_named(monkeypatch):
    monkeypatch.setattr(xml_elements, "MAX_SIZE", 1000)
    found = read(f"<articles><article>{'a' * 1001}</article><article>b</article></articles>")
    assert [element.problem for element in found] == ["too long: more than 1,000 characters", None]

import bz2
import gzip
import re
from pathlib import Path

import pytest

from preprocess.pipeline.records import Record
from preprocess.wikitext.dump import BrokenPage, Site, parse_page, read_pages, read_site
from tests.preprocess.conftest import page

SMALL = Path(__file__).parents[1] / "fixtures" / "wikipedia" / "small.xml"


@pytest.mark.parametrize("form", ["bz2", "multistream.bz2", "gz"])
def test_compressed_dumps(tmp_path, form):
    raw = SMALL.read_bytes()
    middle = raw.index(b"<page>", len(raw) // 2)
    streams = {"bz2": [raw], "multistream.bz2": [raw[:middle], raw[middle:]], "gz": [raw]}[form]
    data = b"".join(map(gzip.compress if form == "gz" else bz2.compress, streams))
    dump = tmp_path / f"small.xml.{form}"
    dump.write_bytes(data)
    plain, records = list(read_pages([SMALL])), list(read_pages([dump]))
    assert [(record.data, record.line) for record in records] == [(record.data, record.line) for record in plain]
    assert sum(record.progress for record in records) <= len(data)
    assert read_site(dump) == read_site(SMALL)


def test_pages_are_found_wherever_blocks_of_the_file_end(tmp_path, monkeypatch):
    raw = SMALL.read_text(encoding="utf-8")
    wanted = [match.group().encode() for match in re.finditer("<page>.*?</page>", raw, re.S)]
    lines = [raw.count("\n", 0, match.start()) + 1 for match in re.finditer("<page>", raw)]
    for size in (1, 5, 7, 64, 1000):
        monkeypatch.setattr("preprocess.wikitext.dump._BLOCK_BYTES", size)
        records = list(read_pages([SMALL]))
        assert [record.data for record in records] == wanted
        assert [record.line for record in records] == lines


@pytest.mark.parametrize("block", [3, 2**17])
def test_of_a_long_page_only_the_beginning_is_kept(tmp_path, monkeypatch, block):
    monkeypatch.setattr("preprocess.wikitext.dump._BLOCK_BYTES", block)
    path = tmp_path / "a.xml"
    path.write_bytes(b"<page>" + b"x" * 100 + b"</page>\n<page>y</page>")
    for most in (113, 112, 106, 50):
        long, short = read_pages([path], max_page_bytes=most)
        assert long.data == path.read_bytes()[: most if most == 113 else min(most, block)]
        assert (short.data, short.line) == (b"<page>y</page>", 2)


@pytest.mark.parametrize(
    ("title", "text", "namespace", "is_redirect"),
    [
        ("A", "text", 0, False),
        ("Talk:A", "text", 1, False),
        ("Talks: A", "#1 [[a", 0, False),
        ("AAA", "#REDIRECT [[A]]", 0, True),
        ("B", " # redirect: [[A]]", 0, True),
        ("C", "#ПЕРЕНАПРАВЛЕНИЕ [[A]]", 0, True),
    ],
)
def test_old_dumps_tell_namespaces_and_redirects_by_title_and_text(title, text, namespace, is_redirect):
    site = Site({0: "", 1: "Talk", 6: "Image", 14: "Category"})
    parsed = parse_page(Record("f", 1, page(title, text, ns="").strip().encode()), site)
    assert (parsed.namespace, parsed.is_redirect) == (namespace, is_redirect)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<page><title>a</title><revision><text>b", "page without end"),
        (b"<page>\n<title>a</title><b></page>", "broken XML: line 8, column 21: mismatched tag"),
        (b"<page><title>a\xff</title></page>", "broken XML: line 7, column 14: not well-formed"),
        (b"<page><title>&bomb;</title></page>", "broken XML: line 7, column 13: undefined entity"),
        (b"<page><title/><revision><text>b</text></revision></page>", "page without title"),
        (b"<page><title>a</title><revision/></page>", "page without text"),
        (b"<page><title>a</title><ns>x</ns><revision><text/></revision></page>", "page without namespace: .*'x'"),
    ],
)
def test_broken_pages_and_a_dump_that_says_nothing_about_its_wiki(data, message, tmp_path):
    with pytest.raises(BrokenPage, match=message):
        parse_page(Record("f", 7, data), Site({}))
    (tmp_path / "a.xml").write_text("<mediawiki><siteinfo><namespaces><namespace key='x'/></namespaces></siteinfo>")
    with pytest.raises(ValueError, match="broken <siteinfo>"):
        read_site(tmp_path / "a.xml")

"""The regular expressions of the prefilter give what the parser gives."""

from collections import Counter

import pytest

from preprocess.wikitext import text as wikitext_text
from preprocess.wikitext.prefilter import shorten
from preprocess.wikitext.text import plain_text
from tests.preprocess.wikitext.real_articles import articles

CASES = [
    "a {{nowrap|{{math|x = 1}}}} b {{nowrap|{{=}}}} {{lang|fr|y={{=}}|2=z}} {{quote|{{=}}}}",
    "{{lang|fr|{{math|1=x = 1}}}} {{nowrap|{{lang|fr|2=y=z}}}}",
    "{{lang|fr|[[a|b]] [[c]]}} {{lang|fr|[http://d.e f=g]}} {{lang|fr|[[a|b}} {{lang|fr|a]]|b}}",
    "{{lang|fr|[[a=b|c]]}} {{lang|fr|a&nbsp;b}} {{lang|fr|<span style='x'>a</span>}} {{lang|fr|a<ref>b</ref>}}",
    "{{nowrap|{{nowrap|{{nowrap|{{nowrap|deep}}}}}}}} {{nowrap|a {{unknown}} b}} {{nowrap|(c {{unknown}})}}",
    "''GQ''{{'s}} and ''{{'}}a'' {{transl|ar|ALA|''b''}} '''{{lang|fr|c}}'''",
    "{{lang|fr|{{lang|de|a}}}} {{{b|{{lang|fr|c}}}}} {{lang|fr|{{{d}}}}} {{lang|fr|e}}} {{{{lang|fr|f}}}} {{{g}}",
    "== {{lang|fr|a}} ==\nb {{formatnum:12345}} {{Lang_|fr|c}} {{ lang |fr| d }}e {{lang\n|fr\n|f}}",
    "{{bracket|[[a]]}} {{bracket|b]}} [[c{{bracket|d}}]] [[e|{{bracket|f}}]]",
    "{{#if:x|{{nowrap|a}}|b}} {{lang|fr|2=a|2=b}} {{lang|fr}} {{nowrap}} {{convert}} {{val|1|2|3|e=4|u=m}}",
]


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case, monkeypatch):
    short = plain_text(case, wiki="en")
    monkeypatch.setattr(wikitext_text, "shorten", lambda wikitext, *_: wikitext)
    assert short == plain_text(case, wiki="en")
    assert short


def test_templates_need_no_parser():
    wikitext = "a {{convert|5|km|abbr=on}} {{quote|[[a|b]] {{unknown|c}}}}<!-- d --><ref>e</ref>"
    assert "{{" not in shorten(wikitext, False, "en", Counter())
    assert shorten(wikitext, True, "en", Counter()).count("{{") == 3


@pytest.mark.parametrize("folder", ["wikipedia", "enwik8"])
@pytest.mark.parametrize("keep_templates", [False, True])
def test_shortcuts_change_nothing(shared_data, monkeypatch, folder, keep_templates):
    pages = articles(shared_data, folder)
    short = {title: plain_text(wikitext, keep_templates=keep_templates, wiki="en") for title, wikitext in pages.items()}
    monkeypatch.setattr(wikitext_text, "shorten", lambda wikitext, *_: wikitext)
    for title, wikitext in pages.items():
        assert short[title] == plain_text(wikitext, keep_templates=keep_templates, wiki="en"), title
    assert len(pages) > 100

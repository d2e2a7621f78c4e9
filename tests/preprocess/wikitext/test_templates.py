"""Templates by hand: the text that Wikipedia shows for each, conversions to other units left out."""

import re

import pytest

from preprocess.wikitext import templates
from preprocess.wikitext.text import plain_text

CASES = {
    "(1775{{ndash}}1783), 15{{nbsp}}September, 2.5{{nbsp}}million": "(1775–1783), 15 September, 2.5 million",
    "''GQ''{{'s}} a{{mdash}}b{{snd}}c {{'}}d": "GQ's a—b – c 'd",
    "a {{convert|22|e6acre|km2}}, {{convert|1500|to|2000|km|mi|abbr=on}}": "a 22 million acre, 1,500 to 2,000 km",
    "{{convert|6|ft|2|in|m}} {{convert|5|-|6|km2|sqmi}} {{cvt|-40|C|F|0}} {{convert|2413|ft|0}}": (
        "6 ft 2 in 5–6 km² -40 °C 2,413 ft"
    ),
    "{{lang|fr|le}} {{lang-de|der}} {{langx|it|il}} {{transl|ar|al}} {{transl|ar|ALA|Allāh}}": "le der il al Allāh",
    "a {{nihongo|''health''|元気|genki}} b {{nihongo||元気}}": "a health (元気, genki) b 元気",
    "a{{quote|b\n\nc|Author}}d {{cquote|text=e}}{{quote|quote=f}}": "a\nb\nc\nd\ne\nf",
    "{{frac|1|2}} 5{{frac|3|4}} {{frac|7}} {{frac|2|3|8}} {{sfrac|10|21}}": "½ 5¾ ¹⁄₇ 2⅜ ¹⁰⁄₂₁",
    "{{val|1.008|0.002|u=g}} {{val|5|3|1}} {{val|6|e=-3|p=~}}": "1.008±0.002 g 5+3−1 ~6×10⁻³",
    "{{nowrap|a [[b|c]]}} {{circa|1200|1250}} {{fl.|9}}": "a c c. 1200 – c. 1250 fl. 9",
    "{{IPA-de|baʊm}} {{IPAc-en|lang|ˈ|h|iː|audio=a.ogg|audio-x}}": "[baʊm] /ˈhiː/",
    "{{as of|2011|3|lc=y}}, {{as of|2011}}, {{as of|2011|alt=in 2011}} {{start date|1994|7|06}}": (
        "as of March 2011, As of 2011, in 2011 6 July 1994"
    ),
    "{{bibleverse||Mark|3:25|9}}": "Mark 3:25",
    "{{chem|H|2|O}} {{respell|HEE|lee-əs}} {{keypress|Ctrl|C}} {{formatnum:1234567.5}} {{US$|5}}": (
        "H2O HEE-lee-əs Ctrl+C 1,234,567.5 US$5"
    ),
    "{{start date|2000|1|31}}, {{start date|2000|12}}, {{start date|2000|13}}, {{c.}}1500": (
        "31 January 2000, December 2000, 13 2000, c. 1500"
    ),
    "{{convert|5|km}} {{convert|some|km}}{{val|5|ul=m}} {{lang-zh| 上海 |p=Shànghǎi}}": "5 km 5 m 上海",
    "{{angbr|e}} {{gloss|x}} {{literally|y}} {{sup|2}} {{script/Hebrew|א}} {{bracket|a}}": "⟨e⟩ ‘x’ lit. ‘y’ ² א [a]",
    "a {{lang|fr}} ({{nowrap}}), b ({{IPAc-en|lang}}; c)": "a, b (c)",
    "{{Main|a}}{{infobox|b={{lang|fr|c}}}}d{{citation needed}}": "d",
    "a{{snds}}b{{endash}}c{{--}}d Manu{{okina}}a, HA {{eqm}} B": "a – b–c–d Manuʻa, HA ⇌ B",
    "10{{smsup|−10}} {{vr|a}} ({{nasdaq|AAPL}}) {{mpl|1988 AB|5}} {{hlist|a|b}}": (
        "10⁻¹⁰ ⟨a⟩ (Nasdaq: AAPL) 1988 AB5 a · b"
    ),
    "a {{date|5|mars|1871}}{{unknown|a}} b": "a b",
    "300{{e|9}} 2.5{{e|−7}} 1{{E| 3 }} 4{{e}}": "300×10⁹ 2.5×10⁻⁷ 1×10³ 4",
}  # fmt: skip


@pytest.mark.parametrize("wikitext", CASES)
def test_by_hand(wikitext):
    assert plain_text(wikitext) == CASES[wikitext]


def test_every_name_is_reachable_and_named_once():
    tables = (templates._CHARACTERS.values(), templates._RENDERERS.values())
    names = [" ".join(name.split()) for table in tables for texts in table for name in re.split(r",\s+", texts)]
    assert len(names) == len(set(names)) > 150
    for name in names:
        assert templates.find_renderer(name) is not None, name
        assert templates.find_renderer(f" {name[:1].upper()}{name[1:].replace(' ', '_')}\n") is not None, name

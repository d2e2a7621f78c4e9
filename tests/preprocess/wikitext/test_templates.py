"""Templates by hand: the text that Wikipedia shows for each, conversions to other units left out."""

from collections import Counter

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
    "a {{nihongo|''health''|元気|genki}} b {{nihongo||元気}} {{zh|p=Shànghǎi|s=上海}}": (
        "a health (元気, genki) b 元気 上海; Shànghǎi"
    ),
    "a{{quote|b\n\nc|Author}}d {{cquote|text=e}}{{quote|quote=f}}": "a\nb\nc\nd\ne\nf",
    "{{frac|1|2}} 5{{frac|3|4}} {{frac|7}} {{frac|2|3|8}} {{sfrac|10|21}}": "½ 5¾ ¹⁄₇ 2⅜ ¹⁰⁄₂₁",
    "{{val|1.008|0.002|u=g}} {{val|5|3|1}} {{val|6|e=-3|p=~}} 2{{e|-7}}": "1.008±0.002 g 5+3−1 ~6×10⁻³ 2×10⁻⁷",
    "{{nowrap|a [[b|c]]}} {{circa|1200|1250}} {{reign|1066|1087}} {{fl.|9}}": (
        "a c c. 1200 – c. 1250 r. 1066–1087 fl. 9"
    ),
    "{{IPA|/eɪ/}} {{IPA|de|baʊm|lang}} {{IPA-de|baʊm}} {{IPAc-en|lang|ˈ|h|iː|audio=a.ogg|audio-x}}": (
        "/eɪ/ [baʊm] [baʊm] /ˈhiː/"
    ),
    "{{as of|2011|3|lc=y}}, {{as of|2011}}, {{as of|2011|alt=in 2011}} {{start date|1994|7|06}}": (
        "as of March 2011, As of 2011, in 2011 6 July 1994"
    ),
    "{{USS|Iowa|BB-61}} {{HMS|Hood|51|2}} {{ship|HMS|Hood|51|6}} {{sclass|Nimitz|carrier}}": (
        "USS Iowa (BB-61) HMS Hood Hood Nimitz-class carrier"
    ),
    "{{sic|recieve}} {{sic|hide=y|wierd}} {{height|ft=5|in=10}} {{bibleverse||Mark|3:25|9}}": (
        "recieve [sic] wierd 5 ft 10 in Mark 3:25"
    ),
    "{{chem|H|2|O}} {{respell|HEE|lee-əs}} {{keypress|Ctrl|C}} {{formatnum:1234567.5}} {{US$|5}}": (
        "H2O HEE-lee-əs Ctrl+C 1,234,567.5 US$5"
    ),
    "{{date|2000|1|31}}, {{date|2000|12}}, {{date|2000|13}}, {{c.}}1500": (
        "31 January 2000, December 2000, 13 2000, c. 1500"
    ),
    "{{convert|5|km}} {{convert|some|km}}{{val|5|ul=m}} {{lang-zh| 上海 |p=Shànghǎi}}": "5 km 5 m 上海; Shànghǎi",
    "{{angbr|e}} {{gloss|x}} {{literally|y}} {{sup|2}} {{script/Hebrew|א}} {{bracket|a}}": "⟨e⟩ ‘x’ lit. ‘y’ ² א [a]",
    "a {{lang|fr}} ({{nowrap}}), b ({{IPAc-en|lang}}; c)": "a, b (c)",
    "{{Main|a}}{{infobox|b={{lang|fr|c}}}}d{{citation needed}}": "d",
    "a{{snds}}b{{endash}}c{{--}}d Manu{{okina}}a, A{{music|flat}} G{{music|#}}, HA {{eqm}} B": (
        "a – b–c–d Manuʻa, A♭ G♯, HA ⇌ B"
    ),
    "{{SimpleNuclide|Carbon|14}}, {{simpleNuclide|U|235}}, {{nuclide|lead|208}}, {{nuclide2|xy|3}}": (
        "¹⁴C, ²³⁵U, ²⁰⁸₈₂Pb, ³xy"
    ),
    "{{ordinal|1}} {{ordinal|12}} {{ordinal|23}} {{ordinal|111}} {{ordinal|x}}": "1st 12th 23rd 111th x",
    "{{coord|13|19|N|169|9|W|type:event}} {{coord|44.1|-87.9}}": "13°19′N 169°9′W 44.1°N 87.9°W",
    "{{coor dms|1|2|3|S|4|5|6|E}} {{coord|1|N|2|E|display=title}}a": "1°2′3″S 4°5′6″E a",
    "{{OldStyleDate|2 May|1905|19 April}}, {{RailGauge|1435mm}}, {{US patent|1781541}} {{OEIS|id=A000602}}": (
        "2 May [O.S. 19 April] 1905, 1,435 mm, U.S. patent 1,781,541 (sequence A000602 in the OEIS)"
    ),
    "10{{smsup|−10}} {{vr|a}} ({{nasdaq|AAPL}}) {{mpl|1988 AB|5}} {{hlist|a|b}} {{zh-stp|s=算|p=suan}}": (
        "10⁻¹⁰ ⟨a⟩ (Nasdaq: AAPL) 1988 AB5 a · b 算; suan"
    ),
}  # fmt: skip


@pytest.mark.parametrize("wikitext", CASES)
def test_by_hand(wikitext):
    assert plain_text(wikitext, wiki="en") == CASES[wikitext]


OF_WIKIS = {
    "fr": {
        "{{date|5|mars|1871}}, {{date-|1|mai|1900|en art}}": "5 mars 1871, 1er mai 1900",
        "10{{e|12}} m, XIX{{e}}, {{Ier}}, 2{{exp|-3}}": "10¹² m, XIXe, Ier, 2⁻³",
        "{{s|XIX|e}}, {{s-|I|er}}, {{XIXe siècle}}, {{IIe siècle av. J.-C.}}": (
            "XIXe siècle, Ier siècle, XIXe siècle, IIe siècle av. J.-C."
        ),
        "{{unité|1500|km|2}}, {{nombre|12}}, {{formatnum:12345.5}}": "1 500 km², 12, 12 345,5",
        "{{citation|a}} {{langue|en|b}} {{lang|en|c}} {{fchim|H|2|O}}": "« a » b c H2O",
    },
    "de": {'{{"|a}} {{enS|b}} {{IPA|c}} {{Bruch|1|2}} {{formatnum:12345}}': "„a“ b [c] ½ 12.345"},
    "es": {"{{siglo|XIX}} {{AFI|a}} {{unidad|5|km}} 44{{esd}}{{a. C.}}": "siglo XIX a 5 km 44 a. C."},
    "simple": {"{{convert|5|km}}": "5 km"},
    "": {"{{date|5|mars|1871}} 10{{e|12}}, {{lang|fr|a}}{{ndash}}{{nowrap|b}} {{formatnum:12345}}": "10, a–b 12345"},
}


@pytest.mark.parametrize("wiki", OF_WIKIS)
def test_the_same_name_means_what_it_means_in_its_wiki(wiki):
    for wikitext, text in OF_WIKIS[wiki].items():
        assert plain_text(wikitext, wiki=wiki) == text
    assert plain_text("{{date|5|mars|1871}}.", wiki="it") == ""


def test_templates_that_may_have_shown_text_are_counted():
    wikitext = "a {{unknown|b}} {{Un_known|x=1}} {{Sfn|c}} {{cite book|d}} {{date|1|2|3}} {{convert|5|km}}"
    wikitext += "{{unknown|<i>e</i>}}"
    lost = {}
    for wiki in ("en", "it"):
        plain_text(wikitext, wiki=wiki, lost=(counts := Counter()))
        lost[wiki] = dict(counts)
    assert lost["en"] == {"unknown": 2}
    assert lost["it"] == {"unknown": 2, "sfn": 1, "cite book": 1, "date": 1, "convert": 1}
    plain_text(wikitext, wiki="en", keep_templates=True, lost=(counts := Counter()))
    assert not counts


TABLES = {"": templates._EVERYWHERE, **templates._WIKIPEDIAS}


@pytest.mark.parametrize("wiki", TABLES)
def test_every_name_is_reachable_and_named_once(wiki):
    names = [name for names in templates._CHARACTERS.values() for name in names.split(", ")]
    names += [name for names in TABLES[wiki].values() for name in "".join(names.split("\n")).split(",")]
    names = [" ".join(name.split()) for name in names]
    assert len(names) == len(set(names))
    for name in names:
        assert templates.find_renderer(name, wiki) is not None, name
        assert templates.find_renderer(f" {name[:1].upper()}{name[1:].replace(' ', '_')}\n", wiki) is not None, name


@pytest.mark.parametrize("wiki", TABLES)
def test_parameters_of_any_number_do_no_harm(wiki):
    for renderer in TABLES[wiki]:
        for count in range(6):
            for value in ("", " ", "x", "1", "1.5", "-", "N"):
                assert isinstance(renderer({str(number): value for number in range(1, count + 1)}), str)
    for name in ("", "main", "infobox person", "#if:a"):
        assert plain_text(f"a{{{{{name}|b}}}}", wiki=wiki) == "a"

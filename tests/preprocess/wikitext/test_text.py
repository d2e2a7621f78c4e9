import re

import mwparserfromhell
import pytest
from mwparserfromhell import nodes

from preprocess.wikitext.dump import parse_page, read_pages, read_site
from preprocess.wikitext.lines import BLOCK_TAGS, DROPPED_TAGS, HEADING, PROTECTED, REMOVED, clean_lines
from preprocess.wikitext.renderers import RAISED
from preprocess.wikitext.templates import find_renderer
from preprocess.wikitext.text import FILES_AND_CATEGORIES, plain_text

CASES = {
    "bold, italic": ("'''A''' is ''b'' and '''''c'''''.", "A is b and c."),
    "apostrophes beside quotes": ("L'''Iliade'' et '''d''''s", "L'Iliade et d's"),
    "apostrophe in French": ("L'''Iliade'' est un poème", "L'Iliade est un poème"),
    "apostrophe after a word of one letter": ("mot'''a''' l'''été''", "mota l'été"),
    "bold closed, italic open": ("'''a''' ''b", "a b"),
    "six quotes": ("a ''''''b'''''", "a 'b"),
    "links": ("[[a]]s, [[b|c]], [[d_e]], [[:Category:f]], [[g#h|i|j]]", "as, c, d e, Category:f, i|j"),
    "titles with colons": ("[[CSI: Miami]] [[Re:Zero|zero]] [[Ai: x]] [[D:]]", "CSI: Miami zero Ai: x D:"),
    "hidden links": ("x[[File:a.jpg|thumb|of [[b]] {{c}}]] [[Category:d]][[fr:e]][[be-x-old:f]][[Bild:g.PNG]]y", "x y"),
    "links that are not hidden": ("[[Image]] [[fr]] [[wikt:a|b]] [[commons:c]]", "Image fr b commons:c"),
    "external links": ("[http://a.b c d] [//e f] [http://g] http://h.i", "c d f http://h.i"),
    "nested templates": ("a {{b|{{c|{{{d|e}}}}}|f={{g}}}} h", "a h"),
    "parentheses left empty": ("A ({{aa|x}}; {{bb|y}}), ({{b}}, 1950) f() (c, {{d}})", "A, (1950) f() (c)"),
    "wide parentheses": ("長（{{a}}）短（{{b}}、c；{{d}}）（e {{f}}）", "長短（c）（e）"),
    "brackets left empty": ("a ([http://b]) c ([[d|]]) e ([[File:f.png]])", "a c (d) e"),
    "spaces, separators": ("a {{b}}, {{c}}, d {{k}}. {{f}} g ({{h}}; {{i}}, j)", "a, d. g (j)"),
    "exponents": ("10<sup>-6</sup> m<sup>2</sup>, x<sup>''n''</sup>, 19<sup>th</sup>", "10⁻⁶ m², xn, 19th"),
    "references": ('a<ref>b [[c]]</ref><ref name="d" /><ref name=e>{{f}}</ref>.', "a."),
    "references before punctuation": (
        "a <ref>b</ref>. c  <ref name=d/><ref>[[e]]</ref>, f <ref>g <i>h</i></ref>; i (j <ref/>) 3 <ref/>.5 <ref/> k",
        "a. c, f; i (j) 3 .5 k",
    ),
    "words apart": ("a{{b}}c d[[File:e.png]]f 長{{g}}短 h<ref/>i", "a c d f 長短 hi"),
    "lists": (
        "[[1, 2], [3, 4]] [[[1], [2]], [[3], [4]]] [[a]], [[b]] [[c] d",
        "[[1, 2], [3, 4]] [[[1], [2]], [[3], [4]]] a, b c] d",
    ),
    "comments": ("a<!-- b\n\nc -->d", "ad"),
    "table": ('a\n{| class="b"\n! c\n|-\n| d || [[e]]\n{| f\n|}\n|}\ng', "a\ng"),
    "table in HTML": ("a<table><tr><td>b</td></tr></table>", "a"),
    "table without end": ("a\n{| class=b\n| c\n|-\nd", "a\nd"),
    "gallery, formula": ("a<gallery>\nb.jpg|c\n</gallery>d <math>x<y</math>, e", "a d, e"),
    "code": ("a <code>b[1]</code> <pre>c</pre> <syntaxhighlight lang='d'>e</syntaxhighlight>", "a b[1]"),
    "items": ("* a\n** b\n# c\n; d : e\n: f", "a\nb\nc\nd\ne\nf"),
    "headings": ("== a ==\nb\n=== ''c'' ===\nd\n==e==\nf", "a\nb\nc\nd\ne\nf"),
    "sections left empty": ("== a ==\n=== b ===\n== c ==\n=== d ===\ne\n== f ==\n{{g}}", "c\nd\ne"),
    "entities": ("a&nbsp;b &lt;ref&gt; &#91;&#x5b;c&#93;&#93; &amp;lt; &eacute;", "a b <ref> [[c]] &lt; é"),
    "nowiki": ("x <nowiki>[[a]] {{b}} ''c''</nowiki>", "x [[a]] {{b}} ''c''"),
    "block tags": ("a<br>b<div style='{{c}}'>d</div >e<p >f", "a\nb\nd\ne\nf"),
    "other tags": ("a<sub>2</sub><span style=\"x\">b</span><u>c</u>", "a2bc"),
    "markup without its other end": ("a [[b {{c <ref>d</div> ]] }}", "a b c d"),
    "switches": (
        "__NOTOC__ a __KEIN_INHALTSVERZEICHNIS__ __notoc__ b __БЕЗ_ОГЛ__ ＿＿目次＿＿__بی‌فهرست__ __NOCC___", "a b"
    ),
    "one switch": ("a __NOTOC__b", "a b"),
    "one wide switch": ("a ＿＿目次＿＿b", "a b"),
    "no switches": ("__init__ <code>__index__</code> __KEIN_INHALT__ a__b", "__init__ __index__ __KEIN_INHALT__ a__b"),
    "variants": ("-{zh-hans:计算机; zh-hant:電腦}-和-{文}--{H|zh:x}- -{1:2}-", "计算机和文 1:2"),
    "lines of punctuation": ("a\n* {{b}}\n----\n.\nc", "a\nc"),
    "line separators": ("a\u2028b\u200bc\ufeff\xadd\r\ne", "a bcd\ne"),
    "nothing": ("{{a}}\n[[Category:b]]", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case):
    wikitext, text = CASES[case]
    assert plain_text(wikitext) == text


SECTIONS = "a\n== See ''also'' ==\nb\n=== c ===\nd\n== e ==\nf\n=== References ===\ng\n=== h ===\ni"
FORMULAS = "a <math>\\frac{{b}}{c}</math> is <chem>H2O</chem>, <gallery>d</gallery> {{math|''e''}}<math/>."
PREFIXES = "[[Datei:a.stl2|b]] [[Thể_loại :c]] d"


@pytest.mark.parametrize(
    ("wikitext", "options", "text"),
    [
        (FORMULAS, {}, "a is, e."),
        (SECTIONS, {"left_out_sections": frozenset({"see also", "references"})}, "a\ne\nf\nh\ni"),
        (PREFIXES, {"hidden_prefixes": FILES_AND_CATEGORIES | {"datei", "thể loại"}}, "d"),
        (PREFIXES, {}, "b Thể loại :c d"),
    ],
)
def test_options(wikitext, options, text):
    assert plain_text(wikitext, **options) == text


def tree_text(wikicode):
    """The twin of the walk over tokens."""
    return "".join(map(node_text, wikicode.nodes))


def node_text(node):
    match node:
        case nodes.Text():
            return node.value
        case nodes.Comment():
            return ""
        case nodes.HTMLEntity():
            return node.normalize().translate(PROTECTED)
        case nodes.Heading():
            return f"\n{HEADING}{node.level}{tree_text(node.title)}\n"
        case nodes.ExternalLink():
            return str(node.url) if not node.brackets else tree_text(node.title) if node.title else REMOVED
        case nodes.Template():
            values = {str(parameter.name).strip(): tree_text(parameter.value) for parameter in node.params}
            named = {str(parameter.name).strip() for parameter in node.params if parameter.showkey}
            render = find_renderer(tree_text(node.name)) or (lambda values: "")
            return render({key: value.strip() if key in named else value for key, value in values.items()}) or REMOVED
        case nodes.Wikilink():
            target = tree_text(node.title).strip()
            prefix, colon, _ = target.partition(":")
            language = re.match(r"[a-z]{2,3}(-|$)", prefix) and prefix != "hdl"
            if colon and (language or prefix.lower() in {"file", "image", "category"}):
                return REMOVED
            label = "" if node.text is None else tree_text(node.text)
            return label or target.lstrip(":").replace("_", " ")
        case nodes.Tag():
            name = str(node.tag).strip().lower()
            if name in DROPPED_TAGS.split("|"):
                return "" if name == "ref" else REMOVED
            content = tree_text(node.contents) if node.contents is not None else ""
            content = content.translate(PROTECTED) if name == "nowiki" else content
            if name == "sup" and re.fullmatch(r"[+\-−–]?\d+", content.strip()):
                return content.strip().translate(RAISED)
            block = "\n" if name in BLOCK_TAGS.split("|") else ""
            return block + content + (block if not node.self_closing else "")
    return REMOVED


def articles(shared_data, folder):
    """The wikitext of a real dump's articles by title."""
    dump = next(path for path in (shared_data / folder).iterdir() if path.suffix in (".bz2", ".gz"))
    site = read_site(dump)
    pages = [parse_page(record, site) for record in read_pages([dump]) if record.data.endswith(b"</page>")]
    return {page.title: page.wikitext for page in pages if not page.is_redirect}


def test_walk_gives_what_the_tree_gives(shared_data):
    for title, wikitext in list(articles(shared_data, "wikipedia").items())[:60:3]:
        tree = mwparserfromhell.parse(wikitext, skip_style_tags=True)
        assert plain_text(wikitext) == clean_lines(tree_text(tree)), title

"""Which templates carry text, and how each is rendered.

The names are those of the English Wikipedia, many of which other wikis share. A template that is not here has no text.
"""

import re

from . import renderers
from .lines import PROTECTED
from .renderers import Parameters, Renderer, fixed, form, joined, sounds

_CHARACTERS = {
    "–": "ndash, en dash, –",
    " – ": "snd, spnd, sndash, spndash, spaced ndash, spaced en dash",
    "—": "mdash, mdashb, em dash, —",
    " — ": "smd, spmd, smdash, spmdash, spaced mdash, spaced em dash",
    " ": "nbsp, space, spaces, nnbsp, thinsp, thin space, hairsp, hair space, ensp, emsp, gap",
    "\n": "br, break, crlf, pb, paragraph break",
    "'": "', apostrophe",
    "'s": "'s",
    "\"'": "\"'",
    "'\"": "'\"",
    "=": "=",
    "…": "..., ellipsis",
    " · ": "·, middot, dot, interpunct",
    " • ": "•, bull, bullet",
    "×": "×, times",
    "−": "−, minus",
    "±": "±, plusminus",
    "°": "deg, degree",
    "†": "dagger",
    "‡": "double-dagger, double dagger",
    "π": "pi",
}
_SHIPS = "USS HMS HMAS HMCS HMNZS HNLMS INS KMS MS MV RMS RV SMS SS USAT USCGC USNS USRC"

_RENDERERS = {
    form("{1}"): """abbr, api, arabdin, big, bigmath, chem2, code, em, flag, flagcountry, flagu, hayeren, ill,
        interlanguage link, kbd, key, larger, lang-, math, mono, mvar, nihongo2, nobold, nobr, nobreak, noitalic,
        nowrap, overline, polytonic, proper name, samp, sc, script/, serif, small, smallcaps, smaller, strong, sub,
        tooltip, tt, u, underline, unicode, vanchor, var, visible anchor, wikt, xt""",
    form("{2}"): "color, colored text, font color, lang, langx, native name, resize, rtl-lang, wikt-lang",
    form("[{1}]"): "bracket, interp, ipa2, ipablink, ipa-",
    form("⟨{1}⟩"): "angbr, angle bracket",
    form("/{1}/"): "ipaslink",
    form("‘{1}’"): "gloss",
    form("lit. ‘{1}’"): "lit, literal translation, literally",
    form("fl. {1}"): "fl., floruit, flourished",
    form("√{1}"): "sqrt, radic",
    form("US${1}"): "us$, usd",
    form("A${1}"): "a$, aud",
    form("£{1}"): "£, gbp, pound sterling",
    form("€{1}"): "€, eur, euro",
    form("₹{1}"): "₹, inr",
    form("¥{1}"): "¥, jpy",
    joined(""): "chem, gaps, linktext, not a typo, notatypo, typo",
    joined(" ", most=3): "bibleverse, bibleref, bibleref2",
    joined("-"): "respell",
    joined("+"): "keypress, key press",
    sounds("//"): "ipac-en",
    sounds("[]"): "ipac-",
    renderers.as_of: "as of, asof",
    renderers.circa: "circa, c., ca.",
    renderers.converted: "convert, cvt, unité",
    renderers.date: "start date, end date, birth date, death date, start-date, date, dts",
    renderers.fraction: "frac, fraction, sfrac",
    renderers.height: "height",
    renderers.ipa: "ipa",
    renderers.last: "transl, transliteration, tlit",
    renderers.measured: "val",
    renderers.nihongo: "nihongo, nihongo3",
    renderers.power: "e",
    renderers.quotation: """block quote, blockquote, bquote, centered pull quote, cquote, poem quote, poemquote,
        quotation, quote, zitat""",
    renderers.raised: "sup",
    renderers.reign: "reign, r.",
    renderers.scripts: "ko-hhrm, korean, lang-ko, lang-zh, zh",
    renderers.ship: "ship",
    renderers.ship_class: "sclass, sclass2",
    renderers.sic: "sic",
} | {renderers.ship_of(prefix): prefix.lower() for prefix in _SHIPS.split()}  # fmt: skip


def _table() -> dict[str, Renderer]:
    # what is only a character is never markup: ''GQ''{{'s}} has no bold in it
    table = {
        name: fixed(text.translate(PROTECTED)) for text, names in _CHARACTERS.items() for name in names.split(", ")
    }
    return table | {name: renderer for renderer, names in _RENDERERS.items() for name in re.split(r",\s+", names)}


_TABLE = _table()
_FAMILY = re.compile(r"lang-|ipa-|ipac-|script/")  # the rest of the name says which language
_FORMATNUM = re.compile(r"formatnum:(.*)", re.S)
_BAR = re.compile(r"\|(?![^\[\]]*\]\])")  # not of a link
_NAMED = re.compile(r"([^\[\]=]*)=(.*)", re.S)


def find_renderer(name: str) -> Renderer | None:
    """The renderer of a template; None where it carries no text.

    Args:
        name: the template's name as the page writes it.
    """
    name = name.strip().replace("_", " ").lower()
    if name in _TABLE:
        return _TABLE[name]
    if family := _FAMILY.match(name):
        return _TABLE[family.group()]
    if number := _FORMATNUM.fullmatch(name):
        return fixed(renderers.grouped(number[1]))
    return None


def split_parameters(wikitext: str) -> Parameters:
    """The parameters of a template, from the text between its first ``|`` and its end; it has no template inside."""
    values: Parameters = {}
    number = 0
    for part in _BAR.split(wikitext):
        if named := _NAMED.fullmatch(part):
            values[named[1].strip()] = named[2].strip()
        else:
            number += 1
            values[str(number)] = part
    return values

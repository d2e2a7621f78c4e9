"""Which templates carry text, and how each is rendered.

The names are those of the English Wikipedia, many of which others share; a template of another name has no text. Names
that mean something else in other languages, such as ``date``, are left out.
"""

import functools
import re

from . import renderers
from .lines import PROTECTED
from .renderers import Renderer, fixed, form, joined, sounds

Table = dict[Renderer, str]

_CHARACTERS = {
    "–": "ndash, en dash, endash, –, --",
    " – ": "snd, snds, spnd, sndash, spndash, spaced ndash, spaced en dash",
    "—": "mdash, mdashb, em dash, emdash, —",
    " — ": "smd, spmd, smdash, spmdash, spaced mdash, spaced em dash",
    " ": "nbsp, space, spaces, nnbsp, thinsp, thin space, hairsp, hair space, ensp, emsp, gap",
    "\n": "br, break, crlf, pb, paragraph break",
    "'": "', apostrophe",
    "'s": "'s",
    "\"'": "\"'",
    "'\"": "'\", ' \"",
    '"': '-"',
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
    "ʻ": "okina",
    "⇌": "eqm",
}
_RENDERERS: Table = {
    form("{1}"): """abbr, api, ar, arabdin, big, bigmath, center, chem2, code, em, flag, flagcountry, flagu, hayeren,
        ill, interlanguage link, kbd, key, lang-, large, larger, math, mono, mvar, nastaliq, nihongo2, nobold, nobr,
        nobreak, noitalic, nowrap, nq, overline, polytonic, proper name, samp, sc, script/, serif, small, smallcaps,
        smaller, strong, sub, tooltip, tt, u, underline, unicode, vanchor, var, visible anchor, wikt, xt""",
    form("{2}"): """color, colored text, font color, lang, langx, legend, native name, resize, rtl-lang, script,
        wikt-lang""",
    form("[{1}]"): "bracket, interp, ipa-, ipa2, ipablink",
    form("⟨{1}⟩"): "angbr, angle bracket, grapheme, vr",
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
    form("Nasdaq: {1}"): "nasdaq",
    form("NYSE: {1}"): "nyse",
    form("LSE: {1}"): "lse",
    joined(""): "chem, gaps, linktext, mp, mpl, not a typo, notatypo, typo",
    joined(" ", most=3): "bibleverse, bibleref, bibleref2",
    joined("-"): "respell",
    joined("+"): "keypress, key press",
    joined(" · "): "hlist",
    sounds("//"): "ipac-en",
    sounds("[]"): "ipac-",
    renderers.as_of: "as of, asof",
    renderers.circa: "circa, c., ca.",
    renderers.converted: "convert, cvt",
    renderers.date: "start date, end date, birth date, death date, start-date",
    renderers.fraction: "frac, fraction, sfrac",
    renderers.last: "transl, transliteration, tlit",
    renderers.measured: "val",
    renderers.nihongo: "nihongo, nihongo3",
    renderers.power: "e",
    renderers.quotation: """block quote, blockquote, bquote, centered pull quote, cquote, poem quote, poemquote,
        quotation, quote""",
    renderers.raised: "smsup, sup",
}


def _flat(table: Table) -> dict[str, Renderer]:
    return {name: renderer for renderer, names in table.items() for name in re.split(r",\s+", names)}


# what is only a character is never markup: ''GQ''{{'s}} has no bold in it
_TABLE = _flat({fixed(text.translate(PROTECTED)): names for text, names in _CHARACTERS.items()}) | _flat(_RENDERERS)
_FAMILY = re.compile(r"lang-|ipa-|ipac-|script/")  # the rest of the name says which language
_FORMATNUM = re.compile(r"formatnum:(.*)", re.S)


@functools.lru_cache(maxsize=8192)
def find_renderer(name: str) -> Renderer | None:
    """The renderer of a template; None where it carries no text that is known here."""
    name = name.strip().replace("_", " ").lower()
    if name in _TABLE:
        return _TABLE[name]
    if family := _FAMILY.match(name):
        return _TABLE.get(family.group())
    number = _FORMATNUM.fullmatch(name)
    return fixed(renderers.grouped(number[1])) if number else None

"""Which templates carry text, and how each is rendered.

Names mean different things in different wikis. The tables of a language are those of its Wikipedia; what is in none of
a wiki's tables has no text.
"""

import functools
import re

from . import renderers
from .lines import PROTECTED
from .renderers import Parameters, Renderer, fixed, form, joined, sounds

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
_SHIPS = "USS HMS HMAS HMCS HMNZS HNLMS INS KMS MS MV RMS RV SMS SS USAT USCGC USNS USRC"

_EVERYWHERE: Table = {
    form("{1}"): """abbr, big, code, em, kbd, lang-, larger, mono, nobr, nobreak, nowrap, samp, sc, small, smallcaps,
        smaller, strong, sub, tt, underline, unicode, var""",
    form("{2}"): "color, font color, lang, langx, rtl-lang",
    form("[{1}]"): "ipa-",
    joined(""): "chem",
    sounds("//"): "ipac-en",
    sounds("[]"): "ipac-",
    renderers.fraction: "frac, fraction, sfrac",
    renderers.measured: "val",
    renderers.nihongo: "nihongo",
    renderers.quotation: "block quote, blockquote, bquote, cquote, quotation, quote",
    renderers.raised: "sup",
    renderers.scripts: "lang-ko, lang-zh, zh",
}
_ENGLISH: Table = {
    form("{1}"): """api, ar, arabdin, bigmath, center, chem2, flag, flagcountry, flagu, hayeren, ill, key, large, math,
        interlanguage link, mvar, nastaliq, nihongo2, nobold, noitalic, nq, overline, polytonic, proper name, script/,
        serif, tooltip, u, vanchor, visible anchor, wikt, xt""",
    form("{2}"): "colored text, legend, native name, resize, script, wikt-lang",
    form("[{1}]"): "bracket, interp, ipa2, ipablink",
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
    joined(""): "gaps, linktext, mp, mpl, not a typo, notatypo, typo",
    joined(" ", most=3): "bibleverse, bibleref, bibleref2",
    joined("-"): "respell",
    joined("+"): "keypress, key press",
    joined(" · "): "hlist",
    renderers.nuclide: "simplenuclide, simplenuclide2",
    renderers.numbered_nuclide: "nuclide, nuclide2",
    renderers.accidental: "music",
    renderers.as_of: "as of, asof",
    renderers.circa: "circa, c., ca.",
    renderers.converted: "convert, cvt",
    renderers.coordinates: "coor d, coor dm, coor dms, coord",
    renderers.date: "start date, end date, birth date, death date, start-date, date, dts",
    renderers.gauge: "railgauge, track gauge",
    renderers.height: "height",
    renderers.ipa: "ipa",
    renderers.last: "transl, transliteration, tlit",
    renderers.nihongo: "nihongo3",
    renderers.old_style: "oldstyledate",
    renderers.ordinal: "ordinal",
    renderers.patent: "us patent",
    renderers.power: "e",
    renderers.quotation: "centered pull quote, poem quote, poemquote",
    renderers.raised: "smsup",
    renderers.reign: "reign, r.",
    renderers.scripts: "ko-hhrm, korean, zh-cp, zh-sp, zh-st, zh-stp, zh-tp, zh-ts, zh-tsp",
    renderers.sequence: "oeis",
    renderers.ship: "ship",
    renderers.ship_class: "sclass, sclass2",
    renderers.sic: "sic",
} | {renderers.ship_of(prefix): prefix.lower() for prefix in _SHIPS.split()}
_FRENCH: Table = {
    form("{1}"): """api, api-fr, citation étrangère, grand, minuscules, nobr romains, petit, petites capitales, refnec,
        refsou, référence nécessaire, référence souhaitée, souligner""",
    form("{2}"): "langue",
    form("« {1} »"): "citation, guil",
    form("[{1}]"): "phon",
    form("p. {1}"): "p.",
    form("nº {1}"): "n°, numéro",
    joined(""): "fchim, formule chimique",
    fixed("Ier"): "ier",
    fixed("Ire"): "ire",
    fixed("er"): "er",
    fixed("re"): "re, ère",
    fixed("av. J.-C."): "av jc, av. j.-c., avjc",
    fixed("apr. J.-C."): "ap jc, apr. j.-c., apjc",
    renderers.century: "s, s-, siècle",
    renderers.french_date: "date, date-, date de naissance, date de décès",
    renderers.french_number: "nb, nombre, unité",
    renderers.french_raised: "e, exp, exposant",
    renderers.lowered: "ind, indice",
    renderers.nihongo: "japonais",
    renderers.quotation: "citation bloc, début citation",
    renderers.sic: "sic",
}
_GERMAN: Table = {
    form("{1}"): """ars, css, das, els, ens, ess, frs, hes, hus, its, jas, las, nls, nos, pls, pts, rus, svs, trs, uks,
        zhs""",
    form("„{1}“"): '"',
    form("[{1}]"): "ipa",
    fixed(" "): "0",
    renderers.fraction: "bruch",
    renderers.quotation: "zitat",
}
_SPANISH: Table = {
    form("{1}"): "afi, versalita",
    form("siglo {1}"): "siglo",
    fixed(" "): "esd",
    fixed("a. C."): "ac, adc, a. c.",
    fixed("d. C."): "dc, d. c.",
    joined(" ", most=2): "unidad",
    renderers.quotation: "cita",
}
_WIKIPEDIAS = {"en": _ENGLISH, "simple": _ENGLISH, "fr": _FRENCH, "de": _GERMAN, "es": _SPANISH}
_GROUPING = {"en": ",", "simple": ",", "fr": " ", "de": "."}  # between thousands

# of the names that are in no table of the English Wikipedia, those whose parameters no reader of the prose misses
_NO_PROSE_BEGINNINGS = """
    about ambox an anb anchor authority bar bartable citation cite clarify clear cn colbegin columns commons coor
    defaultsort details distinguish div dmoz dubious efn elementbox ent fact flag flagdeco flagicon for full
    further geobox harv harvard harvid harvnb harvp harvtxt hatnote infobox isbn issn link main multiple navbox
    note notetag oclc other page portal r redirect ref refbegin refimprove refn rf rp see seealso sfn sfnm sfnp
    sister sisterlinks speciesbox succession taxobox template unreferenced use vague when where which who
    wikiatlas wikibooks wikinews wikiquote wikisource wikisource1911enc wikispecies wiktionary wiktionarypar
"""
_NO_PROSE = frozenset(_NO_PROSE_BEGINNINGS.split())
_NO_PROSE_ENDINGS = ("box", "icon", "inline", "list", "needed", "source", "stub", "whom")


def _flat(table: Table) -> dict[str, Renderer]:
    return {name: renderer for renderer, names in table.items() for name in re.split(r",\s+", names)}


# what is only a character is never markup: ''GQ''{{'s}} has no bold in it
_COMMON = _flat({fixed(text.translate(PROTECTED)): names for text, names in _CHARACTERS.items()}) | _flat(_EVERYWHERE)
_TABLES = {wiki: _COMMON | _flat(table) for wiki, table in _WIKIPEDIAS.items()}
_FAMILY = re.compile(r"lang-|ipa-|ipac-|script/")  # the rest of the name says which language
_BEGINNING = re.compile(r"[a-z0-9]*")
_FORMATNUM = re.compile(r"formatnum:(.*)", re.S)
_BAR = re.compile(r"\|(?![^\[\]]*\]\])")  # not of a link
_NAMED = re.compile(r"([^\[\]=]*)=(.*)", re.S)


@functools.lru_cache(maxsize=8192)
def find_renderer(name: str, wiki: str) -> Renderer | None:
    """The renderer of a template; None where it carries no text that is known here."""
    name = normal(name)
    table = _TABLES.get(wiki, _COMMON)
    if name in table:
        return table[name]
    if family := _FAMILY.match(name):
        return table.get(family.group())
    if number := _FORMATNUM.fullmatch(name):
        return fixed(renderers.grouped(number[1], _GROUPING.get(wiki, "")))
    if wiki == "fr" and (century := renderers.CENTURY_NAME.fullmatch(name)):
        return renderers.named_century(century)
    return None


@functools.lru_cache(maxsize=8192)
def may_be_prose(name: str, wiki: str) -> bool:
    """Whether the parameters of a template that has no renderer may be prose: it is no reference, infobox or link."""
    if _WIKIPEDIAS.get(wiki) is not _ENGLISH:
        return True
    name = normal(name)
    return _BEGINNING.match(name)[0] not in _NO_PROSE and not name.endswith(_NO_PROSE_ENDINGS)


def normal(name: str) -> str:
    """A template's name as the tables have it."""
    return name.strip().replace("_", " ").lower()


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

"""How templates become text, a function for each kind; :mod:`preprocess.wikitext.templates` says which use it.

A renderer gets the texts of a template's parameters, those without a name under "1", "2", …, and returns what a reader
sees, or nothing.
"""

import re
import unicodedata
from collections.abc import Callable

from .lines import PROTECTED

Parameters = dict[str, str]
Renderer = Callable[[Parameters], str]

_BRACKETS = {ord(bracket): PROTECTED[ord(bracket)] for bracket in "[]"}  # they are no link, whatever is beside them
RAISED = str.maketrans("0123456789+-−–n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻ⁿ")
LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_FRACTIONS = {unicodedata.normalize("NFKC", character): character for character in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}  # 1⁄2: ½
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_NO_SOUND = re.compile(r"|lang|pron|local|also|icon|ipa|uk|us|audio.*|.*\.(?:ogg|wav|oga|mp3)", re.I)
_BETWEEN_NUMBERS = {
    "-": "–", "–": "–", "to": " to ", "and": " and ", "or": " or ", "by": " by ", "x": " × ", "×": " × ",
    "+/-": " ± ", "±": " ± ", "to(-)": " to ",
}  # fmt: skip
_UNITS = {
    "C": "°C", "F": "°F", "sqmi": "sq mi", "sqft": "sq ft", "cuft": "cu ft", "cuin": "cu in", "cumi": "cu mi",
    "kph": "km/h", "kmh": "km/h", "nmi": "nautical miles", "USgal": "US gallons", "impgal": "imperial gallons",
    "LT": "long tons", "ST": "short tons", "MT": "tonnes", "lbs": "lb", "long ton": "long tons",
}  # fmt: skip
_POWERS = {"3": "thousand", "6": "million", "9": "billion", "12": "trillion"}


def positional(values: Parameters) -> list[str]:
    """The parameters 1, 2, … up to the first that is missing."""
    texts: list[str] = []
    while (value := values.get(str(len(texts) + 1))) is not None:
        texts.append(value)
    return texts


def fixed(text: str) -> Renderer:
    """A constant text, whatever the parameters are."""
    return lambda values: text


def form(template: str) -> Renderer:
    """A text with ``{1}`` or another key in it, which the parameter of that name replaces."""
    before, key, after = re.fullmatch(r"(.*)\{(\w+)\}(.*)", template.translate(_BRACKETS)).groups()

    def render(values: Parameters) -> str:
        value = values.get(key, "").strip("\n")
        return f"{before}{value}{after}" if value.strip() else ""

    return render


def joined(separator: str, most: int | None = None) -> Renderer:
    """The parameters without a name, or the first so many of them: {{chem|H|2|O}} → H2O"""
    return lambda values: separator.join(value for value in map(str.strip, positional(values)[:most]) if value)


def last(values: Parameters) -> str:
    """{{transl|ar|ALA|Allāh}} → Allāh"""
    return ["", *positional(values)][-1]


def quotation(values: Parameters) -> str:
    """A paragraph of its own, without the author."""
    text = values.get("1") or values.get("text") or values.get("quote") or ""
    return f"\n{text.strip()}\n" if text.strip() else ""


def sounds(brackets: str) -> Renderer:
    """{{IPAc-en|lang|ˈ|h|iː|l|i|ə|s}} → /ˈhiːliəs/; words such as ``lang`` say how Wikipedia introduces the sounds."""

    def render(values: Parameters) -> str:
        parts = [value for value in map(str.strip, positional(values)) if not _NO_SOUND.fullmatch(value)]
        text = f"{brackets[0]}{''.join(parts).replace('_', ' ')}{brackets[1]}"
        return text.translate(_BRACKETS) if parts else ""

    return render


def nihongo(values: Parameters) -> str:
    """{{nihongo|health|元気|genki}} → health (元気, genki)"""
    texts = [value for value in (values.get(key, "").strip() for key in "1234") if value]
    return f"{texts[0]} ({', '.join(texts[1:])})" if len(texts) > 1 else "".join(texts)


def circa(values: Parameters) -> str:
    """{{circa|1200|1250}} → c. 1200 – c. 1250"""
    return " – ".join(f"c. {value}" for value in map(str.strip, positional(values)[:2]) if value) or "c. "


def as_of(values: Parameters) -> str:
    """{{as of|2011|3|lc=y}} → as of March 2011"""
    if values.get("alt"):
        return values["alt"]
    phrase = "since" if "since" in values else "as of"
    return f"{phrase if 'lc' in values else phrase.capitalize()} {date(values)}"


def date(values: Parameters) -> str:
    """{{start date|1994|7|26}} → 26 July 1994"""
    year, month, day = [*map(str.strip, positional(values)), "", "", ""][:3]
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = _MONTHS[int(month) - 1]
    return " ".join(part for part in (day.lstrip("0"), month, year) if part)


def fraction(values: Parameters) -> str:
    """{{frac|1|2}} → ½, {{frac|7}} → ¹⁄₇, {{frac|2|3|8}} → 2⅜"""
    parts = [value.strip() for value in positional(values)][:3]
    whole, over, under = {1: ["", "1", *parts], 2: ["", *parts], 3: parts}.get(len(parts), ["", "", ""])
    other = f"{over.translate(RAISED)}⁄{under.translate(LOWERED)}"
    return whole + _FRACTIONS.get(f"{over}⁄{under}", other)


def power(values: Parameters) -> str:
    """{{e|-7}} → ×10⁻⁷"""
    exponent = values.get("1", "").strip()
    return exponent and f"×10{exponent.translate(RAISED)}"


def raised(values: Parameters) -> str:
    """{{sup|2}} → ²"""
    return values.get("1", "").translate(RAISED)


def measured(values: Parameters) -> str:
    """{{val|1.008|0.002|e=-3|u=g}} → 1.008±0.002×10⁻³ g"""
    number, above, below = [*map(str.strip, positional(values)), "", "", ""][:3]
    number += f"+{above.lstrip('+')}−{below.lstrip('-−')}" if below else f"±{above}" if above else ""
    exponent = power({"1": values.get("e", "")})
    unit = values.get("u") or values.get("ul") or ""
    return f"{values.get('p', '')}{number}{exponent} {unit}".strip()


def converted(values: Parameters) -> str:
    """{{convert|1500|to|2000|km|mi}} → 1,500 to 2,000 km, {{convert|6|ft|2|in|m}} → 6 ft 2 in: as it was measured."""
    words = [word.strip() for word in positional(values)]
    text, place = "", 0
    while place + 1 < len(words) and re.match(r"[-+−]?[\d.]", words[place]):
        joint = words[place + 1]
        text += grouped(words[place]) + (_BETWEEN_NUMBERS.get(joint) or f" {_unit(joint)} ")
        place += 2
    return text.strip()


def grouped(number: str) -> str:
    """1500 → 1,500"""
    match = re.fullmatch(r"([1-9]\d{3,})(\.\d+)?", number.strip())
    return f"{int(match[1]):,}{match[2] or ''}" if match else number


def _unit(name: str) -> str:
    """km2 → km², e6acre → million acre"""
    match = re.fullmatch(r"e(3|6|9|12)(.+)", name)
    if match:
        return f"{_POWERS[match[1]]} {_unit(match[2])}"
    return _UNITS.get(name) or re.sub(r"(?<=[a-z])[23]$", lambda digit: digit[0].translate(RAISED), name)

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
_SCRIPTS = ("1", "c", "t", "s", "kanji", "hangul", "hanja", "p", "rr", "mr", "w", "j")
_BETWEEN_NUMBERS = {
    "-": "–", "–": "–", "to": " to ", "and": " and ", "or": " or ", "by": " by ", "x": " × ", "×": " × ",
    "+/-": " ± ", "±": " ± ", "to(-)": " to ",
}  # fmt: skip
_UNITS = {
    "C": "°C", "F": "°F", "sqmi": "sq mi", "sqft": "sq ft", "cuft": "cu ft", "cuin": "cu in", "cumi": "cu mi",
    "kph": "km/h", "kmh": "km/h", "nmi": "nautical miles", "USgal": "US gallons", "impgal": "imperial gallons",
    "LT": "long tons", "ST": "short tons", "MT": "tonnes", "lbs": "lb", "long ton": "long tons",
}  # fmt: skip
_ACCIDENTALS = {
    "flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮",
    "doubleflat": "𝄫", "double flat": "𝄫", "bb": "𝄫", "doublesharp": "𝄪", "double sharp": "𝄪", "##": "𝄪", "x": "𝄪",
}  # fmt: skip
CENTURY_NAME = re.compile(r"([ivxl]+)(er?) siècle( av\. j\.-c\.)?")  # of the French Wikipedia: {{XIXe siècle}}
_POWERS = {"3": "thousand", "6": "million", "9": "billion", "12": "trillion"}
_SYMBOLS = """
    H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr
    Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir
    Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl
    Mc Lv Ts Og Uue Ubn
"""
_NAMES = """
    hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon sodium magnesium aluminium
    silicon phosphorus sulfur chlorine argon potassium calcium scandium titanium vanadium chromium manganese iron
    cobalt nickel copper zinc gallium germanium arsenic selenium bromine krypton rubidium strontium yttrium
    zirconium niobium molybdenum technetium ruthenium rhodium palladium silver cadmium indium tin antimony
    tellurium iodine xenon caesium barium lanthanum cerium praseodymium neodymium promethium samarium europium
    gadolinium terbium dysprosium holmium erbium thulium ytterbium lutetium hafnium tantalum tungsten rhenium
    osmium iridium platinum gold mercury thallium lead bismuth polonium astatine radon francium radium actinium
    thorium protactinium uranium neptunium plutonium americium curium berkelium californium einsteinium fermium
    mendelevium nobelium lawrencium rutherfordium dubnium seaborgium bohrium hassium meitnerium darmstadtium
    roentgenium copernicium nihonium flerovium moscovium livermorium tennessine oganesson ununennium unbinilium
"""
_SYMBOL = ["", *_SYMBOLS.split()]  # by number
_NUMBERS = {name: number for names in (_SYMBOLS.lower(), _NAMES) for number, name in enumerate(names.split(), 1)}
_NUMBERS |= {"aluminum": 13, "sulphur": 16, "cesium": 55, "ununtrium": 113, "ununpentium": 115, "ununoctium": 118}


def positional(values: Parameters) -> list[str]:
    """The parameters 1, 2, … up to the first that is missing."""
    found: list[str] = []
    while (value := values.get(str(len(found) + 1))) is not None:
        found.append(value)
    return found


def fixed(text: str) -> Renderer:
    """The same text whatever the parameters are."""
    return lambda values: text


def form(template: str) -> Renderer:
    """A text with ``{1}`` or another key in it, which the parameter of that name replaces."""
    before, key, after = re.fullmatch(r"(.*)\{(\w+)\}(.*)", template.translate(_BRACKETS)).groups()

    def render(values: Parameters) -> str:
        value = values.get(key, "").strip("\n")
        return f"{before}{value}{after}" if value.strip() else ""

    return render


_IN_BRACKETS = form("[{2}]")


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


def ipa(values: Parameters) -> str:
    """{{IPA|/eɪ/}} → /eɪ/, {{IPA|de|baʊm}} → [baʊm]"""
    code, text = values.get("1", "").strip(), values.get("2", "").strip()
    return _IN_BRACKETS(values) if text and re.fullmatch(r"[a-z]{2,3}(?:-\w+)?", code) else code


def sounds(brackets: str) -> Renderer:
    """{{IPAc-en|lang|ˈ|h|iː|l|i|ə|s}} → /ˈhiːliəs/; words such as ``lang`` say how Wikipedia introduces the sounds."""

    def render(values: Parameters) -> str:
        found = [value for value in map(str.strip, positional(values)) if not _NO_SOUND.fullmatch(value)]
        text = f"{brackets[0]}{''.join(found).replace('_', ' ')}{brackets[1]}"
        return text.translate(_BRACKETS) if found else ""

    return render


def nihongo(values: Parameters) -> str:
    """{{nihongo|health|元気|genki}} → health (元気, genki)"""
    texts = [value for value in (values.get(key, "").strip() for key in "1234") if value]
    return f"{texts[0]} ({', '.join(texts[1:])})" if len(texts) > 1 else "".join(texts)


def scripts(values: Parameters) -> str:
    """{{zh|s=上海|p=Shànghǎi}} → 上海; Shànghǎi"""
    return "; ".join(values[key].strip() for key in _SCRIPTS if values.get(key, "").strip())


def circa(values: Parameters) -> str:
    """{{circa|1200|1250}} → c. 1200 – c. 1250"""
    return " – ".join(f"c. {value}" for value in map(str.strip, positional(values)[:2]) if value) or "c. "


def reign(values: Parameters) -> str:
    """{{reign|1066|1087}} → r. 1066–1087"""
    return f"r. {joined('–')(values)}"


def as_of(values: Parameters) -> str:
    """{{as of|2011|3|lc=y}} → as of March 2011"""
    if values.get("alt"):
        return values["alt"]
    first = "since" if "since" in values else "as of"
    return f"{first if 'lc' in values else first.capitalize()} {date(values)}"


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


def lowered(values: Parameters) -> str:
    """{{ind|2}} → ₂"""
    return values.get("1", "").translate(LOWERED)


def measured(values: Parameters) -> str:
    """{{val|1.008|0.002|e=-3|u=g}} → 1.008±0.002×10⁻³ g"""
    number, above, below = [*map(str.strip, positional(values)), "", "", ""][:3]
    number += f"+{above.lstrip('+')}−{below.lstrip('-−')}" if below else f"±{above}" if above else ""
    exponent = power({"1": values["e"]}) if values.get("e") else ""
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


def grouped(number: str, separator: str = ",") -> str:
    """1500 → 1,500"""
    match = re.fullmatch(r"([1-9]\d{3,})(\.\d+)?", number.strip())
    if not match or not separator:
        return number
    fraction = match[2] or ""
    return f"{int(match[1]):,}".replace(",", separator) + (fraction if separator == "," else fraction.replace(".", ","))


def _unit(name: str) -> str:
    """km2 → km², e6acre → million acre"""
    match = re.fullmatch(r"e(3|6|9|12)(.+)", name)
    if match:
        return f"{_POWERS[match[1]]} {_unit(match[2])}"
    return _UNITS.get(name) or re.sub(r"(?<=[a-z])[23]$", lambda digit: digit[0].translate(RAISED), name)


def ship(values: Parameters) -> str:
    """{{ship|HMS|Hood|51}} → HMS Hood (51); with a fourth parameter the number is not shown."""
    prefix, name, number, style = [*map(str.strip, positional(values)), "", "", "", ""][:4]
    shown = name if style == "6" else f"{prefix} {name}".strip()
    return f"{shown} ({number})" if number and not style else shown


def ship_of(prefix: str) -> Renderer:
    """{{USS|Iowa|BB-61}} is {{ship|USS|Iowa|BB-61}}."""
    return lambda values: ship(dict(zip("1234", [prefix, *positional(values)], strict=False)))


def ship_class(values: Parameters) -> str:
    """{{sclass|Nimitz|aircraft carrier}} → Nimitz-class aircraft carrier"""
    name, kind = [*map(str.strip, positional(values)), "", ""][:2]
    return f"{name}-class {kind}".strip()


def sic(values: Parameters) -> str:
    """{{sic|recieve}} → recieve [sic]"""
    text = joined("")(values)
    return text if "hide" in values else f"{text} [sic]".strip()


def height(values: Parameters) -> str:
    """{{height|ft=5|in=10}} → 5 ft 10 in"""
    return " ".join(f"{values[unit].strip()} {unit}" for unit in ("m", "cm", "ft", "in") if values.get(unit))


def ordinal(values: Parameters) -> str:
    """{{ordinal|21}} → 21st"""
    number = values.get("1", "").strip()
    if not number.isdecimal():
        return number
    teen = number[-2:-1] == "1"
    return number + ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th"))


def accidental(values: Parameters) -> str:
    """{{music|flat}} → ♭"""
    return _ACCIDENTALS.get(values.get("1", "").strip().lower(), "")


def coordinates(values: Parameters) -> str:
    """{{coord|13|19|N|169|9|W}} → 13°19′N 169°9′W; those beside the title are no part of the prose."""
    if values.get("display", "").strip() in ("title", "t"):
        return ""
    sides: list[str] = []
    numbers: list[str] = []
    for part in map(str.strip, positional(values)):
        if part in ("N", "S", "E", "W"):
            sides.append("".join(map(str.__add__, numbers, "°′″")) + part)
            numbers = []
        elif re.fullmatch(r"-?\d+(?:\.\d*)?", part):
            numbers.append(part)
    if not sides and len(numbers) == 2:  # whose signs tell the sides
        pairs = zip(numbers, ("NS", "EW"), strict=True)
        sides = [f"{number.lstrip('-')}°{names[number.startswith('-')]}" for number, names in pairs]
    return " ".join(sides) if len(sides) == 2 else ""


def gauge(values: Parameters) -> str:
    """{{RailGauge|1435mm}} → 1,435 mm"""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*mm", values.get("1", "").strip())
    return f"{grouped(match[1])} mm" if match else ""


def old_style(values: Parameters) -> str:
    """{{OldStyleDate|2 February|1905|20 January}} → 2 February [O.S. 20 January] 1905"""
    new, year, old = [*map(str.strip, positional(values)), "", "", ""][:3]
    return " ".join(part for part in (new, old and f"[O.S. {old}]".translate(_BRACKETS), year) if part)


def patent(values: Parameters) -> str:
    """{{US patent|1781541}} → U.S. patent 1,781,541"""
    number = values.get("1", "").strip()
    return number and f"U.S. patent {grouped(number)}"


def sequence(values: Parameters) -> str:
    """{{OEIS|id=A000602}} → (sequence A000602 in the OEIS)"""
    number = (values.get("1") or values.get("id") or "").strip()
    return number and f"(sequence {number} in the OEIS)"


def nuclide(values: Parameters) -> str:
    """{{SimpleNuclide|carbon|14}} → ¹⁴C"""
    element, mass = _element_and_mass(values)
    number = _NUMBERS.get(element.lower())
    return mass.translate(RAISED) + (_SYMBOL[number] if number else element)


def numbered_nuclide(values: Parameters) -> str:
    """{{Nuclide|carbon|14}} → ¹⁴₆C"""
    element, mass = _element_and_mass(values)
    number = _NUMBERS.get(element.lower())
    return f"{mass.translate(RAISED)}{str(number).translate(LOWERED)}{_SYMBOL[number]}" if number else nuclide(values)


def _element_and_mass(values: Parameters) -> list[str]:
    return [*map(str.strip, positional(values)), "", ""][:2]


def century(values: Parameters) -> str:
    """{{s|XIX|e}} → XIXe siècle; a minus sign in the name, {{s-|XIX|e}}, makes no difference to this."""
    number, ending = [*map(str.strip, positional(values)), "", ""][:2]
    return number and f"{number.upper()}{ending or ('er' if number.upper() == 'I' else 'e')} siècle"


def named_century(match: re.Match) -> Renderer:
    """The renderer of a name that CENTURY_NAME matches."""
    number, ending, before = match.groups()
    return fixed(f"{number.upper()}{ending} siècle{' av. J.-C.' if before else ''}")


def french_date(values: Parameters) -> str:
    """{{date|1|mars|1871|en science}} → 1er mars 1871"""
    day, *rest = [*(value.strip() for value in positional(values)), ""][:3]
    return " ".join(part for part in ("1er" if day in ("1", "01") else day.lstrip("0"), *rest) if part)


def french_number(values: Parameters) -> str:
    """{{unité|1500|km|2}} → 1 500 km²"""
    first, *units = [value.strip() for value in positional(values)] or [""]
    unit = "".join(part.translate(RAISED) if re.fullmatch(r"[-−]?\d+", part) else part for part in units)
    return f"{grouped(first, ' ')} {unit}".strip()


def french_raised(values: Parameters) -> str:
    """10{{e|12}} → 10¹², XIX{{e}} → XIXe, 2{{exp|x}} → 2x"""
    return values.get("1", "").strip().translate(RAISED) or "e"

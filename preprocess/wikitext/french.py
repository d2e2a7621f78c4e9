"""Templates of the French Wikipedia that have a grammar of their own; see :mod:`preprocess.wikitext.renderers`."""

import re

from .renderers import RAISED, Parameters, Renderer, fixed, grouped, positional

CENTURY_NAME = re.compile(r"([ivxl]+)(er?) siècle( av\. j\.-c\.)?")  # {{XIXe siècle}}


def century(values: Parameters) -> str:
    """{{s|XIX|e}} → XIXe siècle; a minus sign in the name, {{s-|XIX|e}}, makes no difference to this."""
    number, ending = [*map(str.strip, positional(values)), "", ""][:2]
    return number and f"{number.upper()}{ending or ('er' if number.upper() == 'I' else 'e')} siècle"


def named_century(match: re.Match) -> Renderer:
    """The renderer of a name that CENTURY_NAME matches."""
    number, ending, before = match.groups()
    return fixed(f"{number.upper()}{ending} siècle{' av. J.-C.' if before else ''}")


def date(values: Parameters) -> str:
    """{{date|1|mars|1871|en science}} → 1er mars 1871"""
    day, *rest = [*(value.strip() for value in positional(values)), ""][:3]
    return " ".join(part for part in ("1er" if day in ("1", "01") else day.lstrip("0"), *rest) if part)


def number(values: Parameters) -> str:
    """{{unité|1500|km|2}} → 1 500 km²"""
    first, *units = [value.strip() for value in positional(values)] or [""]
    unit = "".join(part.translate(RAISED) if re.fullmatch(r"[-−]?\d+", part) else part for part in units)
    return f"{grouped(first, ' ')} {unit}".strip()


def raised(values: Parameters) -> str:
    """10{{e|12}} → 10¹², XIX{{e}} → XIXe, 2{{exp|x}} → 2x"""
    return values.get("1", "").strip().translate(RAISED) or "e"

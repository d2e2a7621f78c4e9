"""The last step from wikitext to text: removes leftovers of broken markup and empty sections, line by line.

The earlier steps leave control characters as marks for this one. A dump cannot contain any, since it is XML.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

REMOVED = "\x03"  # in place of what was taken out of a line
HEADING = "\x04"  # at the beginning of a heading's line; the heading's level follows
_ORIGINALS = dict(
    zip("\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17", "<>[]{}|'_=", strict=True)
)  # in text that only looks like markup
PROTECTED = str.maketrans({original: character for character, original in _ORIGINALS.items()})
_PROTECTED_CHARACTER = re.compile(f"[{''.join(_ORIGINALS)}]")

DROPPED_TAGS = (  # these go with all that they contain
    "ce|chem|gallery|graph|hiero|imagemap|includeonly|indicator|inputbox|mapframe|maplink|math|pre|ref|references|score|"
    "section|source|style|syntaxhighlight|table|templatedata|templatestyles|timeline"
)
BLOCK_TAGS = "blockquote|br|center|dd|div|dl|dt|h[1-6]|hr|li|ol|p|poem|td|th|tr|ul"
_INLINE_TAGS = (
    "abbr|b|bdi|big|cite|code|del|em|font|i|ins|kbd|noinclude|nowiki|onlyinclude|q|s|samp|small|span|strike|strong|sub|"
    "sup|tt|u|var"
)
_ANY_CASE = frozenset(  # MediaWiki takes these switches in small letters too
    ["TOC", "NOTOC", "FORCETOC", "NOEDITSECTION", "NOGALLERY", "NOTITLECONVERT", "NOTC", "NOCONTENTCONVERT", "NOCC"]
)
_STRAY_BLOCK_TAG = re.compile(rf"</?(?:{BLOCK_TAGS})\b[^<>\n]*>", re.I)
_STRAY_TAG = re.compile(rf"</?(?:{DROPPED_TAGS}|{_INLINE_TAGS})\b[^<>\n]*>", re.I)
_STRAY_BRACKETS = re.compile(r"\[\[+|\]\]+|\{\{+|\}\}+|\[(?:https?:)?//\S*|<!--|-->")
_LISTS = re.compile(r"\[(?:\[[^\[\]\n]*\][^\[\]\n]*){2,}\]")  # [[1, 2], [3, 4]], which is no link
_SWITCH = re.compile(r"(?:__|＿＿)([^\W_](?:[\w\u200c]*[^\W＿])?_?)(?:__|＿＿)")
_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_QUOTES = re.compile(r"'{2,}")
_ODD_SPACE = re.compile(r"[\t\x85\xa0\u2000-\u200a\u2028\u2029\u202f]")
_SPACES = re.compile("  +")
_INVISIBLE = re.compile(r"[\x7f\xad\u200b\u200e\u200f\u2060\ufeff]")
# letters between which a space stands: not those of Thai, Lao, Myanmar, Khmer, Chinese and Japanese
_has_spaces = re.compile(
    r"[^\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
).match
_OPENING, _CLOSING, _SEPARATORS = ("(", "（"), (")", "）"), " ,;:/–-，、；："


def clean_lines(marked: str, left_out_sections: frozenset[str] = frozenset()) -> str:
    """Clean a text with marks."""
    text = "\n".join(_sections(_without_leftovers(marked), left_out_sections))
    return _PROTECTED_CHARACTER.sub(lambda match: _ORIGINALS[match.group()], text)


def _without_leftovers(raw: str) -> str:
    """Remove invisible characters, switches, markup whose other end is missing, and runs of spaces."""
    text = _STRAY_TAG.sub("", _STRAY_BLOCK_TAG.sub("\n", _INVISIBLE.sub("", raw)))
    text = _VARIANT.sub(_first_variant, text)
    if "__" in text or "＿＿" in text:  # in few pages; looking for either takes a regular expression long
        text = _SWITCH.sub(_without_switch, text)
    if "[[" in text:
        text = _LISTS.sub(lambda match: match[0].translate(PROTECTED), text)
    return _SPACES.sub(" ", _ODD_SPACE.sub(" ", _STRAY_BRACKETS.sub("", text)))


def _sections(raw: str, left_out: frozenset[str]) -> Iterator[str]:
    """Yield the clean lines; of the headings, those with text before the next one of their level or a higher one."""
    pending: list[tuple[int, str]] = []
    left_out_level = 7  # the level of the section that is being left out; real levels end at 6
    for line in raw.split("\n"):
        if line.startswith(HEADING):
            level, heading = int(line[1]), _clean_line(line[2:])
            if level <= left_out_level:
                left_out_level = level if heading.casefold() in left_out else 7
            pending = [entry for entry in pending if entry[0] < level]
            pending.append((level, heading))
        elif left_out_level < 7:
            continue
        elif text := _clean_line(line):
            yield from (heading for _, heading in pending if heading)
            pending = []
            yield text


def _clean_line(line: str) -> str:
    """Remove marks and leftovers of broken markup from a line; it is empty where no letter or digit is left."""
    line = line.strip()
    if not line or line.startswith(("|", "{|")):  # from a table or template whose other end is missing
        return ""
    if "''" in line:
        line = _without_quotes(line)
    if REMOVED in line:
        line = _close_gaps(line)
    return line.strip() if any(map(str.isalnum, line)) else ""


def _close_gaps(line: str) -> str:
    """Remove the spaces, separators and parentheses that only the removed parts needed; keep words apart."""
    left, *rest = line.split(REMOVED)
    for right in rest:
        if left[-1:].isalnum() and right[:1].isalnum():
            left += f" {right}" if _has_spaces(left[-1]) and _has_spaces(right) else right
            continue
        before, after = left.rstrip(_SEPARATORS), right.lstrip(_SEPARATORS)
        following = right.lstrip(" ")
        if before.endswith(_OPENING) and after.startswith(_CLOSING):
            left, right = before[:-1], after[1:]
        elif before.endswith(_OPENING) or after.startswith(_CLOSING):
            left, right = before, after
        elif following.startswith((",", ";")) and left.rstrip(" ").endswith((",", ";")):
            left, right = left.rstrip(" "), following[1:]
        if right.lstrip(" ").startswith((",", ".", ";", ":", "!", "?")):
            left, right = left.rstrip(" "), right.lstrip(" ")
        elif left.endswith(" "):
            right = right.lstrip(" ")
        left += right
    return left


def _without_quotes(line: str) -> str:
    """Remove bold and italic by MediaWiki's rules; with both open, one is an apostrophe, as in L'''Iliade''."""
    if "'''" not in line:
        return line.replace("''", "")
    runs = list(_QUOTES.finditer(line))
    lengths = [len(run.group()) for run in runs]
    bold = [number for number, length in enumerate(lengths) if length in (3, 4)]
    both = sum(length >= 5 for length in lengths)
    apostrophe = -1
    if bold and (len(bold) + both) % 2 and (lengths.count(2) + both) % 2:
        before = [line[max(0, runs[number].start() - 2) : runs[number].start()] for number in bold]
        glued = [number for number, text in zip(bold, before, strict=True) if text and not text[-1].isspace()]
        single = [number for number, text in zip(bold, before, strict=True) if re.fullmatch(r"\s?\S", text)]
        apostrophe = (single or glued or bold)[0]
    pieces, end = [], 0
    for number, (run, length) in enumerate(zip(runs, lengths, strict=True)):
        left = 1 if number == apostrophe or length == 4 else max(0, length - 5)
        pieces += [line[end : run.start()], "'" * left]
        end = run.end()
    return "".join([*pieces, line[end:]])


def _without_switch(match: re.Match) -> str:
    """Remove a behaviour switch; other words in double underscores stay."""
    return "" if match[1].upper() in _ANY_CASE or match[1] in _switches() else match[0]


@functools.cache
def _switches() -> frozenset[str]:
    """The names of switches whose case matters; see the file."""
    lines = Path(__file__).with_name("switches.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


def _first_variant(match: re.Match) -> str:
    """The first text of -{…}-, which gives a word in several scripts of a language."""
    flag, bar, rest = match.group(1).rpartition("|")
    if bar and not flag.strip().islower():
        return ""  # this is a rule for the rest of the page
    first = rest.split(";")[0]
    script, colon, text = first.partition(":")
    return text if colon and re.fullmatch(r"\s*[a-z-]+", script) else first

"""The text of a Request for Comments: pages, table of contents and boilerplate go, sections and paragraphs stay.

A line of the file belongs to a page of 58 lines with a footer and a header, or, since 2019, to no page. A section has a
heading at the margin, ``2.1.  Title`` or ``Appendix A.  Title``, whose numbers go on where those before end.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEAD_LINES = 30  # that may say which documents this one replaces
_FOOTER = re.compile(r"\[Page\s+[\divxlc]+\]$", re.IGNORECASE)
_HEADER = re.compile(r"(RFC|Internet[ -]Draft)[ :#-]*\d*\b.*\d{4}$", re.IGNORECASE)
_NUMBERED = re.compile(
    r" {0,3}(?P<word>appendix|section|chapter)?\s*(?P<number>\d+(\.\d+)*|[A-Z](\.\d+)*)(?P<dot>[.:)]*)(\s+[-—–]+)?"
    r"(\s+(?P<title>\S.*))?$",
    re.IGNORECASE,
)
_LEADER = re.compile(r"(\. ?){3,}|\s{2,}\d+$")  # before a page's number in a table of contents
_BULLET = re.compile(r" *([o*+•-]|\(?[0-9a-z]{1,2}[.)])\s{1,4}\S")
_ART = re.compile(r"[|]|\+-|-\+|--|==|::=|<-|->|[{}<>]$|;$|\S {3,}\S|_{3,}|\.{4,}")
_ENDS = (".", ":", ";", "?", "!")
_KNOWN = re.compile(  # headings without a number
    r"abstract|introduction|overview|background|terminology|conclusions?|summary|security considerations|"
    r"iana considerations|status of (this|the) memo|preface|foreword",
    re.IGNORECASE,
)
_BOILERPLATE = re.compile(
    r"status of (this|the) (memo|document|rfc)|(full )?copyright\b.*|(table of )?contents|list of (figures|tables)|"
    r"((non-?)?(normative|informative|informational|other) )?references?( .*)?|bibliography|"
    r"(.* )?(co-?)?(author|editor|chair|contact)s?['’]?s?['’]?( information| contact information)?( address(es)?)?|"
    r"address(es)? of .*|(contributing |contributors?['’]? ?)(authors?|address(es)?)?|acknowledge?ments?( .*)?|"
    r"intellectual property\b.*|disclaimer( .*)?|funding\b.*|index|ies[gq] note|ie[ts][fg] note|rfc editor note|"
    r"expiration.*|revision history|change ?log|document history",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Section:
    """A section without those inside it.

    Attributes:
        number: such as ``2.1`` or ``A.3``; "" where its heading has none.
        title: without the number.
        paragraphs: each on one line; lines of tables, code and drawings stay lines.
    """

    number: str
    title: str
    paragraphs: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The number and the title."""
        return f"{self.number}. {self.title}".lstrip(". ").rstrip()

    @property
    def text(self) -> str:
        """The heading and the paragraphs, a line each."""
        return "\n".join([self.heading, *self.paragraphs])


@dataclass(frozen=True)
class Memo:
    """A cleaned document.

    Attributes:
        abstract: on one line; "" where it has none.
        sections: in order, without boilerplate.
    """

    abstract: str
    sections: tuple[Section, ...]

    @property
    def body(self) -> str:
        """All sections."""
        return "\n".join(section.text for section in self.sections)


def decode(data: bytes) -> str:
    """The text of a file: UTF-8, or Latin-1 as some of the oldest."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def replaced_numbers(text: str) -> list[int]:
    """The numbers of the documents that this one replaces, as its first page names them."""
    head = "\n".join(text.splitlines()[:HEAD_LINES])
    fields = re.findall(r"^(?:Obsoletes|Replaces|Supersedes):((?:.*,\s*\n)*.*)$", head, re.MULTILINE | re.IGNORECASE)
    left = (re.split(r"\s{3,}", line.strip())[0] for found in fields for line in found.splitlines())
    return [int(number) for line in left for number in re.findall(r"\b\d{1,5}\b", line)]


def read_memo(text: str) -> Memo:
    """Clean a document and divide it into its sections."""
    abstract, sections = "", []
    for number, title, blocks in _divide(list(_blocks(_without_pages(text)))):
        paragraphs = tuple(paragraph for block in blocks for paragraph in _paragraphs(block))
        if title.lower() == "abstract" and not abstract and not sections:
            abstract = " ".join(paragraphs)
        elif title.lower() != "abstract":
            sections.append(Section(number, title, paragraphs))
    return Memo(abstract, tuple(sections))


def _without_pages(text: str) -> list[str]:
    """The lines without footers and headers; a paragraph goes on over the end of a page."""
    lines: list[str] = []
    is_between = False
    for line in text.expandtabs().replace("\f", "\n").splitlines():
        line = line.rstrip()
        if _FOOTER.search(line):
            while lines and not lines[-1]:
                lines.pop()
            is_between = True
        elif not is_between:
            lines.append(line)
        elif line and not _HEADER.match(line):
            is_between = False
            if lines and not _goes_on(lines[-1], line):
                lines.append("")
            lines.append(line)
    return lines


def _goes_on(last: str, line: str) -> bool:
    return _indent(line) == _indent(last) > 0 and not last.endswith(_ENDS)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """The runs of lines between blank ones."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []


def _margin(blocks: Sequence[list[str]]) -> int:
    """The most blanks before a numbered heading: none where a document has headings without any."""
    headings = (_NUMBERED.match(block[0]) for block in blocks if not _LEADER.search(block[0]))
    return 3 * (sum(bool(match and match["title"] and not _indent(match[0])) for match in headings) < 3)


def _divide(blocks: Sequence[list[str]]) -> list[tuple[str, str, list[list[str]]]]:
    """Number, title and blocks of each section that is no boilerplate."""
    margin = _margin(blocks)
    sections: list[tuple[str, str, list[list[str]]]] = []
    dropped: str | None = ""  # the number of the boilerplate that is being read; None in what is kept
    last: tuple[int, ...] = ()
    is_begun = False  # whether a numbered section has text; before that, numbers are those of a table of contents
    for block in blocks:
        heading = _heading(block, last, margin, is_begun)
        if heading is None:
            if dropped is None:
                sections[-1][2].append(block)
                is_begun = is_begun or bool(sections[-1][0])
            continue
        number, title, rest = heading
        path = _path(number)
        if path == (1,):
            sections = [section for section in sections if not section[0]]
        last = path or last
        is_inside = bool(dropped) and number.startswith(f"{dropped}.")
        if is_inside or _BOILERPLATE.fullmatch(title):
            dropped = dropped if is_inside else number
            continue
        dropped = None
        sections.append((number, title, [rest] if rest else []))
    return sections


def _heading(block: list[str], last: tuple[int, ...], margin: int, is_begun: bool) -> tuple[str, str, list[str]] | None:
    """Number and title of the heading that a block begins with, and the block's other lines; None without one."""
    first = block[0]
    if 3 < _indent(first) < 20:
        return None
    name = " ".join(first.split()).rstrip(".:")
    is_known = _KNOWN.fullmatch(name) or _BOILERPLATE.fullmatch(name)
    if is_known and (_indent(first) <= 3 or (_indent(first) >= 20 and len(block) == 1)):
        is_apart = len(block) == 1 or _indent(block[1]) > _indent(first) or _BOILERPLATE.fullmatch(name)
        return ("", name, block[1:]) if is_apart else None
    match = _NUMBERED.match(first)
    if not match or not match["title"] or _LEADER.search(first) or _indent(first) > margin:
        return None
    number, title, size = plain_number(match["number"]), match["title"], 1
    while size < len(block) and _indent(block[size]) == match.start("title"):  # a title of several lines
        title += " " + block[size].strip()
        size += 1
    rest = block[size:]
    is_apart = not rest or (_indent(first) == 0 and all(_indent(line) > 0 for line in rest))
    is_letter = number.isalpha()
    if not is_apart or size > 3 or (is_letter and not (match["word"] or (match["dot"] and _indent(first) == 0))):
        return None
    if (
        not _follows(_path(number), last, is_begun)
        or title.endswith((",", ";"))
        or (title.endswith(".") and len(title) > 50)
    ):
        return None
    return number, " ".join(title.split()).rstrip(":"), rest


def plain_number(number: str) -> str:
    """A section's number as it is compared: ``3.0`` is 3."""
    return re.sub(r"^(\d+)\.0$", r"\1", number.upper())


def _path(number: str) -> tuple[int, ...]:
    """A section's number as integers; letters come after all numbers."""
    parts = number.split(".") if number else []
    return tuple(int(part) if part.isdigit() else 1000 + ord(part) for part in parts)


def _follows(path: tuple[int, ...], last: tuple[int, ...], is_begun: bool) -> bool:
    """Whether a heading may have this number after the one before; one number may be missing.

    ``is_begun`` says that a numbered section has text already, and numbers do not begin again.
    """
    if not last:
        return path in ((0,), (1,), (2,), (1000 + ord("A"),))
    if path == (1,):
        return not is_begun
    if path == (1000 + ord("A"),):
        return last < path
    if path[:-1] == last:
        return path[-1] <= 2
    size = len(path)
    return size <= len(last) and path[:-1] == last[: size - 1] and 0 < path[-1] - last[size - 1] <= 2


def _paragraphs(block: Sequence[str]) -> Iterator[str]:
    """The paragraphs and items of prose, each joined to a line, or else the lines of a drawing that have words."""
    if not _is_prose(block):
        for line in block:
            if any(char.isalnum() for char in line):
                yield " ".join(line.split())
        return
    joined = ""
    for line in block:
        if joined and _BULLET.match(line) and len(line) > 8:
            yield joined
            joined = ""
        words = " ".join(line.split())
        joined = (
            words if not joined else joined + ("" if joined[-1] in "-/" and joined[-2:-1].isalnum() else " ") + words
        )
    yield joined


def _is_prose(block: Sequence[str]) -> bool:
    """Whether lines are those of a paragraph or of a list: they are full, and none looks drawn."""
    if len(block) == 1:
        return True
    drawn = 0
    for line in block:
        bullet = _BULLET.match(line)
        drawn += bool(_ART.search(line[bullet.end() :] if bullet else line.strip()))
    full = sum(len(line.strip()) for line in block[:-1]) / (len(block) - 1)
    return 4 * drawn <= len(block) and full >= 36

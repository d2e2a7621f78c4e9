"""Pages: their text and numbers as a parser reads them, and as a browser shows them (skipped where there is none)."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from fairseq_poolingformer.show.looks import CROSS, ONE
from fairseq_poolingformer.show.page import Page, page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")


class Elements(HTMLParser):
    """Collects (tag, attributes, text) of every element."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), ""])
        if tag not in ("meta", "br"):
            self.open.append(self.found[-1])

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def all(self, **wanted):
        return [
            (attributes, text)
            for _, attributes, text in self.found
            if all(value in (attributes.get(name) or "").split() for name, value in wanted.items())
        ]


def test_the_text_is_there_and_nothing_of_it_is_markup(made_look):
    elements = Elements(page(made_look))
    passages = elements.all(**{"class": "passage"})
    assert [text for _, text in passages] == [made_look.document[number] for number in range(4)]
    assert [tag for tag, _, _ in elements.found].count("script") == 2
    assert "b" not in [tag for tag, _, _ in elements.found]
    assert ["unread" in attributes["class"] for attributes, _ in passages] == [False, False, False, True]
    assert len(elements.all(**{"class": "cut"})) == 1
    assert [tag for tag, _, _ in elements.found].count("br") == 3  # one line feed, and three, of which two count


def test_the_page_loads_nothing(made_look):
    text = page(made_look)
    for _, attributes, _ in Elements(text).found:
        assert not {"src", "href", "srcset", "style", "onclick"} & set(attributes)
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text


def test_the_numbers_are_the_weights(made_look):
    data = json.loads(Elements(page(made_look)).all(id="data")[0][1])
    assert data["views"][CROSS]["weights"][1] == [[0, 250, 1, 700, 2, 50], [2, 1000]]
    assert data["views"][ONE]["layers"] == [0, 1]
    assert data["views"][ONE]["weights"][0][0] == [0, 750, 1, 250]  # the mean of the layers comes first
    assert data["views"][ONE]["weights"][2][3] == []
    assert data["pieces"]["rows"] == [0, 0, 1, 1]
    assert data["pieces"]["texts"] == ["First", "$1.", "Second", "$2."]


def test_words_count_in_utf_16(made_look):
    (word,) = json.loads(Elements(page(made_look)).all(id="data")[0][1])["words"]
    units = made_look.document[0].encode("utf-16-le")
    for number, expected in ((2, "<b>bold</b>"), (3, "😀")):
        passage, start, end = word["tokens"][str(number)]
        assert (passage, units[2 * start : 2 * end].decode("utf-16-le")) == (0, expected)
    assert word["levels"][ONE][1] == [2, 500, 3, 500]
    assert (word["text"], word["passage"]) == ("Three", 2)


def test_a_notebook_shows_the_page_in_a_frame(made_look):
    shown = page(made_look)
    assert isinstance(shown, Page)
    (frame,) = [attributes for tag, attributes, _ in Elements(shown._repr_html_()).found if tag == "iframe"]
    assert frame["srcdoc"] == shown


def shown_by_browser(path, text: str, address: str = "") -> str:
    """The page as it is after its script has run."""
    (path / "page.html").write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path}/profile", "--dump-dom"]
    command = [BROWSER, *options, (path / "page.html").as_uri() + address]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return result.stdout.replace("&nbsp;", " ")


def assert_shows(text: str, view: str, shares: list[str | None]) -> Elements:
    elements = Elements(text)
    (selected,) = [attributes for attributes, _ in elements.all(role="tab") if attributes["aria-selected"] == "true"]
    assert selected["data-view"] == view
    assert [attributes.get("data-share") for attributes, _ in elements.all(**{"class": "passage"})] == shares
    return elements


@needs_browser
@pytest.mark.parametrize(
    ("address", "view", "shares", "extra"),
    [
        ("", "cross", ["25 %", "70 %", "5.0 %", None], "looks at 3 of 4 sentences"),
        ("#view=cross&row=1&piece=2", "cross", [None, None, "100 %", None], "This token"),
        ("#view=one&row=0&layer=2", "one", ["50 %", "50 %", None, None], "Sentence 1"),
        ("#view=two&row=3", "two", [None] * 4, "was not read by the model"),
        ("#view=one&word=0", "one", [None] * 4, '<mark title="75 %" style="--w: 1.000;">😀</mark>'),
    ],
)
def test_a_browser_draws_the_shares(made_look, tmp_path, address, view, shares, extra):
    text = shown_by_browser(tmp_path, page(made_look), address)
    elements = assert_shows(text, view, shares)
    assert [text for _, text in elements.all(**{"class": "passage"})] == [made_look.document[row] for row in range(4)]
    assert extra in text

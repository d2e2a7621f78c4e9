"""Pages: their text and numbers as a parser reads them, and as a browser shows them (skipped where there is none)."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from fairseq_poolingformer.cli import show
from fairseq_poolingformer.huggingface import PoolingformerRobertaForMaskedLM
from fairseq_poolingformer.show.looks import CROSS, ONE, Passages
from fairseq_poolingformer.show.page import Page, page
from tests.models import tiny_huggingface

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium")


class Elements(HTMLParser):
    """Collects (tag, attributes, text) of every element."""

    def __init__(self, text):
        super().__init__()
        self.closed, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.closed.append([tag, dict(attrs), ""])
        if tag not in ("meta", "br"):
            self.open.append(self.closed[-1])

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def all(self, **wanted):
        return [
            (attributes, text)
            for _, attributes, text in self.closed
            if all(value in (attributes.get(name) or "").split() for name, value in wanted.items())
        ]


def test_the_text_is_there_and_nothing_of_it_is_markup(made_look):
    elements = Elements(page(made_look))
    passages = elements.all(**{"class": "passage"})
    assert [text for _, text in passages] == [made_look.document[number] for number in range(4)]
    assert [tag for tag, _, _ in elements.closed].count("script") == 2
    assert "b" not in [tag for tag, _, _ in elements.closed]
    assert ["unread" in attributes["class"] for attributes, _ in passages] == [False, False, False, True]
    assert len(elements.all(**{"class": "cut"})) == 1
    assert [tag for tag, _, _ in elements.closed].count("br") == 3  # one line feed, and three, of which two count


def test_the_page_loads_nothing(made_look):
    text = page(made_look)
    for _, attributes, _ in Elements(text).closed:
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
    (frame,) = [attributes for tag, attributes, _ in Elements(shown._repr_html_()).closed if tag == "iframe"]
    assert frame["srcdoc"] == shown


def shown_by_browser(path, text: str, address: str = "") -> str:
    """The page as it is after its script has run."""
    (path / "page.html").write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path}/profile", "--dump-dom"]
    command = [BROWSER, *options, (path / "page.html").as_uri() + address]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return result.stdout.replace("&nbsp;", " ")


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
    elements = Elements(text)
    (selected,) = [attributes for attributes, _ in elements.all(role="tab") if attributes["aria-selected"] == "true"]
    assert selected["data-view"] == view
    assert [attributes.get("data-share") for attributes, _ in elements.all(**{"class": "passage"})] == shares
    assert [text for _, text in elements.all(**{"class": "passage"})] == [made_look.document[row] for row in range(4)]
    assert extra in text


# Clicks and hovers where elements are drawn: a real mouse's path to them.
MOUSE = """<script>{
const under = (element) => {
  element.scrollIntoView({ block: "center" });
  const { left, top, height } = element.getClientRects()[0];
  return document.elementFromPoint(left + 2, top + height / 2);
};
const click = (element) => under(element).dispatchEvent(new MouseEvent("click", { bubbles: true }));
const pick = (id, value) => {
  document.getElementById(id).value = value;
  document.getElementById(id).dispatchEvent(new Event("change"));
};
click(document.querySelector("[data-view=two]"));
pick("layer", 2);
const clicked = passages.map((passage) => (click(passage), passages.map((other) => other.dataset.share ?? "0 %")));
pick("word", 0);
const hovered = [...document.querySelectorAll("mark")].map((mark) => [mark.textContent, under(mark).title]);
document.body.insertAdjacentHTML("beforeend", "<pre id=mouse></pre>");
document.getElementById("mouse").textContent = JSON.stringify({ clicked, hovered });
}</script>"""


@needs_browser
@pytest.mark.full
@torch.no_grad()
def test_the_numbers_under_the_mouse_are_the_weights(tmp_path):
    text, word = "The Hunba school. It lies in Konwood. It was by Göhl.", "Konwood"  # ö is two tokens
    short = tiny_huggingface.folder(tmp_path / "short", "roberta", initializer_range=0.4)
    settings = {"max_position_embeddings": 102, "window_size": 4, "pooled_layers": "1-2", "pooled_window_size": 16}
    PoolingformerRobertaForMaskedLM.from_short(short, **settings).save_pretrained(tmp_path / "long")
    (tmp_path / "note.txt").write_text(text, encoding="utf-8")
    paths = map(str, (tmp_path / "long", tmp_path / "note.txt", "--output", tmp_path / "note.html"))
    assert show.main([*paths, "--word", word, "--device", "cpu"]) == 0
    shown = shown_by_browser(tmp_path, (tmp_path / "note.html").read_text(encoding="utf-8") + MOUSE)
    mouse = json.loads(Elements(shown).all(id="mouse")[0][1])

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "long")
    inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = inputs.pop("offset_mapping")[0, 1:-1].numpy()
    model = PoolingformerRobertaForMaskedLM.from_pretrained(tmp_path / "long").eval()
    level_two = model(**inputs, output_attentions=True).attentions[2].level_two  # the second of its two layers
    rows = [level_two.over_tokens(level_two.of_query(token))[0].mean(0)[1:-1] for token in range(1, len(offsets) + 1)]
    weights = torch.stack(rows).numpy()
    owner = Passages.sentences(text).of_characters(offsets[:, 0])
    expected = [[weights[owner == row][:, owner == column].sum(1).mean() for column in range(3)] for row in range(3)]
    percents = [[float(share.split()[0]) for share in row] for row in mouse["clicked"]]
    percents_expected = [[100 * share if share >= 0.0095 else 0 for share in row] for row in expected]  # 1 % is written
    np.testing.assert_allclose(percents, percents_expected, atol=0.51)
    assert np.std(percents) > 5

    start = text.index(word)
    inside = (offsets[:, 0] < start + len(word)) & (offsets[:, 1] > start)
    of_word = weights[inside].mean(0)
    seen = (offsets[:, 1] > offsets[:, 0]) & ((of_word >= 0.0005) | inside)  # a space is no mark
    seen[1:] &= offsets[1:, 0] >= offsets[:-1, 1]  # nor the second token of a character
    hovered = [float(share.split()[0]) for _, share in mouse["hovered"]]
    assert "".join(piece for piece, _ in mouse["hovered"]) == "".join(text[slice(*span)] for span in offsets[seen])
    np.testing.assert_allclose(hovered, 100 * of_word[seen], atol=0.51)

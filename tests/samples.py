"""Tiny corpora in the formats of the releases, made here or from the tests' files.

python -m tests.samples FOLDER      # raw/CORPUS as run_scripts wants it, and a vocabulary in gpt2_bpe
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sys
import zipfile
from pathlib import Path

from tests.tasks.released_files import write_hotpotqa, write_triviaqa
from tests.text.tiny_gpt2 import write_vocabulary

FIXTURES = Path(__file__).parent / "preprocess" / "fixtures"
WORDS = ("the", "theory", "of", "long", "documents", "attends", "to", "another", "naïve", "café")
TEXTS = ["the theory of attention", "another document", "what it attends to é 長", "!!!"]
ARTICLE = '<article id="{0:07d}" at="2017" title="T &amp; {0}">lead\n<p>{1} <a href="x">link</a> end</p>\n'


def write_summaries(folder: Path) -> Path:
    """The arXiv/PubMed release: 16 + 4 + 5 documents, each with its first sentence as its abstract."""
    generator = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 16), ("val", 4), ("test", 5)):
        with open(folder / f"{split}.txt", "w", encoding="utf-8") as file:
            for number in range(count):
                sentences = [" ".join(generator.choices(WORDS, k=12)) + " ." for _ in range(3)]
                record = {"article_id": f"{split}{number}", "article_text": sentences, "section_names": ["intro"]}
                record |= {"sections": [sentences], "abstract_text": [f"<S> {sentences[0]} </S>"]}
                file.write(json.dumps(record) + "\n")
    return folder


def write_dump(path: Path, pages: int) -> None:
    """A MediaWiki dump of some pages of about a hundred words."""
    generator = random.Random(0)
    words = [*WORDS[:5], "''attends''", "to", "[[another]]", *WORDS[8:], "\n"]
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">'
    head += '<siteinfo><namespaces><namespace key="0" case="first-letter" /></namespaces></siteinfo>'
    page = "<page><title>Page {0}</title><ns>0</ns><id>{0}</id><revision><id>{0}</id><text>{1}</text></revision></page>"
    texts = (" ".join(generator.choices(words, k=100)) for _ in range(pages))
    path.write_text(head + "".join(page.format(i, text) for i, text in enumerate(texts, 1)) + "</mediawiki>")


def write_imdb(folder: Path, count: int) -> dict[str, tuple[str, str]]:
    """IMDB's folder, ``count`` reviews of each label and split; text and label by id."""
    expected = {}
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                text = f"{TEXTS[number % 4]} {number}"
                (folder / split / label / f"{number}_7.txt").write_text(text, encoding="utf-8")
                expected[f"{split}/{label}/{number}_7"] = text, label
    return expected


def write_hyperpartisan(folder: Path, count: int, names=("articles", "truth")) -> dict[str, tuple[str, str]]:
    """Hyperpartisan's articles and ground truth; the body and the label of each article."""
    texts = [f"{TEXTS[number % 4]} {number % 12}" for number in range(count)]
    articles = [ARTICLE.format(number, text) + "<p>more!!!</p> tail</article>" for number, text in enumerate(texts)]
    labels = [f'<article id="{n:07d}" hyperpartisan="{str(n % 3 == 0).lower()}" url="u"/>' for n in range(count)]
    folder.mkdir()
    for name, lines in zip(names, (articles, labels), strict=True):
        text = "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<articles>", *lines, "</articles>\n"])
        (folder / f"{name}.xml").write_text(text, encoding="utf-8")
    return {
        f"{n:07d}": (f"lead {texts[n].replace('!!!', '!')} link end more! tail", str(n % 3 == 0).lower())
        for n in range(count)
    }


def write_wikihop(folder: Path) -> None:
    """Four questions, the same in both splits."""
    supports = ["the theory of attention", "another document that attends", "what is it"]
    questions = [
        {"id": f"WH_{k}", "query": q, "candidates": ["theory", "document", "it"], "supports": supports, "answer": a}
        for k, (q, a) in enumerate([("the of", "theory"), ("that", "it"), ("is", "it"), ("attends", "document")])
    ]
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.json").write_text(json.dumps(questions))


def write_all(folder: Path) -> None:
    """All corpora of ``run_scripts``, and the files of GPT-2's vocabulary."""
    raw = folder / "raw"
    write_vocabulary(folder / "gpt2_bpe", madeup=3)
    for corpus in ("arxiv", "pubmed"):
        write_summaries(raw / corpus)
    for corpus, file, split in (
        ("nq", "train/nq-train-00.jsonl.gz", "nq_train"),
        ("nq", "dev/nq-dev-00.jsonl.gz", "nq_valid"),
        ("tydiqa", "tydiqa-v1.0-train.jsonl.gz", "tydiqa_train"),
        ("tydiqa", "tydiqa-v1.0-dev.jsonl.gz", "tydiqa_valid"),
    ):
        path = raw / corpus / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress((FIXTURES / "qa" / f"{split}.jsonl").read_bytes()))
    write_imdb(raw / "imdb" / "aclImdb", 40)
    part = "training-byarticle-20181122"
    write_hyperpartisan(raw / "hyperpartisan", 40, (f"articles-{part}", f"ground-truth-{part}"))
    for corpus in ("wikihop", "medhop"):
        write_wikihop(raw / corpus)
    questions = write_triviaqa(raw / "triviaqa")
    for split in ("train", "dev"):
        shutil.copy(questions, questions.with_name(f"wikipedia-{split}.json"))
    (raw / "hotpotqa").mkdir()
    for name in ("hotpot_train_v1.1", "hotpot_dev_distractor_v1"):
        write_hotpotqa(raw / "hotpotqa" / f"{name}.json")
    for folder_name, split in (("train", "train"), ("development", "valid")):
        (raw / "ontonotes" / folder_name).mkdir(parents=True)
        shutil.copy(FIXTURES / "ontonotes" / f"{split}.v4_gold_conll", raw / "ontonotes" / folder_name)
    (raw / "wiki").mkdir()
    write_dump(raw / "wiki" / "tiny-pages-articles.xml", 20)
    text = " ".join(random.Random(0).choices(WORDS[:8], k=700))
    for corpus in ("enwik8", "text8"):
        with zipfile.ZipFile(raw / f"{corpus}.zip", "w") as archive:
            archive.writestr(corpus, text)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))

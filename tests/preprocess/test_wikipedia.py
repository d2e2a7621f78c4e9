import bz2
import gzip
import io
import json
import re
import time
from pathlib import Path

import pytest
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_poolingformer
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import wikipedia
from preprocess.pipeline import parts
from preprocess.pipeline.splits import place_of
from tests.preprocess import conftest
from tests.preprocess.conftest import contents, page, rejects

SMALL = Path(__file__).parent / "fixtures" / "wikipedia" / "small.xml"
ISLAND = [
    *("Îlot & marée", "L'îlot (ilo) est une petite terre marine , dit-on.", "Géographie", "Marée", "haute : 5 m"),
    *("basse", "et lente", "voir les horaires ou", "Liens", "[[brut]] et 3 < 5, 水は流れる。 Catégorie:Mer"),
]
SLOW = "{{a|" * 20_000
LARGE = "*\n" * 1_000_000


def convert(output, *args, valid_share=0, max_reject_fraction=0.01, workers=1):
    flags = ["--valid-share", valid_share, "--max-reject-fraction", max_reject_fraction, "--workers", workers]
    return conftest.convert(wikipedia, output, *flags, "--write-text", "--input", *args)


def write_dump(path, *pages, namespaces=""):
    head = f"<mediawiki><siteinfo><namespaces>{namespaces}</namespaces></siteinfo>\n"
    path.write_text(head + "".join(pages) + "</mediawiki>\n", encoding="utf-8")
    return path


def test_a_dump_by_hand(tmp_path):
    assert convert(tmp_path, SMALL, "--min-chars", "40") == 0
    titles = (tmp_path / "train.id.txt").read_text(encoding="utf-8").splitlines()
    assert titles == ["Îlot & marée", "Star Trek: la série", "Deux versions"]
    texts = (tmp_path / "train.text.txt").read_text(encoding="utf-8").split("\n\n")
    assert texts == [
        "\n".join(ISLAND),
        "Star Trek: la série\nUne série de 1966, au titre à deux points, suivie d'autres.",
        "Deux versions\nLa version récente, que tout le monde peut bien lire.",
        "",
    ]
    corpus = json.loads((tmp_path / "corpus.json").read_text())
    assert corpus["skipped"] == {"train": {"fewer than 40 characters": 1, "no article": 1, "redirect": 1}}
    assert rejects(tmp_path) == []


def load_train(folder, task, arch):
    """The train split as fairseq-train loads it."""
    fairseq_poolingformer.register()  # patches fairseq
    parser = options.get_training_parser(task)
    flags = ["--task", task, "--arch", arch, "--sample-break-mode", "eos", "--tokens-per-sample", "512"]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(folder), *flags]))
    loaded = tasks.setup_task(config.task)
    loaded.load_dataset("train")
    return loaded


@pytest.mark.parametrize(("task", "arch"), [("masked_lm", "roberta_base"), ("language_modeling", "transformer_lm")])
def test_fairseqs_own_tasks_read_it(tmp_path, task, arch):
    assert convert(tmp_path, SMALL, "--min-chars", "40") == 0
    loaded = load_train(tmp_path, task, arch)
    tokenizer = load_tokenizer(tmp_path)
    texts = (tmp_path / "train.text.txt").read_text(encoding="utf-8").split("\n\n")[:-1]
    ids = [[*tokenizer.encode(text).tolist(), loaded.source_dictionary.eos()] for text in texts]
    dataset = loaded.dataset("train")
    if task == "language_modeling":
        assert [dataset[number]["target"].tolist() for number in range(3)] == ids
        return
    sample = dataset.collater([dataset[number] for number in range(3)])
    pad, mask = loaded.source_dictionary.pad(), loaded.source_dictionary.index("<mask>")
    for row, target, wanted in zip(sample["net_input"]["src_tokens"], sample["target"], ids, strict=True):
        unmasked = target == pad  # elsewhere a token is masked, replaced, or kept and asked for
        whole = row.where(unmasked, target)
        assert whole[whole != pad].tolist() == [loaded.source_dictionary.bos(), *wanted]
        assert mask not in whole


def test_a_broken_page_costs_only_itself(tmp_path, capsys):
    good = [page(title, "some text, " * 30) for title in "abc"]
    broken = ["<page><title>&lol;</title></page>\n", page("huge", "x" * 5000)]
    broken.append("<page><title>cut</title><revision><text>en")
    bomb = '<!DOCTYPE m [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]>\n'
    dump = write_dump(tmp_path / "a.xml", good[0], broken[0], good[1], broken[1], good[2])
    dump.write_text(bomb + dump.read_text().replace("</mediawiki>", broken[2]))
    out = tmp_path / "out"
    assert convert(out, dump, "--max-page-bytes", "4000") == 1
    assert "3 of 6 lines rejected" in capsys.readouterr().err
    assert convert(out, dump, "--max-page-bytes", "4000", max_reject_fraction=0.5) == 0
    assert [(reject["line"], reject["reason"]) for reject in rejects(out)] == [
        (4, "broken XML: line 4, column 13: undefined entity (&lol;)"),
        (6, "page without end: the dump is cut off there, or the page is longer than --max-page-bytes allows (huge)"),
        (8, "page without end: the dump is cut off there, or the page is longer than --max-page-bytes allows (cut)"),
    ]
    assert (out / "train.id.txt").read_text().split() == ["a", "b", "c"]


@pytest.mark.full
def test_a_page_that_takes_for_ever_or_all_memory(tmp_path):
    good = [page(f"{title}", f"text of {title}, " * 30) for title in "abcd"]
    bounds = ["--max-page-seconds", "3", "--max-page-memory", "256"]
    bad = write_dump(tmp_path / "bad.xml", good[0], page("Slow", SLOW), good[1], page("Large", LARGE), *good[2:])
    start = time.process_time()
    assert convert(tmp_path / "bad", bad, *bounds, max_reject_fraction=0.5) == 0
    assert time.process_time() - start < 30
    assert [reject["reason"] for reject in rejects(tmp_path / "bad")] == [
        "page takes too long: more than 3 seconds of CPU time to parse (Slow)",
        "page takes too much memory: more than 256 MiB to parse (Large)",
    ]
    assert convert(tmp_path / "good", write_dump(tmp_path / "good.xml", *good), *bounds) == 0
    for name in ("train.bin", "train.idx", "train.id.txt", "train.text.txt"):
        assert (tmp_path / "bad" / name).read_bytes() == (tmp_path / "good" / name).read_bytes()


def test_split_by_title_whatever_the_order_and_the_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_RECORDS", 7)
    pages = [page(f"Title {number}", f"the text of {number}, " * 20) for number in range(60)]
    dump = write_dump(tmp_path / "a.xml", *pages)
    halves = [write_dump(tmp_path / f"half{half}.xml", *pages[half::2]) for half in (0, 1)]
    assert convert(tmp_path / "one", dump, valid_share=0.2) == 0
    assert convert(tmp_path / "two", dump, valid_share=0.2, workers=2) == 0
    assert convert(tmp_path / "halves", *halves, valid_share=0.2) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    for split in ("train", "valid"):
        titles = [(tmp_path / folder / f"{split}.id.txt").read_text().splitlines() for folder in ("one", "halves")]
        assert sorted(titles[0]) == sorted(titles[1])
        names = [f"Title {n}" for n in range(60)]
        assert titles[0] == [x for x in names if (place_of(x) < 0.2 * 2**64) == (split == "valid")]
    assert 3 <= len((tmp_path / "one" / "valid.id.txt").read_text().splitlines()) <= 25


def test_a_small_dump_has_a_valid_article(tmp_path, capsys):
    """The one of the lowest hash among those that are articles, and found before anything is written."""
    titles = [f"Title {number}" for number in range(40)]
    first, second, *_ = sorted(titles, key=place_of)
    texts = {title: "#REDIRECT [[a]]" if title == first else f"the text of {title}, " * 20 for title in titles}
    old = [page(title, text, ns="") for title, text in texts.items()]
    assert place_of(second) > 0.0005 * 2**64
    dump = write_dump(tmp_path / "a.xml", *old)
    for workers in (1, 2):
        assert convert(tmp_path / str(workers), dump, valid_share=0.0005, workers=workers) == 0
        assert (tmp_path / str(workers) / "valid.id.txt").read_text().splitlines() == [second]
        assert len((tmp_path / str(workers) / "train.id.txt").read_text().splitlines()) == 38
    assert f"valid gets one: {second}" in capsys.readouterr().err


def test_inputs_that_are_none(tmp_path, capsys):
    contents = {"text.xml": b"no dump", "cut.xml.bz2": bz2.compress(SMALL.read_bytes())[:-20]}
    for name, content in (contents | {"damaged.xml.bz2": b"BZh9" + b"x" * 100}).items():
        (tmp_path / name).write_bytes(content)
    empty, only_one = write_dump(tmp_path / "empty.xml"), write_dump(tmp_path / "one.xml", page("a", "b" * 300))
    no_example = "train: no good example"
    for args, changed, message in (
        ([tmp_path / "text.xml"], {}, "text.xml: no MediaWiki dump"),
        ([empty], {}, no_example),
        ([empty], {"valid_share": 0.1}, no_example),
        (
            [only_one],
            {"valid_share": 1e-9},
            "only one document (a), and the valid split takes one: give --valid-share 0",
        ),
        ([SMALL], {"valid_share": 1}, "--valid-share 1: must be 0 or more and less than 1"),
        ([SMALL, "--max-page-memory", "1"], {}, "--max-page-memory 1: must be 256 or more"),
        ([SMALL, "--max-page-seconds", "0"], {}, "--max-page-seconds 0: must be more than 0"),
        *(([tmp_path / f"{name}.xml.bz2"], {}, "damaged bzip2 file") for name in ("cut", "damaged")),
        ([tmp_path / "none*.xml"], {}, "no such file"),
    ):
        assert convert(tmp_path / "out", *args, **changed) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("folder", "redirect"), [("wikipedia", rb"<redirect "), ("enwik8", rb"<text[^>]*># ?redirec")])
def test_real_dumps(shared_data, tmp_path, folder, redirect):
    dump = next(path for path in (shared_data / folder).iterdir() if path.suffix in (".bz2", ".gz"))
    assert convert(tmp_path, dump, "--min-chars", "0") == 0
    corpus = json.loads((tmp_path / "corpus.json").read_text())
    with (bz2 if dump.suffix == ".bz2" else gzip).open(dump, "rb") as file:
        raw = file.read()
    redirects = len(re.findall(redirect, raw, re.I))
    whole, begun = raw.count(b"</page>"), raw.count(b"<page>")
    assert corpus["skipped"]["train"]["redirect"] == redirects
    assert corpus["rejects"]["train"] == begun - whole
    others = sum(corpus["skipped"]["train"].values()) - redirects
    assert corpus["examples"]["train"] == whole - redirects - others
    assert others <= 1
    texts = io.StringIO((tmp_path / "train.text.txt").read_text(encoding="utf-8")).read().split("\n\n")
    left = [text for text in texts if re.search(r"\[\[|\]\]|\{\{|\}\}|<ref|<!--|''|^[|*#]", text, re.M)]
    assert len(left) <= 0.02 * len(texts)
    assert sum(map(len, texts)) > 0.4 * len(raw)


def test_options_of_the_text(tmp_path):
    text = "a &lt;math&gt;x&lt;/math&gt; b {{unknown|c}} {{lang|fr|d}}"
    text += "\n== See also ==\n* e\n== Références ==\nf\n== G ==\nh"
    dump = write_dump(tmp_path / "a.xml", page("T", text))
    options = ["--leave-out-sections", "see Also", "Références"]
    assert convert(tmp_path / "out", dump, "--min-chars", "1", *options) == 0
    assert (tmp_path / "out" / "train.text.txt").read_text().split("\n") == ["T", "a b d", "G", "h", "", ""]
    assert convert(tmp_path / "out", dump, "--min-chars", "1") == 1  # other options, another corpus

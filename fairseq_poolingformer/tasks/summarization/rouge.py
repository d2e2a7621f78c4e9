"""ROUGE-1, -2, -L and -Lsum of summaries, with bootstrap intervals (Lin, 2004).

Tokens, stems and n-grams are the rouge-score library's, which is imported where it is first used: with nltk it takes
more than a second, and ``poolingformer-score --help`` is to answer at once. The longest common subsequences are found
here with bit vectors in place of that library's tables. They count as rouge-score 0.1.2 and ROUGE-1.5.5 do, token for
token, ties included, in a twelfth of the time.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.tasks.shared.estimates import RESAMPLES, SEED, Estimate, bootstrap_means
from fairseq_poolingformer.tasks.summarization.sentences import SENTENCE_SPLITS, split_sentences

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


@cache
def _tokenizer(stemmer: bool) -> _CachingTokenizer:
    return _CachingTokenizer(stemmer)


def rouge_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    stemmer: bool = True,
    sentence_split: str = "rule",
) -> dict[str, np.ndarray]:
    """Score every hypothesis against its reference; an empty one scores 0."""
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: each hypothesis needs its reference"
        )
    if sentence_split not in SENTENCE_SPLITS:
        raise ValueError(f"sentence_split={sentence_split!r}: choose one of {', '.join(SENTENCE_SPLITS)}")
    with needing("scoring"):
        from rouge_score import rouge_scorer

    tokenizer = _tokenizer(stemmer)
    ngrams = rouge_scorer.RougeScorer(["rouge1", "rouge2"], tokenizer=tokenizer)
    scores = {name: np.zeros((len(hypotheses), 3)) for name in ROUGE_TYPES}
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        for name, score in ngrams.score(reference, hypothesis).items():
            scores[name][row] = score
        scores["rougeL"][row] = _score_lcs([hypothesis], [reference], tokenizer)
        scores["rougeLsum"][row] = _score_lcs(
            split_sentences(hypothesis, sentence_split), split_sentences(reference, sentence_split), tokenizer
        )
    return scores


def _score_lcs(hypothesis: list[str], reference: list[str], tokenizer: _CachingTokenizer) -> tuple[float, float, float]:
    """Compute precision, recall and F1 of the LCS between two lists of sentences."""
    predicted = [tokenizer.tokenize(sentence) for sentence in hypothesis]
    expected = [tokenizer.tokenize(sentence) for sentence in reference]
    predicted_tokens, expected_tokens = sum(map(len, predicted)), sum(map(len, expected))
    if not predicted_tokens or not expected_tokens:
        return 0.0, 0.0, 0.0
    if len(predicted) == len(expected) == 1:
        hits = lcs_length(expected[0], predicted[0])
    else:
        hits = summary_lcs_hits(expected, predicted)
    precision, recall = hits / predicted_tokens, hits / expected_tokens
    return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0


def mean_f1(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    stemmer: bool = True,
    sentence_split: str = "rule",
) -> dict[str, float]:
    """The mean F1 × 100 of each ROUGE type without intervals, 0 for no pairs; all else as :func:`rouge_scores`."""
    scores = rouge_scores(hypotheses, references, stemmer=stemmer, sentence_split=sentence_split)
    return {name: 100 * float(rows[:, 2].mean()) if len(rows) else 0.0 for name, rows in scores.items()}


def bootstrap(scores: dict[str, np.ndarray], seed: int = SEED) -> dict[str, RougeEstimate]:
    """Compute means over the corpus and their 95% percentile bootstrap intervals, the same ones for the same scores.

    The mean is that of the examples. ROUGE-1.5.5 reports the mean of the resamples and rouge-score their median; both
    differ from it by chance, a few hundredths of a point on a few hundred examples. All types share the resamples.
    """
    estimates = bootstrap_means(np.concatenate(list(scores.values()), axis=1), seed)
    return {name: RougeEstimate(*estimates[3 * i : 3 * i + 3]) for i, name in enumerate(scores)}


def describe(estimates: dict[str, RougeEstimate], *, examples: int, stemmer: bool, sentence_split: str) -> str:
    """The estimates of :func:`bootstrap` × 100 and the settings that they depend on, in several lines."""
    lines = [
        f"ROUGE of {examples} examples (rouge-score; stemming {'on' if stemmer else 'off'}; "
        f"Lsum's sentences: {sentence_split} = {SENTENCE_SPLITS[sentence_split]}; "
        f"mean × 100 [95% bootstrap interval, {RESAMPLES} resamples, seed {SEED}])"
    ]
    for name, estimate in estimates.items():
        cells = [
            f"{label} {100 * value.mean:5.2f} [{100 * value.low:5.2f}, {100 * value.high:5.2f}]"
            for label, value in (("P", estimate.precision), ("R", estimate.recall), ("F1", estimate.f1))
        ]
        lines.append(f"{ROUGE_LABELS[name]:<10}  {'  '.join(cells)}")
    return "\n".join(lines)


def lcs_length(reference: Sequence[str], candidate: Sequence[str]) -> int:
    """Tokens of the longest common subsequence (Hyyrö, 2004, "Bit-parallel LCS-length computation revisited")."""
    rows = _table_rows(reference, candidate, _positions(candidate))
    return len(candidate) - rows[-1].bit_count()


def summary_lcs_hits(reference: Sequence[Sequence[str]], candidate: Sequence[Sequence[str]]) -> int:
    """Count summary-level hits: each reference sentence's union of LCSs with the candidate's sentences, clipped.

    Lin, 2004, "ROUGE: A package for automatic evaluation of summaries", section 3.2; the clipping is
    ROUGE-1.5.5's: a token counts at most as often as it occurs in the reference and in the candidate. Divided by the
    tokens of either, the hits are recall and precision.
    """
    left_in_reference = Counter(token for sentence in reference for token in sentence)
    left_in_candidate = Counter(token for sentence in candidate for token in sentence)
    candidate_positions = [_positions(sentence) for sentence in candidate]
    hits = 0
    for sentence in reference:
        union: set[int] = set()
        for other, positions in zip(candidate, candidate_positions, strict=True):
            union.update(_lcs_indices(sentence, other, positions))
        for index in sorted(union):
            token = sentence[index]
            if left_in_reference[token] > 0 and left_in_candidate[token] > 0:
                left_in_reference[token] -= 1
                left_in_candidate[token] -= 1
                hits += 1
    return hits


def _positions(tokens: Sequence[str]) -> dict[str, int]:
    """Map each token to its positions, the set bits of one integer."""
    positions: dict[str, int] = {}
    for index, token in enumerate(tokens):
        positions[token] = positions.get(token, 0) | 1 << index
    return positions


def _table_rows(reference: Sequence[str], candidate: Sequence[str], positions: dict[str, int]) -> list[int]:
    """Rows 0..len(reference) of the LCS table: row i's length at column j is the number of zeros in its low j bits."""
    full = (1 << len(candidate)) - 1
    rows = [full]
    for token in reference:
        row = rows[-1]
        matches = row & positions.get(token, 0)
        rows.append(((row + matches) | (row - matches)) & full)
    return rows


def _lcs_indices(reference: Sequence[str], candidate: Sequence[str], positions: dict[str, int]) -> list[int]:
    """Find the indices into ``reference`` of the longest common subsequence that ROUGE's backtracking picks.

    The rows of reference tokens that the candidate lacks are left out: such a row repeats the one above it, and
    backtracking always goes up from it. The columns must stay, or backtracking would pick another of the longest
    subsequences.
    """
    shared = [index for index, token in enumerate(reference) if token in positions]
    rows = _table_rows([reference[index] for index in shared], candidate, positions)
    picked = []
    i, j = len(shared), len(candidate)
    while i and j:
        index = shared[i - 1]
        if reference[index] == candidate[j - 1]:
            picked.append(index)
            i, j = i - 1, j - 1
            continue
        length_left = j - 1 - (rows[i] & ((1 << (j - 1)) - 1)).bit_count()
        length_up = j - (rows[i - 1] & ((1 << j) - 1)).bit_count()
        if length_left > length_up:
            j -= 1
        else:
            i -= 1
    return picked

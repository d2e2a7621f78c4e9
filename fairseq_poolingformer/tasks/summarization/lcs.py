"""Longest common subsequences as ROUGE counts them, with bit vectors in place of rouge-score's tables.

Both functions count as rouge-score 0.1.2 and ROUGE-1.5.5 do, token for token, ties included, in less time: a pair of
250-word summaries takes a millisecond or two, with tables tens of them.
"""

from collections import Counter
from collections.abc import Sequence


def lcs_length(reference: Sequence[str], candidate: Sequence[str]) -> int:
    """Length of the longest common subsequence (Hyyrö, 2004, "Bit-parallel LCS-length computation revisited").

    Args:
        reference: tokens.
        candidate: tokens.

    Returns:
        The number of tokens in a longest common subsequence.
    """
    rows = _table_rows(reference, candidate, _positions(candidate))
    return len(candidate) - rows[-1].bit_count()


def summary_lcs_hits(reference: Sequence[Sequence[str]], candidate: Sequence[Sequence[str]]) -> int:
    """Count summary-level hits: each reference sentence's union of LCSs with the candidate's sentences, clipped.

    Lin, 2004, "ROUGE: A package for automatic evaluation of summaries", section 3.2; the clipping is
    ROUGE-1.5.5's: a token counts at most as often as it occurs in the reference and in the candidate.

    Args:
        reference: sentences of tokens.
        candidate: sentences of tokens.

    Returns:
        The number of hits; divided by the reference's and the candidate's tokens it is recall and precision.
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

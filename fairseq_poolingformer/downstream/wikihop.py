"""WikiHop and MedHop (QAngaroo, Welbl et al. 2018): which candidate answers a question about several documents.

A segment is ``<s> [q] question [/q] [ent] candidate [/ent] … </s> support </s> support … </s>``; the question and the
candidates are global (Longformer, §6.1 and appendix D). Each segment of an example begins with the same question and
candidates, and goes on with supports where the one before ends.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fairseq_poolingformer.downstream.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text.data_folder import WIKIHOP, DataFolder, Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse
from fairseq_poolingformer.text.whole_file import write_lines

logger = logging.getLogger(__name__)

NO_ANSWER = -1


@dataclass(frozen=True)
class WikihopSplit(Split):
    """One split; ``candidates`` and ``supports`` are one after the other, of the sizes in ``…_sizes``.

    ``answer`` has the number of the right candidate, or is empty where the input has no answer.
    """

    layout: ClassVar[Layout] = WIKIHOP

    question: Sequences
    candidates: Sequences
    candidate_sizes: Sequences
    supports: Sequences
    support_sizes: Sequences
    answer: Sequences

    def check(self) -> None:
        for texts, sizes in ((self.candidates, self.candidate_sizes), (self.supports, self.support_sizes)):
            total = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.values, dtype=np.int64)])[sizes.bounds]
            refuse(sizes, np.diff(total) != texts.sizes, f"the sizes do not add up to {texts.prefix.name}")
        first = np.full(len(self), NO_ANSWER)
        first[self.answer.sizes > 0] = self.answer.values[self.answer.bounds[:-1][self.answer.sizes > 0]]
        refuse(self.answer, (self.answer.sizes > 1) | (first >= self.candidate_sizes.sizes), "no such candidate")


class WikihopExamples(Examples):
    """The examples of a split.

    Candidates that would take more than half of a segment are cut: each to as many of its first tokens as fit.

    Args:
        split: the arrays.
        symbols: of the dictionary.
        max_positions: tokens of a segment at most.
        max_segments: leave out what is beyond so many segments of an example; 0 for no limit.
        use_global: make the question and the candidates global.

    Raises:
        ValueError: a question with its candidates takes more than half of a segment even without candidates' text.
    """

    def __init__(
        self, split: WikihopSplit, symbols: Symbols, max_positions: int, max_segments: int = 0, use_global: bool = True
    ) -> None:
        self.split, self.symbols, self.use_global, self.max_segments = split, symbols, use_global, max_segments
        counts = split.candidate_sizes.sizes
        fixed = split.question.sizes + 2 * counts + 4  # <s> [q] [/q], [ent] [/ent] each, </s> at the end
        whole = fixed + split.candidates.sizes
        limit = max_positions // 2
        refuse_long(split.question, fixed > limit, max_positions)
        self.max_candidate = np.full(len(split), np.iinfo(np.int32).max, np.int64)
        prefix = whole.astype(np.int64)
        for example in np.flatnonzero(whole > limit):
            sizes = split.candidate_sizes[example]
            fitting = [np.minimum(sizes, size).sum() for size in range(int(sizes.max()))]
            longest = int(np.searchsorted(fitting, limit - fixed[example], side="right")) - 1
            self.max_candidate[example], prefix[example] = longest, fixed[example] + fitting[longest]
        self.num_cut = int(np.count_nonzero(whole > limit))
        if self.num_cut:
            logger.warning(
                "%s: %d examples have candidates cut, since they fill more than half of a segment of %d tokens",
                *(split.candidates.prefix, self.num_cut, max_positions),
            )
        self.room = max_positions - prefix
        self.support_tokens = (split.supports.sizes + split.support_sizes.sizes).astype(np.int64)  # </s> before each
        all_pieces = count_pieces(self.support_tokens, self.room)
        pieces = count_pieces(self.support_tokens, self.room, max_segments)
        self.num_shortened = int(np.count_nonzero(pieces < all_pieces))
        if self.num_shortened:
            logger.warning(
                "%s: %d examples lose the end of their supports, beyond --max-segments %d",
                *(split.supports.prefix, self.num_shortened, max_segments),
            )
        self._sizes = np.minimum(self.support_tokens, pieces * self.room) + pieces * prefix

    @property
    def sizes(self) -> np.ndarray:
        return self._sizes

    def segments(self, example: int) -> list[Segment]:
        marks, symbols = self.symbols.marks, self.symbols
        tokens = [[symbols.bos, marks["[q]"]], self.split.question[example], [marks["[/q]"]]]
        for candidate in self._pieces("candidate", example):
            tokens += [[marks["[ent]"]], candidate[: self.max_candidate[example]], [marks["[/ent]"]]]
        prefix = np.concatenate(tokens).astype(np.int64)
        numbers = np.cumsum(prefix == marks["[ent]"]) * (prefix == marks["[ent]"])
        supports = [np.append(symbols.eos, support) for support in self._pieces("support", example)]
        rest = np.concatenate([np.zeros(0, np.int64), *supports])
        return [
            self._segment(prefix, numbers, rest[first:end])
            for first, end in cut(len(rest), int(self.room[example]), self.max_segments)
        ]

    def _pieces(self, name: str, example: int) -> list[np.ndarray]:
        sizes, tokens = getattr(self.split, f"{name}_sizes")[example], getattr(self.split, f"{name}s")[example]
        return np.split(tokens, np.cumsum(sizes)[:-1]) if len(sizes) else []

    def _segment(self, prefix: np.ndarray, numbers: np.ndarray, supports: np.ndarray) -> Segment:
        tokens = np.concatenate([prefix, supports, [self.symbols.eos]])
        is_prefix = np.arange(len(tokens)) < len(prefix)
        candidate = np.zeros(len(tokens), np.int64)
        candidate[: len(prefix)] = numbers
        return Segment(tokens, is_prefix & self.use_global, {"candidate": candidate})

    def inputs(self, example: int) -> dict[str, int | np.ndarray]:
        return {"num_candidates": int(self.split.candidate_sizes.sizes[example])}

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        answer = self.split.answer[example]
        return {"answer": int(answer[0]) if len(answer) else NO_ANSWER}


def refuse_long(question: Sequences, is_too_long: np.ndarray, max_positions: int) -> None:
    """Raise ValueError for the first example whose question and marks fill more than half of a segment."""
    if is_too_long.any():
        raise ValueError(
            f"{question.prefix}, example {int(is_too_long.argmax())}: the question and the marks of its candidates "
            f"fill more than half of --max-positions {max_positions}; give a larger one"
        )


class WikihopPredictor:
    """The most probable candidate of each example, written as the official script reads it: {id: candidate}.

    Args:
        folder: the data folder.
        split: e.g. "valid".
    """

    def __init__(self, folder: Path, split: str) -> None:
        data = DataFolder(Path(folder), WIKIHOP)
        self._ids = data.text(split, "id").read_text(encoding="utf-8").split("\n")[:-1]
        self._candidates = data.text(split, "candidates").read_text(encoding="utf-8").split("\n")[:-1]
        self._answers: dict[str, str] = {}

    def add(self, numbers: list[int], output: Any, batch: dict[str, Any]) -> None:
        """Take (B, K) logits of the candidates."""
        for number, best in zip(numbers, output.argmax(-1).tolist(), strict=True):
            self._answers[self._ids[number]] = json.loads(self._candidates[number])[best]

    def write(self, path: Path) -> None:
        """Write the predictions in the order of the data folder."""
        ordered = {name: self._answers[name] for name in self._ids if name in self._answers}
        write_lines(path, [json.dumps(ordered, indent=1)])  # in ASCII: a lone surrogate has no UTF-8

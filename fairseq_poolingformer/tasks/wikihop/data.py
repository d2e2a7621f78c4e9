"""WikiHop and MedHop (QAngaroo, Welbl et al. 2018): which candidate answers a question about several documents.

A segment is ``<s> [q] question [/q] [ent] candidate [/ent] … </s> support </s></s> support … </s>``; the question and
the candidates are global (Longformer, §6.1 and appendix D). Each segment of an example begins with the same question
and candidates, and goes on with supports where the one before ends.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import check_known
from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse, sums

logger = logging.getLogger(__name__)

NO_ANSWER = -1
LONGEST = 2**16  # tokens of a segment of the longest model that preprocessing thinks of


@dataclass(frozen=True)
class WikihopSplit(Split):
    """One split; ``candidates`` and ``supports`` have sizes in ``…_sizes``, ``answer`` the right one's number."""

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer preprocess wikihop",
        ids=("question", "candidates", "supports"),
        numbers=("candidate_sizes", "support_sizes", "answer"),
        texts=("id", "candidates", "notes"),
    )

    question: Sequences
    candidates: Sequences
    candidate_sizes: Sequences
    supports: Sequences
    support_sizes: Sequences
    answer: Sequences

    def check(self) -> None:
        for texts, sizes in ((self.candidates, self.candidate_sizes), (self.supports, self.support_sizes)):
            total = sums(sizes.values, sizes.bounds)
            refuse(sizes, total != texts.sizes, f"the sizes do not add up to {texts.prefix.name}")
        first = np.full(len(self), NO_ANSWER)
        first[self.answer.sizes > 0] = self.answer.values[self.answer.bounds[:-1][self.answer.sizes > 0]]
        refuse(self.answer, (self.answer.sizes > 1) | (first >= self.candidate_sizes.sizes), "no such candidate")


@dataclass(frozen=True)
class Order:
    """Draws the order of candidates and supports by seed, epoch and id alone, alike in resumed trainings."""

    seed: int
    names: Sequence[str]

    def draw(self, epoch: int, example: int, *counts: int) -> list[np.ndarray]:
        """A permutation of each of these numbers of things."""
        key = f"{self.seed} {epoch} {self.names[example]}".encode()
        rng = np.random.default_rng(int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "big"))
        return [rng.permutation(count) for count in counts]


class WikihopExamples(Examples):
    """The examples of a split; question and candidates leave an eighth of a segment to the supports."""

    # else candidates are cut to what fits: their first tokens, or their last where these tell more of them apart

    def __init__(
        self,
        split: WikihopSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
        names: Sequence[str] = (),
        order: Order | None = None,
    ) -> None:
        self.split, self.symbols, self.use_global, self.max_segments = split, symbols, use_global, max_segments
        self.order, self.epoch = order, 1
        counts = split.candidate_sizes.sizes.astype(np.int64)
        fixed = split.question.sizes + 2 * counts + 4  # <s> [q] [/q], [ent] [/ent] each, </s> at the end
        prefix = fixed + split.candidates.sizes
        limit = max_positions - max_positions // 8
        if (fixed > limit).any():
            number = int((fixed > limit).argmax())
            raise ValueError(
                f"{split.question.prefix}, example {names[number] if names else number}: the question and the marks of "
                f"its candidates fill more than seven eighths of --max-positions {max_positions}; give a larger one, "
                "or leave the example out of the input"
            )
        self._cuts: dict[int, slice] = {}
        num_same = 0
        for example in np.flatnonzero(prefix > limit).tolist():
            candidates = self._pieces("candidate", example)
            self._cuts[example], tokens, is_same = cut_candidates(candidates, limit - int(fixed[example]))
            prefix[example] = fixed[example] + tokens
            num_same += is_same
        self.num_cut, self.num_same = len(self._cuts), num_same
        if self.num_cut:
            logger.warning(
                "%s: %d examples have candidates cut, since they leave less than an eighth of a segment of %d tokens; "
                "in %d of them some candidates are the same then",
                *(split.candidates.prefix, self.num_cut, max_positions, num_same),
            )
        self.room = max_positions - prefix
        supports = split.support_sizes.sizes.astype(np.int64)  # </s> before the first, two before each other one
        self.support_tokens = split.supports.sizes + np.maximum(2 * supports - 1, 0)
        all_pieces = count_pieces(self.support_tokens, self.room)
        pieces = count_pieces(self.support_tokens, self.room, max_segments)
        self.num_shortened = int(np.count_nonzero(pieces < all_pieces))
        if self.num_shortened:
            logger.warning(
                "%s: %d examples lose the end of their supports, beyond --max-segments %d",
                *(split.supports.prefix, self.num_shortened, max_segments),
            )
        self.sizes = np.minimum(self.support_tokens, pieces * self.room) + pieces * prefix

    @property
    def known(self) -> np.ndarray:
        return self.split.answer.sizes > 0

    def segments(self, example: int) -> list[Segment]:
        """Cut an example; candidates have the numbers of the data folder, in whatever order they are."""
        marks, symbols = self.symbols.marks, self.symbols
        candidates, supports = (self._pieces(name, example) for name in ("candidate", "support"))
        orders = [range(len(candidates)), range(len(supports))]
        if self.order is not None:
            orders = self.order.draw(self.epoch, example, *map(len, orders))
        tokens = [[symbols.bos, marks["[q]"]], self.split.question[example], [marks["[/q]"]]]
        for number in orders[0]:
            ids = candidates[number][self._cuts.get(example, slice(None))]
            tokens += [[marks["[ent]"]], ids, [marks["[/ent]"]]]
        prefix = np.concatenate(tokens).astype(np.int64)
        numbers = np.zeros(len(prefix), np.int64)
        numbers[prefix == marks["[ent]"]] = np.asarray(orders[0], np.int64) + 1
        pieces = [np.zeros(0, np.int64)]
        for place, number in enumerate(orders[1]):
            pieces += [np.full(2 if place else 1, symbols.eos), supports[number]]
        rest = np.concatenate(pieces)
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


def cut_candidates(candidates: Sequence[np.ndarray], room: int) -> tuple[slice, int, bool]:
    """Cut candidates to as many tokens each as fit in ``room`` tokens, 0 or more, together."""
    sizes = np.array(list(map(len, candidates)))
    fitting = [int(np.minimum(sizes, size).sum()) for size in range(int(sizes.max()) + 1)]
    longest = int(np.searchsorted(fitting, room, side="right")) - 1
    parts = slice(0, longest), slice(-longest, None) if longest else slice(0, 0)
    kinds = [len({candidate[part].tobytes() for candidate in candidates}) for part in (*parts, slice(None))]
    return parts[kinds[1] > kinds[0]], fitting[longest], max(kinds[:2]) < kinds[2]


def score(gold: Sequence[Path], predictions: Path, predicted_only: bool = False) -> dict[str, float | int]:
    """Compare predictions with the released examples; one without a prediction is wrong."""
    predicted = read_json_file(predictions, unique=True)
    known: dict[str, int] = {}  # 100 where the prediction is right
    for path in gold:
        for number, value in enumerate(read_json_file(path, list), 1):
            with json_values.placed(path, f"element {number}"):
                fields = json_values.as_object(value, "the element")
                name, answer = json_values.text_of(fields, "id"), json_values.text_of(fields, "answer")
                candidates = json_values.list_of(fields, "candidates")
            if name in known:
                raise ValueError(f"{path}, element {number}: id {name} is there twice")
            if name in predicted and predicted[name] not in candidates:
                raise ValueError(f"{predictions}, {name}: {predicted[name]!r} is no candidate of that question")
            known[name] = 100 * (predicted.get(name) == answer)
    if not known:
        raise ValueError(f"{', '.join(map(str, gold))}: no examples")
    check_known(predictions, predicted, known)
    missing = sum(name not in predicted for name in known)
    right = [value for name, value in known.items() if not predicted_only or name in predicted]
    return {"accuracy": sum(right) / max(len(right), 1), "examples": len(right), "without_prediction": missing}

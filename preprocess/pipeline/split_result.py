"""What came out of a split: which examples of its parts to take, and what was rejected."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from preprocess.pipeline.parts import Part


@dataclass
class SplitResult:
    """What came out of a split: its parts with which of their examples to take, and its rejects.

    ``passed_over`` counts records by kind; of a part that a limit cuts, it counts all. ``seen`` are the ids so far,
    where they must be unique.
    """

    parts: list[tuple[Part, np.ndarray]] = field(default_factory=list)
    examples: int = 0
    reused: int = 0
    rejects: list[dict] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    seen: set[str] | None = None

    def add(self, part: Part, content: dict, reused: bool, limit: int | None) -> None:
        """Counts a part in, at most up to the limit.

        Args:
            part: the next one.
            content: what :func:`preprocess.pipeline.parts.encode_part` wrote of it.
            reused: whether it was there already.
            limit: of all the split's examples.
        """
        take = np.ones(len(content["places"]), bool)
        rejects = list(content["rejects"])
        if self.seen is not None:
            rejects += self._repeated(content, take)
        total = len(take)
        if limit is not None:
            take &= np.cumsum(take) <= limit - self.examples
            total = int(take.nonzero()[0][-1]) + 1 if self.examples + np.count_nonzero(take) == limit else total
        whole = total == len(take)
        self.rejects += [
            {key: reject[key] for key in ("file", "line", "reason")}
            for reject in sorted(rejects, key=lambda reject: reject["before"])
            if whole or reject["before"] < total
        ]
        self.passed_over.update(content["passed_over"])
        self.parts.append((part, take))
        self.examples += int(np.count_nonzero(take))
        self.reused += reused

    def _repeated(self, content: dict, take: np.ndarray) -> list[dict]:
        """Takes out the examples whose ids were seen before; returns a reject for each."""
        rejects = []
        for number, (name, (file, line)) in enumerate(zip(content["texts"]["id"], content["places"], strict=True)):
            if name in self.seen:
                take[number] = False
                reason = f"example id twice: {name} is the id of an earlier example"
                rejects.append({"before": number, "file": file, "line": line, "reason": reason})
            self.seen.add(name)
        return rejects

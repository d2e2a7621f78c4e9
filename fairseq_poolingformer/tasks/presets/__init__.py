"""Released suites that are read and scored without options: SCROLLS and ZeroSCROLLS, each task by its name.

All are for the task ``long_summarization``, which writes a text for a text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A task's title, and the figure that its paper reports."""

    help: str
    metric: str  # a key of :data:`~fairseq_poolingformer.tasks.presets.metrics.METRICS`


_SCROLLS = {
    "gov_report": "rouge",
    "summ_screen_fd": "rouge",
    "qmsum": "rouge",
    "narrative_qa": "f1",
    "qasper": "f1",
    "quality": "exact_match",
    "contract_nli": "exact_match",
}
_ZERO_SCROLLS = {
    "gov_report": "rouge",
    "summ_screen_fd": "rouge",
    "qmsum": "rouge",
    "squality": "rouge",
    "qasper": "f1_ascii",
    "narrative_qa": "f1_ascii",
    "quality": "accuracy",
    "musique": "f1_ascii",
    "space_digest": "exponential_similarity",
    "book_sum_sort": "concordance_index",
}
SUITES = {"scrolls": tuple(_SCROLLS), "zero_scrolls": tuple(_ZERO_SCROLLS)}  # their score is the mean of the tasks'

PRESETS: dict[str, Preset] = {
    f"{suite}/{task}": Preset(f"{title}'s {task}.zip", metric)
    for suite, title, tasks in (("scrolls", "SCROLLS", _SCROLLS), ("zero_scrolls", "ZeroSCROLLS", _ZERO_SCROLLS))
    for task, metric in tasks.items()
}

"""Released corpora that are read and scored without options, a line each.

All are for the task ``long_summarization``, which writes a text for a text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """How the files of a release are read, and what its papers report."""

    help: str
    metric: str = "rouge_stemmed"  # a key of :data:`~fairseq_poolingformer.tasks.presets.metrics.METRICS`
    lengths: tuple[int, int] = (16384, 1024)  # the most tokens of inputs and outputs that are usual
    article: tuple[str, ...] = (
        "input",
    )  # key paths (preprocess/records/keys.py), the first that a record has, as below
    summary: tuple[str, ...] = ("output",)
    id: tuple[str, ...] = ("id",)
    query: str = ""  # of a question that is put before the article; its tokens are global
    each: tuple[tuple[str, ...], ...] = ()  # lists whose objects are examples, a tuple for each level
    replaced: tuple[tuple[str, str], ...] = ()  # texts in articles, and what takes their place


_LEXSUM = {"article": ("sources", "case_documents"), "id": ("case_id", "id")}
_SCROLLS = {
    "gov_report": ("rouge", 1024),
    "summ_screen_fd": ("rouge", 1024),
    "qmsum": ("rouge", 1024),
    "narrative_qa": ("f1", 128),
    "qasper": ("f1", 128),
    "quality": ("exact_match", 128),
    "contract_nli": ("exact_match", 16),
}
_ZERO_SCROLLS = {
    "gov_report": ("rouge", 1024),
    "summ_screen_fd": ("rouge", 512),
    "qmsum": ("rouge", 512),
    "squality": ("rouge", 512),
    "qasper": ("f1_ascii", 128),
    "narrative_qa": ("f1_ascii", 64),
    "quality": ("accuracy", 16),
    "musique": ("f1_ascii", 32),
    "space_digest": ("exponential_similarity", 36),
    "book_sum_sort": ("concordance_index", 256),
}
SUITES = {"scrolls": tuple(_SCROLLS), "zero_scrolls": tuple(_ZERO_SCROLLS)}  # their score is the mean of the tasks'

PRESETS: dict[str, Preset] = {
    "govreport": Preset(
        "reports of CRS and GAO, with split_ids: gov-report",
        article=("reports.*", "report.*"),
        summary=("summary", "highlight.*.paragraphs"),
    ),
    "qmsum": Preset(
        "meetings, a question before each: QMSum's JSON lines",
        article=("meeting_transcripts.*.speaker:content",),
        summary=("answer",),
        query="query",
        each=(("general_query_list", "specific_query_list"),),
    ),
    "booksum": Preset(
        "chapters of books: BookSum's rows",
        article=("chapter",),
        summary=("summary.summary", "summary_text"),
        id=("summary_path",),
    ),
    "summscreen": Preset(
        "episodes of series: SummScreen's fd_SPLIT.json or tms_SPLIT.json",
        article=("Transcript",),
        summary=("Recap",),
        id=("filename",),
    ),
    "multi_news": Preset(
        "several news articles: Multi-News' lines SPLIT.src.cleaned and SPLIT.tgt",
        lengths=(4096, 512),
        article=("document",),
        summary=("summary",),
        replaced=(("NEWLINE_CHAR", "\n"), ("|||||", "\n\n")),
    ),
    "bigpatent": Preset(
        "patents: BigPatent's folders of .gz",
        lengths=(16384, 256),
        article=("description",),
        summary=("abstract",),
        id=("publication_number",),
    ),
    "squality": Preset(
        "stories, a question before each, four summaries: SQuALITY's JSON lines",
        metric="rouge",
        article=("document",),
        summary=("response_text",),
        id=("metadata.passage_id+question_number",),
        query="question_text",
        each=(("questions",), ("responses",)),
    ),
    **{
        f"multi_lexsum/{size}": Preset(
            f"lawsuits, {size} summaries: Multi-LexSum with its sources.json",
            lengths=(16384, tokens),
            summary=(f"summary/{size}",),
            **_LEXSUM,
        )
        for size, tokens in (("long", 1024), ("short", 256), ("tiny", 128))
    },
    **{
        f"{suite}/{task}": Preset(f"{title}'s {task}.zip", metric, (16384, tokens))
        for suite, title, tasks in (("scrolls", "SCROLLS", _SCROLLS), ("zero_scrolls", "ZeroSCROLLS", _ZERO_SCROLLS))
        for task, (metric, tokens) in tasks.items()
    },
}

"""Wikitext to text: wikiextractor, gensim, mwparserfromhell's own tree, and this project.

    pip install wikiextractor gensim
    python benchmarks/wikipedia.py DUMP [DUMP ...]

The articles of each dump are read first; cleaning alone is timed. One core: CPU time of this process. Several workers:
time by the clock from the first article to the last text, each worker getting the next few articles when it is done,
the same for all; this project then cleans as its command line does, in processes that bound time and memory. The
cleaners take turns in every repetition, and a ratio is to wikiextractor in the same one.

The texts are not the same. So the table also tells how much text each leaves, in how many articles of a hundred some
markup of wikitext or a tag is left, and the faults of wikipedia_faults.py in a thousand words.
"""

import argparse
import functools
import importlib.metadata
import os
import platform
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import mwparserfromhell
from fairseq_poolingformer.preprocess.wikitext.bounded import Bounds, clean
from fairseq_poolingformer.preprocess.wikitext.dump import ARTICLES, BrokenPage, parse_page, read_pages, read_site
from fairseq_poolingformer.preprocess.wikitext.text import plain_text
from gensim.corpora.wikicorpus import filter_wiki
from wikiextractor.extract import Extractor
from wikipedia_faults import count_faults

BASE, OURS = "wikiextractor", "fairseq_poolingformer"
LEFTOVERS = re.compile(r"\[\[|\]\]|\{\{|\}\}|''|<ref|</|^[{|][|}-]|^[ \t]*\w+\|", re.M)


def with_wikiextractor(wikitext: str) -> str:
    """Without a collection of templates, as its --no-templates."""
    return "\n".join(Extractor("1", "1", "", "title", wikitext).clean_text(wikitext))


def with_tree(wikitext: str) -> str:
    """mwparserfromhell's own method, which keeps tables and references."""
    return mwparserfromhell.parse(wikitext).strip_code()


def with_bounds(wikitext: str) -> str:
    """As the command line does."""
    return clean(wikitext, {"wiki": "en"}, Bounds())[0]


CLEANERS = {
    BASE: with_wikiextractor,
    "gensim filter_wiki": filter_wiki,
    "mwparserfromhell strip_code": with_tree,
    OURS: functools.partial(plain_text, wiki="en"),
}


def read_articles(dump: Path) -> list[str]:
    """The wikitext of every article that is no redirect."""
    site, articles = read_site(dump), []
    for record in read_pages([dump]):
        try:
            page = parse_page(record, site)
        except BrokenPage:
            continue
        if page.namespace == ARTICLES and not page.is_redirect:
            articles.append(page.wikitext)
    return articles


def in_one_process(cleaner: Callable[[str], str], articles: list[str]) -> float:
    """Articles a second of CPU time."""
    start = time.process_time()
    for article in articles:
        cleaner(article)
    return len(articles) / (time.process_time() - start)


def in_workers(cleaner: Callable[[str], str], articles: list[str], pool: ProcessPoolExecutor) -> float:
    """Articles a second by the clock."""
    cleaner = with_bounds if cleaner is CLEANERS[OURS] else cleaner
    start = time.perf_counter()
    for _ in pool.map(cleaner, articles, chunksize=4):
        pass
    return len(articles) / (time.perf_counter() - start)


def count_all(articles: list[str], texts: list[str]) -> Counter[str]:
    """The faults of all articles."""
    return sum(map(count_faults, articles, texts), Counter())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", metavar="DUMP", type=Path, nargs="+")
    parser.add_argument("--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="default: %(default)s")
    args = parser.parse_args()
    versions = [
        f"{name} {importlib.metadata.version(name)}" for name in ("wikiextractor", "gensim", "mwparserfromhell")
    ]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {', '.join(versions)}")
    for dump in args.dumps:
        articles = read_articles(dump)
        size = sum(len(article.encode()) for article in articles)
        print(f"{dump.name}: {len(articles)} articles, {size / 2**20:.1f} MiB of wikitext")
        compare(articles, args.repetitions, args.workers)


def compare(articles: list[str], repetitions: int, workers: int) -> None:
    """Times all cleaners on some articles and prints their table."""
    texts = {name: [cleaner(article) for article in articles] for name, cleaner in CLEANERS.items()}
    speeds: dict[tuple[str, int], list[float]] = {}
    with ProcessPoolExecutor(workers) as pool:
        for _ in range(repetitions):
            for name, cleaner in CLEANERS.items():
                speeds.setdefault((name, 1), []).append(in_one_process(cleaner, articles))
            for name, cleaner in CLEANERS.items():
                speeds.setdefault((name, workers), []).append(in_workers(cleaner, articles, pool))
    heads = ("one core", f"{workers} workers")
    print(f"{'articles a second, ratio (least to most)':42}" + "".join(f"{head:>29}" for head in heads), end="")
    print(f"{'MiB of text':>13}{'left markup in':>16}")
    faults = {name: count_all(articles, texts[name]) for name in CLEANERS}
    for name in CLEANERS:
        row = f"{name:42}"
        for count in (1, workers):
            ratios = [speed / base for speed, base in zip(speeds[name, count], speeds[BASE, count], strict=True)]
            spread = f"{statistics.median(ratios):.2f}× ({min(ratios):.2f} to {max(ratios):.2f})"
            row += f"{statistics.median(speeds[name, count]):7.0f}{spread:>22}"
        left = sum(LEFTOVERS.search(text) is not None for text in texts[name])
        chars = sum(len(text.encode()) for text in texts[name])
        print(f"{row}{chars / 2**20:13.2f}{100 * left / len(articles):14.0f} %")
    print(f"{'in a thousand words':42}{'words':>12}{'glued':>10}{'lost':>10}{'broken':>10}")
    for name, found in faults.items():
        rates = (f"{1000 * found[kind] / found['words']:10.3f}" for kind in ("glued", "lost", "broken"))
        print(f"{name:42}{found['words']:12,}{''.join(rates)}   {found['lost']} of {found['measures']} measures lost")


if __name__ == "__main__":
    main()

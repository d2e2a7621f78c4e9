"""Converts a dump of Wikipedia, or of another MediaWiki wiki in any language, to a data folder for language models.

An article becomes its title and its prose, with a paragraph, heading or list item on each line:
:mod:`preprocess.wikitext.text` cleans it. Redirects, pages that are no articles, and short articles are skipped and
counted.
"""

import argparse
import functools
import importlib.metadata
from collections.abc import Mapping

from fairseq_poolingformer.options import finite

from .pipeline import command, documents
from .pipeline.records import Example, Record, Reject, Skipped, describe_file, expand
from .pipeline.run import Corpus
from .pipeline.splits import SplitRecords
from .wikitext.bounded import MIN_MEMORY, Bounds, PageTooHard, clean
from .wikitext.dump import ARTICLES, MAX_PAGE_BYTES, BrokenPage, Site, parse_page, read_pages, read_site, title_of

CLEANING = 5  # raise it when an article's text changes: unfinished work and finished folders are then told apart


def parse(
    record: Record, sites: Mapping[str, Site], bounds: Bounds, min_chars: int = 200, **options: object
) -> Example | Reject | Skipped:
    """Turn a page into an article."""
    site = sites[record.file]
    try:
        page = parse_page(record, site)
        if page.is_redirect:
            return Skipped("redirect")
        if page.namespace != ARTICLES:
            return Skipped("no article")
        text = clean(page.wikitext, options | {"hidden_prefixes": site.hidden_prefixes}, bounds)
    except (BrokenPage, PageTooHard) as error:
        return Reject(f"{error} ({title_of(record) or 'no title'})")
    if len(text) < min_chars:
        return Skipped(f"fewer than {min_chars} characters")
    return Example(page.title, (f"{page.title}\n{text}",))


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    if args.max_page_seconds <= 0:
        raise ValueError(f"--max-page-seconds {args.max_page_seconds:g}: must be more than 0")
    if args.max_page_memory < MIN_MEMORY:
        raise ValueError(f"--max-page-memory {args.max_page_memory}: must be {MIN_MEMORY} or more")
    paths = expand(args.input)
    bounds = Bounds(args.max_page_seconds, args.max_page_memory)
    read = functools.partial(read_pages, max_page_bytes=args.max_page_bytes)
    parse_record = functools.partial(
        parse,
        sites={str(path): read_site(path) for path in paths},
        bounds=bounds,
        min_chars=args.min_chars,
        left_out_sections=frozenset(map(str.casefold, args.leave_out_sections)),
    )
    return documents.make_corpus(
        args,
        title_of,
        name="wikipedia",
        splits={"train": SplitRecords.of_files(read, paths)},
        parse=parse_record,
        settings={
            "cleaning": CLEANING,
            "leave_out_sections": sorted(set(map(str.casefold, args.leave_out_sections))),
            "min_chars": args.min_chars,
            "bounds": [bounds.seconds, bounds.memory, args.max_page_bytes],
            "mwparserfromhell": importlib.metadata.version("mwparserfromhell"),
        },
        inputs=[describe_file(path) for path in paths],
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = command.make_parser("wikipedia", __doc__)
    group = parser.add_argument_group("input")
    text = "dumps or globs: pages-articles XML, plain, .bz2 (multistream too) or .gz"
    group.add_argument("--input", metavar="DUMP", nargs="+", required=True, help=text)
    text = "leave out the sections of these headings, such as 'See also' References 'External links'"
    group.add_argument("--leave-out-sections", metavar="HEADING", nargs="+", default=[], help=text)
    seconds = "reject a page that takes more CPU time to clean (default: %(default)g)"
    group.add_argument("--max-page-seconds", metavar="S", type=finite, default=Bounds.seconds, help=seconds)
    memory = "reject a page whose cleaning takes more memory"
    command.add_number(group, "--max-page-memory", Bounds.memory, memory, "MIB")
    command.add_number(group, "--max-page-bytes", MAX_PAGE_BYTES, "reject longer pages without loading them")
    documents.add_options(parser, min_chars=200)
    return parser


main = command.main_of(__name__, make_parser, make_corpus)

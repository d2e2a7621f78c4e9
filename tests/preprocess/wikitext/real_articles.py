"""Real dumps as the tests of wikitext read them."""

from preprocess.wikitext.dump import parse_page, read_pages, read_site


def articles(shared_data, folder):
    """The wikitext of a real dump's articles by title."""
    dump = next(path for path in (shared_data / folder).iterdir() if path.suffix in (".bz2", ".gz"))
    site = read_site(dump)
    pages = [parse_page(record, site) for record in read_pages([dump]) if record.data.endswith(b"</page>")]
    return {page.title: page.wikitext for page in pages if not page.is_redirect}

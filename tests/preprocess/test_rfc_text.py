"""The text of an RFC: pages, contents and boilerplate go; sections, titles and paragraphs stay."""

from preprocess.rfc_text import decode, read_memo, replaced_numbers
from tests.preprocess.made_rfc import LONG, make_rfc

DRAWING = "      +------+      +-----+\n      | cup  |----->| tea |\n      +------+      +-----+"
ITEMS = """   o  The first kettle whistles at once, and goes on until somebody
      lifts it.
   o  The second one waits until the first one has come to its end."""
SECTIONS = {
    "1.  Introduction": ["Kettles whistle.  They are hot.", LONG],
    "1.1.  Scope": ["This is about kettles and not about cups, which are mute.", DRAWING],
    "2.  Whistling": ["1. is how a list begins here.", ITEMS],
    "3.0 Security Considerations": "Hot water is hot, and may hurt those who do not take care of themselves.",
    "4.  References": '[1] Nobody, "Nothing", RFC 0.',
    "Appendix A.  A Long Title of an\n             Appendix": "It is short.",
}


def test_sections_come_back_without_pages_and_boilerplate():
    with_pages, without = (read_memo(make_rfc(7, SECTIONS, pages=pages)) for pages in (True, False))
    assert with_pages == without
    assert with_pages.abstract == " ".join("This memo describes how kettles whistle." for _ in range(5))
    found = {section.heading: section.paragraphs for section in with_pages.sections}
    assert list(found) == [
        "1. Introduction",
        "1.1. Scope",
        "2. Whistling",
        "3. Security Considerations",
        "A. A Long Title of an Appendix",
    ]
    assert found["1. Introduction"] == ("Kettles whistle. They are hot.", LONG.strip())  # over the end of a page, too
    assert found["1.1. Scope"] == ("This is about kettles and not about cups, which are mute.", "| cup |----->| tea |")
    assert found["2. Whistling"] == (
        "1. is how a list begins here.",
        "o The first kettle whistles at once, and goes on until somebody lifts it.",
        "o The second one waits until the first one has come to its end.",
    )
    assert "Nobody" not in with_pages.body
    assert "Maker" not in with_pages.body
    assert "...." not in with_pages.body


def test_numbers_of_sections_go_on_where_those_before_end():
    text = make_rfc(
        7, {"1.  One": LONG, "1978 was a good year for kettles": LONG, "1.  One again": LONG, "2.  Two": LONG}
    )
    assert [section.number for section in read_memo(text).sections] == ["1", "2"]


def test_headings_may_be_indented_where_none_is_at_the_margin():
    text = make_rfc(7, {"   1.  One": LONG, "   2.  Two": LONG})
    assert [section.heading for section in read_memo(text).sections] == ["1. One", "2. Two"]


def test_replaced_documents_are_those_of_the_first_page():
    assert replaced_numbers(
        make_rfc(7, {"1.  A": [LONG, "Replaces\nObsoletes: 99"]}, obsoletes="RFC 12, 345,\n  6 (if any)")
    ) == [12, 345, 6]
    assert replaced_numbers("Replaces: RFC 761     J. Postel 1981\n") == [761]
    assert replaced_numbers("\n" * 70 + "Obsoletes: 5\n") == []


def test_old_files_are_in_latin_1():
    assert decode("Télé".encode()) == decode("Télé".encode("latin-1")) == "Télé"


def test_an_item_of_a_list_is_no_heading():
    item = "3.  Once the water is hot, the kettle has to whistle at once\n    and goes on until somebody comes."
    text = make_rfc(7, {"1.  One": LONG, "2.  Two": ["Three rules:", item], "3.  Three": LONG}, pages=False)
    assert [section.heading for section in read_memo(text).sections] == ["1. One", "2. Two", "3. Three"]

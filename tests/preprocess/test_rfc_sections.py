"""The command rfc_sections: which sentences become questions, and what the data folder holds."""

import json

import pytest

from fairseq_poolingformer.tasks.section_retrieval.examples import SectionSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import rfc_sections
from preprocess.rfc_sections import find_questions, masked
from preprocess.rfc_text import Section
from tests.preprocess.made_rfc import LONG, make_rfc, write_rfcs

ASKED = "A kettle that is hot whistles at once as Section 3.1 of this memo says."
SECTIONS = {
    "1.  Introduction": [ASKED, LONG],
    "2.  Kettles": "They are described in Section 7 of [RFC1] and in Section 9.",
    "3.  Whistles": "A whistle is loud, and Section 2 and Section 3 say why that is so.",
    "3.1.  Time": "At once.",
    "4.  Cups": "Cups do not whistle, which is why this section a reader may leave out.",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as Section 4.2 says", "as Section ? says"),
        ("(see Sections 3.1 and 4, or 5)", "(see Sections ?)"),
        ("Appendix B.2, appendix C", "Appendix ?, appendix ?"),
        ("in this section a reader", "in this section a reader"),
        ("Section 4.e and Section 4-bis", "Section 4.e and Section 4-bis"),
        ("SECTION 4.", "SECTION ?."),
    ],
)
def test_numbers_of_sections_are_masked(text, found):
    assert masked(text) == found


@pytest.mark.parametrize(
    ("sentence", "answer"),
    [
        ("The whistle of a kettle is loud, as Section 3.1 says.", "3.1"),
        ("The whistle of a kettle is loud; appendix A says how loud.", "A"),
        ("The whistle of a kettle is as loud as Section 3.0 says.", "3"),
        ("The whistle of a kettle is loud, as Section 1 says.", None),  # its own
        ("The whistle of a kettle is loud, as Section 8 says.", None),  # there is none
        ("The whistle of a kettle is loud, as [RFC7], Section 3 says.", None),
        ("The whistle of a kettle is loud, as Section 3 of [RFC7] says.", None),
        ("The whistle of a kettle is loud, as Section 3 of RFC 7 says.", None),
        ("The whistle of a kettle is loud, as Section 3 of this memo says.", "3"),
        ("The whistle of a kettle is loud, as Section 3 and Section 3.1 say.", None),
        ("See Section 3.", None),  # too short
    ],
)
def test_a_question_names_one_other_section_of_its_document(sentence, answer):
    others = [Section(number, "Other", ("Nothing.",)) for number in ("2", "3", "3.1", "A")]
    sections = [Section("1", "Own", (sentence,)), *others]
    found = [sections[question.answer].number for question in find_questions(sections)]
    assert found == [answer] * (answer is not None)


def test_the_texts_come_back_masked(tmp_path, gpt2_folder):
    folder = write_rfcs(tmp_path / "RFC", {number: make_rfc(number, SECTIONS) for number in (1, 20)})
    words = ["--input", folder, "--gpt2-bpe", gpt2_folder, "--output-folder", tmp_path / "data", "--workers", 1]
    assert rfc_sections.main([str(word) for word in words]) == 0
    data = tmp_path / "data"
    split, tokenizer = SectionSplit.open(data, "test"), load_tokenizer(data)
    assert SectionSplit.lines(data, "test") == ["rfc20-1"]
    assert tokenizer.decode(split.question[0]) == " " + ASKED.replace("3.1", "?")
    assert split.own[0].tolist() == [0]
    assert split.answer[0].tolist() == [3]
    assert len(split.size[0]) == 5
    assert split.size[0].sum() == len(split.section[0])
    whole = tokenizer.decode(split.section[0])
    assert "Section ? of this memo" in whole
    assert "Section 3.1 of" not in whole
    shown = json.loads(SectionSplit.lines(data, "test", "sections")[0])
    assert shown["sections"][3] == "3.1. Time"
    assert shown["answer"] == 3
    assert shown["id"] == "rfc20-1"
    corpus = json.loads((data / "corpus.json").read_text())
    assert corpus["kind"] == "section_retrieval"
    assert corpus["skipped"]["train"] == {"fewer sentences that name a section than --questions": 1}

"""The ids of a data folder's examples."""

import pytest

from fairseq_poolingformer.tasks.question_answering.predictions import ExampleIds, example_id_text
from tests.tasks.question_answering.folders import random_examples, write_folder

EXAMPLES = random_examples(4)


def test_ids_keep_their_type(tmp_path):
    """Strings of digits, of line breaks and tabs, and of half a character as well."""
    ids = [-75499, "abc", 12, "12", "", "a\tb\r\n\u2028", "\ud800", '"7"', 2**63]
    folder = write_folder(tmp_path, {"valid": EXAMPLES})
    (folder / "valid.id.txt").write_text("".join(example_id_text(name) + "\n" for name in ids), encoding="utf-8")
    found = ExampleIds.read(folder, "valid")
    assert [(name, type(name)) for name in found.example_ids] == [(name, type(name)) for name in ids]
    assert len(found) == len(ids)


@pytest.mark.parametrize("line", ["abc", "1.5", "null", "[1]", ""])
def test_a_line_without_an_id_is_refused(tmp_path, line):
    folder = write_folder(tmp_path, {"valid": EXAMPLES})
    (folder / "valid.id.txt").write_text(f"12\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"valid.id.txt, line 2: .* is no id; preprocess again"):
        ExampleIds.read(folder, "valid")


def test_a_corpus_that_does_not_fit_is_refused(tmp_path):
    folder = write_folder(tmp_path, {"valid": EXAMPLES})
    (folder / "corpus.json").write_text('{"kind": "squad"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus.json: unknown kind 'squad'"):
        ExampleIds.read(folder, "valid")
    (folder / "corpus.json").write_text('{"kind": "tydiqa"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"valid.id.txt, line 1: 1 columns where tydiqa has 2"):
        ExampleIds.read(folder, "valid")

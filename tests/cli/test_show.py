"""poolingformer show, in this process: the demo model, and a model without summaries."""

import pytest

from fairseq_poolingformer.cli import convert, show
from tests.models import tiny_huggingface
from tests.show.test_page import Elements

TEXT = "The Hunba school. It lies in Konwood. It was built by Karga Stontov."


@pytest.fixture
def document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


def run(*arguments) -> int:
    return show.main([*map(str, arguments), "--device", "cpu"])


def test_the_reader_writes_a_summary_and_shows_it(document, capsys):
    assert run("note.txt", "--max-len-b", 8, "--beam", 1) == 0
    assert capsys.readouterr().out.split() == ["note.html"]
    elements = Elements((document / "note.html").read_text(encoding="utf-8"))
    assert [text for _, text in elements.all(**{"class": "passage"})] == TEXT.replace(". ", ".|").split("|")
    assert elements.all(**{"data-row": "0"})
    assert [attributes["data-view"] for attributes, _ in elements.all(role="tab")] == ["cross", "one"]


def test_a_page_does_not_replace_its_document(document, capsys):
    (document / "note.html").write_text(TEXT)
    for arguments in (["note.html"], ["note.txt", "--output", "note.txt"], ["note.txt", "--summary", "note.html"]):
        with pytest.raises(SystemExit, match="2"):
            run(*arguments)
        assert "is an input of this command" in capsys.readouterr().err
    assert (document / "note.html").read_text() == (document / "note.txt").read_text() == TEXT


def test_a_model_without_summaries(document, capsys):
    source = tiny_huggingface.folder(document / "hf", "roberta", max_position_embeddings=102)
    assert run(source, "note.txt") == 1
    assert "transformers itself runs this one" in capsys.readouterr().err
    assert convert.main(["to-fairseq", str(source), "model", "--arch", "longformer_roberta_base"]) == 0
    assert run("model", "note.txt", "--output", "page.html", "--word", "Konwood") == 0  # the folder, as predict has it
    elements = Elements((document / "page.html").read_text(encoding="utf-8"))
    assert [attributes["data-view"] for attributes, _ in elements.all(role="tab")] == ["one"]


def test_mistakes_are_one_sentence(document, capsys):
    for arguments, message in (
        (["no.txt"], "No such file"),
        (["no.pt", "note.txt"], "no.pt: no such checkpoint"),
        ([".", "note.txt"], "a folder, not a checkpoint"),
        (["note.txt", "--word", "absent", "--summary", "note.txt"], "--word 'absent' is not in what the model read"),
    ):
        assert run(*arguments) == 1
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in document.iterdir()) == ["note.txt"]

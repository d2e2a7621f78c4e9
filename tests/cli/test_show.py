"""poolingformer-show, in this process: the demo model, and a model without summaries."""

import pytest
from transformers import AutoTokenizer

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.cli import convert, show, summarize
from fairseq_poolingformer.huggingface.families import FAMILIES
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
    assert run("note.txt", "--max-length", 8, "--beam", 1) == 0
    assert capsys.readouterr().out.split() == ["note.html"]
    elements = Elements((document / "note.html").read_text(encoding="utf-8"))
    assert [text for _, text in elements.all(**{"class": "passage"})] == TEXT.replace(". ", ".|").split("|")
    assert elements.all(**{"data-row": "0"})
    assert [attributes["data-view"] for attributes, _ in elements.all(role="tab")] == ["cross", "one"]


def test_a_model_without_summaries(document, capsys):
    source = tiny_huggingface.folder(document / "hf", "roberta", max_position_embeddings=102)
    assert run(source, "note.txt") == 1
    assert "has full attention" in capsys.readouterr().err
    assert convert.main(["to-fairseq", str(source), "model", "--arch", "longformer_roberta_base"]) == 0
    assert run("model", "note.txt", "--output", "page.html", "--word", "Konwood") == 0  # the folder, as predict has it
    elements = Elements((document / "page.html").read_text(encoding="utf-8"))
    assert [attributes["data-view"] for attributes, _ in elements.all(role="tab")] == ["one"]


def test_a_folder_of_transformers_is_shown_without_a_conversion_and_like_it(document, monkeypatch):
    tiny_huggingface.folder(document / "short", "roberta")
    sizes = {"max_position_embeddings": 102, "window_size": 4, "pooled_layers": "1", "pooled_window_size": 12}
    huggingface.PoolingformerRobertaForMaskedLM.from_short("short", **sizes).save_pretrained("long")
    assert convert.main(["to-fairseq", "long", "model"]) == 0
    monkeypatch.delattr(show, "write_fairseq")
    pages = []
    for number, model in enumerate(("long", "model/model.pt")):
        assert run(model, "note.txt", "--output", f"{number}.html", "--word", "Konwood") == 0
        pages.append((document / f"{number}.html").read_text(encoding="utf-8").replace(model, ""))
    assert pages[0] == pages[1]


@pytest.mark.parametrize("kind", ["bert", "bart"])
def test_families_beside_roberta_are_shown(document, kind):
    family = FAMILIES[f"poolingformer-{kind}"]
    start = f"Poolingformer{family.name}"
    config_class = getattr(huggingface, f"{start}Config")
    sizes = {"hidden_size": 16, "d_model": 16, "num_hidden_layers": 3, "encoder_layers": 3, "decoder_layers": 1}
    sizes |= {"num_attention_heads": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    sizes |= {"vocab_size": 300, "intermediate_size": 16, "pooled_layers": "2", "pad_token_id": 1}
    model = getattr(huggingface, start + ("ForConditionalGeneration" if family.has_decoder else "ForMaskedLM"))(
        config_class(**sizes)
    )
    model.save_pretrained("long")
    tiny_huggingface.folder(document / "short", "roberta")
    AutoTokenizer.from_pretrained("short").save_pretrained("long")
    assert run("long", "note.txt", "--max-length", 4, "--beam", 1) == 0
    assert (document / "note.html").is_file()
    assert summarize.search(show.make_parser().parse_args(["-"]), of_transformers=True) == {}  # the model has its own


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

"""Model cards: Hugging Face's own reader parses them, and they say what the checkpoint is."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.weights.card import model_card
from fairseq_poolingformer.weights.convert import FAMILIES
from tests import lab
from tests.models import tiny_huggingface
from tests.weights.conftest import run

SHAPES = {"weight": (-1, -1), "bias": (-1,)}  # in widths


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A short BART, the Poolingformer that was made from it and trained, and its folder for transformers."""
    path = tmp_path_factory.mktemp("cards")
    source = tiny_huggingface.folder(path / "hf", "bart")
    (source / "README.md").write_text("---\nlicence: mine\n---\nhand-written", encoding="utf-8")
    assert run("to-fairseq", source, path / "fairseq", "--arch", "poolingformer_bart_base") == 0
    checkpoint = load(path / "fairseq" / "model.pt")
    settings = vars(checkpoint["args"])
    settings |= {"pooled_layers": "1", "pooled_window_size": "33", "window_size": "7", "data": str(path / "data")}
    width = settings["encoder_embed_dim"]
    shapes = {f"{letter}_proj.{part}": shape for letter in "qkv" for part, shape in SHAPES.items()}
    shapes |= {f"{letter}_pool_weight": (5, -1) for letter in "kv"}
    for name, shape in shapes.items():
        value = torch.randn([width if size == -1 else size for size in shape])
        checkpoint["model"][f"encoder.layers.1.self_attn.pooled_{name}"] = value
    checkpoint["optimizer_history"][-1]["num_updates"] = 1234
    (path / "run").mkdir()
    torch.save(checkpoint, path / "run" / "best.pt")
    (path / "data").mkdir()
    corpus = {"corpus": "arxiv_pubmed", "examples": {"train": 2000, "valid": 30}}
    (path / "data" / "corpus.json").write_text(json.dumps(corpus), encoding="utf-8")
    convert_trained(path, "summarizer")
    return path


def convert_trained(path, name, *flags):
    """The text of the card of the trained model for transformers."""
    tokenizer = path / "fairseq" / "tokenizer"
    assert run("to-huggingface", path / "run" / "best.pt", path / name, "--tokenizer", tokenizer, *flags) == 0
    return (path / name / "README.md").read_text(encoding="utf-8")


def test_hugging_faces_reader_finds_the_task(folders):
    data = ModelCard.load(folders / "summarizer" / "README.md").data
    assert (data.library_name, data.pipeline_tag) == ("transformers", "summarization")
    assert data.tags == ["long-documents", "poolingformer"]


def test_the_card_has_sizes_windows_data_and_updates(folders):
    text = (folders / "summarizer" / "README.md").read_text(encoding="utf-8")
    rows = dict(
        line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "| |" not in line
    )
    state = load(folders / "run" / "best.pt")["model"]
    tied = ("decoder.embed_tokens.weight", "decoder.output_projection.weight")
    buffers = ("encoder.version", "decoder.version")
    size = sum(value.numel() for name, value in state.items() if name not in (*tied, *buffers))
    # transformers has two rows of positions fewer and a bias of the output
    assert abs(int(rows["parameters"].replace(",", "")) - size) < 1000
    assert rows["layers with level two, from 0"] == "1"
    assert rows["level-two window (tokens per side)"] == "33"
    assert rows["level-one window per layer (tokens per side)"] == "7"
    assert (rows["corpus"], rows["examples"]) == ("`arxiv_pubmed`", "train 2,000, valid 30")
    assert rows["updates"] == "1,234"
    assert str(folders) not in text


def test_a_card_that_somebody_wrote_travels_along_and_one_of_ours_does_not(folders):
    assert (folders / "fairseq" / "SOURCE_README.md").read_text(encoding="utf-8").endswith("hand-written")
    assert "[SOURCE_README.md]" in (folders / "fairseq" / "README.md").read_text(encoding="utf-8")
    assert run("to-fairseq", folders / "summarizer", folders / "back") == 0
    assert not (folders / "back" / "SOURCE_README.md").exists()
    assert (folders / "hf" / "README.md").read_text(encoding="utf-8").endswith("hand-written")


def block(folder, language):
    text = (folder / "README.md").read_text(encoding="utf-8")
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]


def test_the_python_of_a_card_opens_the_model(folders, monkeypatch):
    monkeypatch.chdir(folders)
    names = {}
    exec(block(folders / "summarizer", "python"), names)
    assert type(names["model"]).__name__ == "PoolingformerBartForConditionalGeneration"
    assert names["tokenizer"]("text").input_ids


@pytest.mark.full
@pytest.mark.parametrize("model_type", ["bart", "roberta"])
def test_the_commands_of_a_card_train(model_type, tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type)
    assert run("to-fairseq", source, tmp_path / "new") == 0
    (tmp_path / "new" / "papers").mkdir()
    (tmp_path / "new" / "texts").mkdir()
    for number, split in enumerate(("train", "valid")):
        record = {"document": f"{number} words and more. " * 9, "summary": "some words"}
        (tmp_path / "new" / "papers" / f"{split}.jsonl").write_text(f"{json.dumps(record)}\n" * 2, encoding="utf-8")
        (tmp_path / "new" / "texts" / f"{split}.txt").write_text(record["document"], encoding="utf-8")
    commands = block(tmp_path / "new", "bash").replace("--max-epoch 10", "--max-epoch 1")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    output = lab.call(["bash", "-e", "-c", commands], cwd=tmp_path / "new", PATH=path)
    assert (tmp_path / "new" / "run" / "checkpoint_best.pt").is_file()
    assert ("Generate valid with beam=5" in output) == (model_type == "bart")


def test_a_level_that_is_dropped_is_not_on_the_card(folders):
    text = convert_trained(folders, "led", "--drop-pooled")
    assert "| level two | none |" in text
    assert "tokens in a pool" not in text
    registering = "import fairseq_poolingformer.huggingface"
    assert registering not in text  # LED is transformers' own
    assert registering in (folders / "summarizer" / "README.md").read_text(encoding="utf-8")
    assert ModelCard(text).data.tags == ["long-documents"]


def test_a_converted_checkpoint_has_no_training(folders):
    text = (folders / "fairseq" / "README.md").read_text(encoding="utf-8")
    assert "## Training" not in text
    assert "\n\n\n" not in text
    assert ModelCard(text).data.library_name == "fairseq"


def test_a_longformer_is_a_roberta_on_its_card():
    text = model_card("long", FAMILIES["longformer"], {"max_positions": 4096}, {})
    assert "| reads at most, tokens | 4,096 |" in text
    assert "writes at most" not in text
    assert "A RoBERTa with the attention of [Longformer](" in text
    assert "AutoModelForMaskedLM" in text


def test_the_first_corpus_that_can_be_read_counts(tmp_path):
    folders = {"none": None, "broken": "{", "list": "[1]", "good": '{"corpus": "a"}', "other": '{"corpus": "b"}'}
    for name, text in folders.items():
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "corpus.json").write_text(text, encoding="utf-8")
    data = ":".join(str(tmp_path / name) for name in folders)
    assert "| corpus | `a` |" in model_card("long", FAMILIES["bart"], {"data": data}, {})
    for settings in ({"data": str(tmp_path / "none")}, {}):
        assert "| corpus |" not in model_card("long", FAMILIES["bart"], settings, {})

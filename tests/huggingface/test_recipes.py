"""The Python of docs/huggingface.md, run one block after another with tiny models and texts."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForSeq2SeqLM

from tests.huggingface.test_bart import make, run
from tests.models import tiny_huggingface

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "huggingface.md"
TINY = {  # what the blocks say -> what is run
    "facebook/bart-base": "short",
    "16384": "120",
    'pooled_layers="3-5"': 'pooled_layers="1-2"',
    "bf16=True": 'use_cpu=True, report_to=[], save_strategy="no"',
    "num_train_epochs=10": "num_train_epochs=1",
    "max_length=258": "max_length=12",
}


def blocks():
    return re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def tiny(block):
    for ours, theirs in TINY.items():
        block = block.replace(ours, theirs)
    return block


def test_the_recipes_run(tmp_path, monkeypatch, capsys):
    """Convert and summarize; make a BART long and train it; go back to fairseq."""
    pytest.importorskip("accelerate")
    *_, folder = make(tmp_path / "made")
    shutil.copytree(folder, tmp_path / "summarizer")
    tiny_huggingface.folder(tmp_path / "short", "bart")
    (tmp_path / "paper.txt").write_text("the thing in the thing")
    lines = [json.dumps({"document": "the thing " * 40, "summary": "thing"})] * 3
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    summarize, fine_tune, _ = blocks()
    exec(compile(tiny(summarize), "summarize", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("[")
    shutil.rmtree("summarizer")
    exec(compile(tiny(fine_tune), "fine-tune", "exec"), {})
    assert AutoModelForSeq2SeqLM.from_pretrained("summarizer").config.max_position_embeddings == 120
    assert run("to-fairseq", "summarizer", "back") == 0


def test_the_onnx_recipe_runs(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    from tests.huggingface.test_tools import bart

    monkeypatch.chdir(tmp_path)
    exec(compile(blocks()[2], "export", "exec"), {"model": bart()})
    assert onnxruntime.InferenceSession("encoder.onnx").get_inputs()[0].name == "input_ids"


def test_the_comparison_of_searches_finds_equal_summaries_under_equal_conditions(tmp_path, monkeypatch, capsys):
    make(tmp_path)
    texts = [["the thing", "in the thing"], ["in", "the", "the"]]
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps({"article_text": text}) for text in texts))
    checkpoint, lines = tmp_path / "fairseq" / "model.pt", tmp_path / "lines.jsonl"
    monkeypatch.setattr(sys, "argv", ["searches.py", str(checkpoint), str(lines), "--max-len-b", "8"])
    runpy.run_path(str(ROOT / "benchmarks" / "searches.py"), run_name="__main__")
    assert "generate, fairseq's conditions: 2 of 2 equal" in capsys.readouterr().out

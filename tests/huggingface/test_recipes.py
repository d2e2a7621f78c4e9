"""The Python of the documents on transformers, run one block after another with tiny models and texts."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationConfig,
    ModernBertConfig,
    ModernBertModel,
)

from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerRobertaForSequenceClassification,
)
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.weights import files
from tests.huggingface.test_bart import make
from tests.huggingface.test_tools import assert_same, bart
from tests.models import tiny_huggingface
from tests.weights.conftest import run

ROOT = Path(__file__).parents[2]
TINY = {  # what the blocks say -> what is run
    "facebook/bart-base": "short",
    "16384": "120",
    'pooled_layers="3-5"': 'pooled_layers="1-2"',
    "learning_rate=2e-4": 'learning_rate=1.0, optim="sgd", weight_decay=0.0',  # the update is the gradient
    "warmup_steps=0.1": "warmup_steps=0",
    "bf16=True": 'use_cpu=True, report_to=[], save_strategy="no"',
    "num_train_epochs=10": "num_train_epochs=1",
    "max_length=258": "max_length=12",
}


def blocks(page="huggingface"):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def tiny(block):
    for ours, theirs in TINY.items():
        block = block.replace(ours, theirs)
    return block


def summary_of(paper, folder, fairseq):
    """The summary of the model in ``folder`` for ids by the tokenizer of the fairseq checkpoint's folder."""
    tokenizer, model = load_tokenizer(fairseq), AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokens = torch.tensor([[0, *tokenizer.encode(Path(paper).read_text()).tolist(), 2]])
    settings = {"num_beams": 5, "length_penalty": 2.0, "max_length": 12, "forced_bos_token_id": 0}
    (written,) = model.generate(tokens, **settings).tolist()
    return tokenizer.decode([token for token in written if token > 3])


def after_one_update():
    """The state of a model that is trained on all of train.jsonl at once: the mean over all labels, clipped."""
    model = PoolingformerBartForConditionalGeneration.from_short(
        "short", max_position_embeddings=120, pooled_layers="1-2", window_size="128", pooled_window_size="512"
    )
    tokenizer = AutoTokenizer.from_pretrained("short")
    records = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    sources, targets = (
        [torch.tensor(tokenizer(record[key])["input_ids"]) for record in records] for key in ("document", "summary")
    )
    source, target = (pad_sequence(rows, True, 1.0) for rows in (sources, targets))
    model.train()
    labels = target.masked_fill(target == 1, -100)
    model(source, attention_mask=source.ne(1).long(), labels=labels).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    return model.state_dict()


def test_the_recipes_do_what_they_say(tmp_path, monkeypatch, capsys):
    """Convert and summarize; make a BART long and train it; go back to fairseq."""
    pytest.importorskip("accelerate")
    *_, folder = make(tmp_path / "made")
    shutil.copytree(folder, tmp_path / "summarizer")
    searches = {"summarization": {"num_beams": 7}}
    tiny_huggingface.folder(tmp_path / "short", "bart", dropout=0.0, task_specific_params=searches)
    GenerationConfig(num_beams=3, decoder_start_token_id=2).save_pretrained(tmp_path / "short")
    (tmp_path / "paper.txt").write_text("the thing in the thing")
    lines = [json.dumps({"document": "the thing " * (n + 1), "summary": "thing in " * n}) for n in (1, 3, 7)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    summarize, fine_tune, *_ = blocks()
    exec(compile(tiny(summarize), "summarize", "exec"), {})
    written = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
    assert written == [summary_of("paper.txt", folder, tmp_path / "made" / "fairseq")]
    shutil.rmtree("summarizer")
    torch.manual_seed(4)
    exec(compile(tiny(fine_tune), "fine-tune", "exec"), {})
    torch.manual_seed(4)
    trained, expected = AutoModelForSeq2SeqLM.from_pretrained("summarizer"), after_one_update()
    assert trained.config.max_position_embeddings == 120
    assert (trained.generation_config.num_beams, hasattr(trained.config, "task_specific_params")) == (3, False)
    for name, value in expected.items():
        torch.testing.assert_close(trained.state_dict()[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert run("to-fairseq", "summarizer", "back") == 0
    _, back, _ = files.read_training(Path("back", "model.pt"))
    state = trained.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in back.items() if name in state)
    assert len(state.keys() & back.keys()) > 100


def test_the_pipeline_recipe_opens_what_was_fine_tuned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_huggingface.folder(tmp_path / "short", "roberta")
    short = AutoModelForSequenceClassification.from_pretrained("short", num_labels=3)
    model = PoolingformerRobertaForSequenceClassification.from_short(short, max_position_embeddings=200)
    model.save_pretrained("run")
    AutoTokenizer.from_pretrained("short", model_max_length=198).save_pretrained("run")
    (tmp_path / "contract.txt").write_text("the thing in the " * 200)
    exec(compile(blocks()[2], "pipeline", "exec"), namespace := {})
    (judged,) = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
    inputs = namespace["judge"].tokenizer((tmp_path / "contract.txt").read_text(), truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (1, 198)
    with torch.no_grad():
        score, best = model.eval()(**inputs).logits.softmax(-1)[0].max(-1)
    assert judged == {"label": f"LABEL_{best}", "score": pytest.approx(score.item(), abs=1e-6)}


def test_the_windows_recipe_opens_a_model(tmp_path):
    config = ModernBertConfig(vocab_size=99, hidden_size=24, intermediate_size=48, num_hidden_layers=2, pad_token_id=0)
    ModernBertModel(config).save_pretrained(tmp_path / "short")
    (recipe,) = blocks("band")
    recipe = recipe.replace("answerdotai/ModernBERT-base", str(tmp_path / "short"))
    exec(compile(recipe, "windows", "exec"), namespace := {})
    assert namespace["model"].config._attn_implementation == "band"


@pytest.mark.full
def test_the_export_recipe_gives_what_the_model_computes(monkeypatch):
    """The program that the recipe has ONNX made of, without ONNX."""
    model, exported = bart(), {}
    monkeypatch.setattr(torch.onnx, "export", lambda module, inputs, *a, **k: exported.update(k, of=(module, inputs)))
    exec(compile(blocks()[-1], "export", "exec"), {"model": model})
    program = torch.export.export(*exported["of"], dynamic_shapes=exported["dynamic_shapes"], strict=False)
    assert_same(program.module(), model.get_encoder(), (5, 64, 150))


@pytest.mark.full
def test_the_onnx_recipe_gives_what_the_model_computes(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = bart()
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks()[-1], "export", "exec"), {"model": model})
    session = onnxruntime.InferenceSession("encoder.onnx", providers=["CPUExecutionProvider"])

    def run(tokens, mask):
        (logits,) = session.run(None, {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()})
        return torch.from_numpy(logits)

    assert_same(run, model.get_encoder(), (5, 63, 64, 65, 150))

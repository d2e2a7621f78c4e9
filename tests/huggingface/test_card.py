"""The card beside a model that transformers saves, and what ``from_short`` makes of unusual models."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from transformers import RobertaModel

from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartModel,
    PoolingformerRobertaForMaskedLM,
    card,
)
from tests.huggingface.tiny_models import LEVELS
from tests.models import tiny_huggingface
from tests.weights.conftest import run

HEAD = "---\nlanguage: en\nlicense: apache-2.0\n---\n# A short model\n"


@pytest.fixture
def short(tmp_path):
    folder = tiny_huggingface.folder(tmp_path / "short", "bart")
    (folder / "README.md").write_text(HEAD)
    return folder


def test_saved_models_have_a_card(short, tmp_path):
    model = PoolingformerBartForConditionalGeneration.from_short(short, **LEVELS)
    model.save_pretrained(tmp_path / "long")
    text = (tmp_path / "long" / "README.md").read_text()
    lines = text.splitlines()
    assert lines[0] == "---" == lines[lines[1:].index("---") + 1]
    assert {'license: "apache-2.0"', 'pipeline_tag: "summarization"', 'library_name: "transformers"'} <= set(lines)
    assert "base_model" not in text  # a folder of this machine means nothing to others
    assert f"| `pooled_layers` | {LEVELS['pooled_layers']} |" in text
    again = PoolingformerBartForConditionalGeneration.from_pretrained(tmp_path / "long")
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == text
    (tmp_path / "again" / "README.md").write_text("mine")
    again.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == "mine"


def test_the_card_names_a_model_of_the_hub(short, tmp_path, monkeypatch):
    asked = []

    def cached_file(name, file, **options):
        asked.append((name, file, options["local_files_only"]))
        return short / "README.md"

    monkeypatch.setattr(card, "cached_file", cached_file)
    assert card.source_of("facebook/bart-base", False) == {"base_model": "facebook/bart-base", "license": "apache-2.0"}
    model = tiny_huggingface.model("bart")
    model.config._name_or_path = model.name_or_path = "facebook/bart-base"
    PoolingformerBartModel.from_short(model, **LEVELS).save_pretrained(tmp_path / "long")
    text = (tmp_path / "long" / "README.md").read_text()
    assert 'base_model: "facebook/bart-base"\nlicense: "apache-2.0"\n' in text
    assert "made from `facebook/bart-base`." in text
    assert asked == [("facebook/bart-base", "README.md", local) for local in (False, True)]


def test_the_command_writes_the_card(short, tmp_path):
    (short / "README.md").write_text(HEAD.replace("license", "base_model: facebook/bart-base\nlicense"))
    arguments = ("--max-tokens", 120, "--pooled-layers", "1-2")
    assert run("from-short", short, tmp_path / "long", *arguments) == 0
    text = (tmp_path / "long" / "README.md").read_text()
    assert 'license: "apache-2.0"\nbase_model: "facebook/bart-base"\n' in text
    assert "| `max_position_embeddings` | 120 |" in text


def test_a_head_that_is_lacking_is_named(tmp_path):
    tiny_huggingface.folder(tmp_path / "short", "bart")
    assert type(PoolingformerBartModel.from_short(tmp_path / "short", **LEVELS)) is PoolingformerBartModel
    with pytest.raises(ValueError, match=r"a RobertaModel, without the head of a \w+: load it as a RobertaForMaskedLM"):
        PoolingformerRobertaForMaskedLM.from_short(tiny_huggingface.model("roberta", RobertaModel))


def test_adapters_are_to_be_merged_first():
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(tiny_huggingface.model("bart"), peft.LoraConfig(init_lora_weights=False))
    with pytest.raises(ValueError, match="adapters of PEFT: merge them first"):
        PoolingformerBartForConditionalGeneration.from_short(adapted, **LEVELS)
    merged = adapted.merge_and_unload()
    long = PoolingformerBartForConditionalGeneration.from_short(merged, **LEVELS)
    weight = merged.model.encoder.layers[0].self_attn.q_proj.weight
    assert torch.equal(long.model.encoder.layers[0].self_attn.q_proj.weight, weight)


def test_adapters_inside_the_model_are_to_be_merged_first():
    peft = pytest.importorskip("peft")
    inside = tiny_huggingface.model("bart")
    try:
        inside.add_adapter(peft.LoraConfig(target_modules=["q_proj"]))
    except ValueError as error:
        if "version of PEFT" not in str(error):
            raise
        pytest.skip(f"PEFT {peft.__version__} with transformers {transformers.__version__}: {error}")
    with pytest.raises(ValueError, match="adapters of PEFT: merge them first"):
        PoolingformerBartForConditionalGeneration.from_short(inside, **LEVELS)


def test_what_is_uploaded_has_a_card(short, tmp_path, monkeypatch):
    """transformers uploads a folder inside of ``save_pretrained``, with a card from its template."""
    sent, hub = {}, transformers.utils.hub

    def upload(self, working_dir, *args, **kwargs):
        sent.update({path.name: path.read_bytes() for path in Path(working_dir).iterdir()})

    template = SimpleNamespace(save=lambda path: Path(path).write_text(card.TEMPLATE))
    monkeypatch.setattr(hub.PushToHubMixin, "_upload_modified_files", upload)
    monkeypatch.setattr(
        hub, "hf_api", lambda: SimpleNamespace(create_repo=lambda name, **_: SimpleNamespace(repo_id=name))
    )
    for module in (hub, transformers.modeling_utils):
        monkeypatch.setattr(module, "create_and_tag_model_card", lambda *_, **__: template)
    monkeypatch.setattr(transformers.modeling_utils, "hf_api", hub.hf_api)
    model = PoolingformerBartForConditionalGeneration.from_short(short, **LEVELS)
    for push in (lambda: model.save_pretrained(tmp_path / "long", push_to_hub=True), lambda: model.push_to_hub("long")):
        sent.clear()
        push()
        assert b"Poolingformer" in sent["README.md"]
        assert card.TEMPLATE.encode() not in sent["README.md"]

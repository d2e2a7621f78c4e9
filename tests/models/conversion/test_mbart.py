"""mBART through the converter, and pre-norm Poolingformers, which have mBART's layout."""

import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MBartForConditionalGeneration

from fairseq_poolingformer.models.conversion import ConversionError, files, to_fairseq
from tests.models import tiny_huggingface
from tests.models.conversion.conftest import run
from tests.models.conversion.test_bart import assert_agree, fairseq_outputs, huggingface_outputs, load_fairseq

LEVELS = {"window_size": "3", "pooled_window_size": "8", "pooled_layers": "1-2", "max_source_positions": 50}


@pytest.mark.parametrize("scaled", [False, True])
def test_mbart_has_the_outputs_of_hugging_face_both_ways(tmp_path, scaled):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "mbart", scale_embedding=scaled)
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    model, _ = load_fairseq(tmp_path / "fairseq" / "model.pt")
    source, target = tiny_huggingface.batch()
    theirs = tiny_huggingface.model("mbart", scale_embedding=scaled)
    expected = huggingface_outputs(theirs, source, target)
    assert_agree(fairseq_outputs(model, source, target), expected, source)
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    back, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert type(back) is MBartForConditionalGeneration
    assert not any(value for value in info.values())
    own, again = theirs.state_dict(), back.state_dict()
    assert own.keys() == again.keys()
    assert all(torch.equal(own[name], again[name]) for name in own)
    assert_agree(huggingface_outputs(back.eval(), source, target), expected, source)
    assert AutoTokenizer.from_pretrained(tmp_path / "back")("the thing")["input_ids"][0] == 0


def test_flags_and_old_settings_say_pre_norm(tmp_path):
    source_folder = tiny_huggingface.folder(tmp_path / "hf", "mbart")
    config = json.loads((source_folder / "config.json").read_text())
    published = {"normalize_before": True, "add_final_layer_norm": True}  # as facebook/mbart-large-cc25 has them
    (source_folder / "config.json").write_text(json.dumps({**config, **published}))
    assert run("to-fairseq", source_folder, tmp_path / "fairseq") == 0
    flags = (tmp_path / "fairseq" / "flags.txt").read_text()
    assert "--encoder-normalize-before --decoder-normalize-before" in flags
    state = files.read_huggingface_weights(source_folder)
    with pytest.raises(ConversionError, match="normalize_before is False; fairseq's BART needs True"):
        to_fairseq({**config, "normalize_before": False}, state)

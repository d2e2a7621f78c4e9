"""Summaries in one call, beside ``generate``; the best span, beside all pairs of tokens, one by one."""

import copy
import logging

import pytest
import torch
from transformers import AutoTokenizer

from fairseq_poolingformer.huggingface import PoolingformerBartForConditionalGeneration, summarize
from tests.models import tiny_huggingface

LEVELS = {"pooled_layers": "1", "window_size": "8", "pooled_window_size": "32"}
CONTEXT = "the café in the river, then a bridge; the king (almost) stood there. " * 14
DOCUMENTS = ["the in a thing", "a river " * 30, "the king of the café " * 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_huggingface.folder(tmp_path_factory.mktemp("bart"), "bart")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def writer(folder):
    return PoolingformerBartForConditionalGeneration.from_short(folder, max_position_embeddings=200, **LEVELS)


def test_summaries_are_those_of_generate(writer, tokenizer, folder):
    for options in ({"num_beams": 2, "max_new_tokens": 9}, {"max_new_tokens": 9, "do_sample": False, "num_beams": 1}):
        expected = []
        for text in DOCUMENTS:
            tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=200)
            expected += tokenizer.batch_decode(writer.generate(**tokens, **options), skip_special_tokens=True)
        assert summarize(DOCUMENTS, writer, tokenizer=tokenizer, **options) == expected
        assert summarize(DOCUMENTS, writer, tokenizer=tokenizer, batch_size=2, **options) == expected
        assert summarize(DOCUMENTS[0], writer, tokenizer=tokenizer, **options) == expected[:1]
    assert summarize([], writer, tokenizer=tokenizer) == []
    short = summarize(DOCUMENTS[0], folder, max_new_tokens=5)  # by its folder, a short one of transformers'
    assert short == summarize(DOCUMENTS[0], writer.from_short(folder, window_size="all", pooled_layers="none"),
                              tokenizer=tokenizer, max_new_tokens=5)  # fmt: skip


def test_a_models_own_settings_come_before_the_defaults(writer, tokenizer, monkeypatch):
    given = []
    monkeypatch.setattr(type(writer), "generate", lambda self, **options: given.append(options) or torch.tensor([[2]]))
    summarize("the", writer, tokenizer=tokenizer)
    assert (given[0]["num_beams"], given[0]["max_new_tokens"]) == (4, 256)
    own = copy.deepcopy(writer.generation_config)
    own.update(num_beams=2, max_length=15)
    monkeypatch.setattr(writer, "generation_config", own)
    monkeypatch.setattr(writer.config, "task_specific_params", {"summarization": {"prefix": "in a ", "min_length": 3}},
                        raising=False)  # fmt: skip
    summarize("the", writer, tokenizer=tokenizer)
    assert not {"num_beams", "max_new_tokens", "max_length"} & set(given[1])
    assert given[1]["min_length"] == 3
    assert given[1]["input_ids"].tolist() == [tokenizer("in a the")["input_ids"]]


def test_a_text_is_cut_where_the_model_ends_with_a_warning(writer, tokenizer, caplog):
    with caplog.at_level(logging.WARNING):
        found = summarize(["the", CONTEXT], writer, tokenizer=tokenizer, num_beams=1, max_new_tokens=8)
    (message,) = [x.getMessage() for x in caplog.records if "the model reads" in x.getMessage()]
    assert message.startswith("text 1 has ")
    assert message.endswith("the model reads the first 200")
    cut = tokenizer(CONTEXT, truncation=True, max_length=200, return_tensors="pt")
    written = writer.generate(**cut, num_beams=1, max_new_tokens=8)
    assert found[1] == tokenizer.decode(written[0], skip_special_tokens=True)


def test_a_checkpoint_is_converted_first(tmp_path):
    (tmp_path / "checkpoint_best.pt").touch()
    with pytest.raises(ValueError, match=r"best\.pt is a file: poolingformer convert to-huggingface makes a folder"):
        summarize("a text", tmp_path / "checkpoint_best.pt")

"""The pipelines for summaries and answers; run_scripts/test_pipelines.sh compares them with transformers 4.57."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import transformers

from fairseq_poolingformer.huggingface import (
    PoolingformerBartConfig,
    PoolingformerBartForConditionalGeneration,
    PoolingformerBartForQuestionAnswering,
    PoolingformerRobertaConfig,
    PoolingformerRobertaForQuestionAnswering,
)
from fairseq_poolingformer.huggingface.pipelines import answer, summarize
from fairseq_poolingformer.huggingface.spans import best_spans
from run_scripts.former_pipelines import BART, BERT, differences, make_tokenizer, texts
from tests.integration.test_run_scripts import call


@pytest.fixture(scope="module")
def writer():
    torch.manual_seed(0)
    settings = {"max_position_embeddings": 200, "pooled_layers": "1", "window_size": "8", "pooled_window_size": "32"}
    return PoolingformerBartForConditionalGeneration(PoolingformerBartConfig(**BART, **settings)).eval()


@pytest.fixture(scope="module")
def reader():
    torch.manual_seed(0)
    settings = {"type_vocab_size": 1, "max_position_embeddings": 602, "pooled_layers": "1", "window_size": "8"}
    config = PoolingformerRobertaConfig(**{**BERT, **settings}, pooled_window_size="32")
    return PoolingformerRobertaForQuestionAnswering(config).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer("roberta")


def test_summaries_are_those_of_generate(writer, tokenizer):
    documents = texts(3, 40)
    expected = []
    for text in documents:
        tokens = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        written = writer.generate(**tokens, num_beams=2, max_new_tokens=12)
        expected.append(tokenizer.decode(written[0], skip_special_tokens=True))
    options = {"num_beams": 2, "max_new_tokens": 12, "device": "cpu"}
    assert summarize(documents, writer, tokenizer=tokenizer, **options) == expected
    assert summarize(documents, writer, tokenizer=tokenizer, batch_size=3, **options) == expected
    assert summarize(documents[0], writer, tokenizer=tokenizer, **options) == expected[:1]
    assert summarize([], writer, tokenizer=tokenizer, **options) == []
    pipe = transformers.pipeline("summarization", model=writer, tokenizer=tokenizer, device="cpu")
    assert [each["summary_text"] for each in pipe(documents, num_beams=2, max_new_tokens=12)] == expected
    (of_one,) = pipe(documents[0], num_beams=2, max_new_tokens=12, return_tensors=True)
    assert tokenizer.decode(of_one["summary_token_ids"], skip_special_tokens=True) == expected[0]


def test_a_text_is_cut_where_the_model_ends_with_a_warning(writer, tokenizer, caplog):
    document = " ".join(texts(20, 40))
    with caplog.at_level(logging.WARNING):
        found = summarize(["short", document], writer, tokenizer=tokenizer, num_beams=1, max_new_tokens=8, device="cpu")
    (message,) = [x.getMessage() for x in caplog.records if "the model reads" in x.getMessage()]
    assert message.startswith("text 1 has ")
    assert message.endswith("the model reads the first 200")
    tokens = tokenizer(document, truncation=True, max_length=200, return_tensors="pt", return_token_type_ids=False)
    written = writer.generate(**tokens, num_beams=1, max_new_tokens=8)
    assert found[1] == tokenizer.decode(written[0], skip_special_tokens=True)


def test_models_without_decoder_write_nothing(reader, tokenizer):
    with pytest.raises(ValueError, match="writes no text from a text"):
        transformers.pipeline("summarization", model=reader, tokenizer=tokenizer, device="cpu")


def test_answers_are_words_of_the_context(reader, tokenizer):
    context, questions = texts(1, 300, seed=3)[0], texts(3, 8)
    found = answer(questions, context, reader, tokenizer=tokenizer, device="cpu", max_seq_len=64, doc_stride=16)
    for each in found:
        assert each["answer"] == context[each["start"] : each["end"]]
        assert each["score"] >= 0.0
        assert 0.0 <= each["no_answer_score"] <= 1.0
    options = {"max_seq_len": 64, "doc_stride": 16, "device": "cpu"}
    assert answer(questions[1], context, reader, tokenizer=tokenizer, **options) == found[1]
    batched = answer(questions, context, reader, tokenizer=tokenizer, batch_size=5, **options)
    assert not [*differences(found, batched)]


def test_long_models_read_the_context_at_once(reader, tokenizer):
    context = " ".join(texts(12, 60, seed=8))
    tokens = tokenizer("Who?", context, truncation="only_second", max_length=500, return_token_type_ids=False)
    end = tokens.token_to_chars(0, 498).end  # the text up to the last token
    tokens = tokenizer("Who?", context[:end], return_tensors="pt", return_token_type_ids=False)
    assert 384 < tokens["input_ids"].size(1) <= 512
    with torch.no_grad():
        output = reader(**tokens)
    allowed = [place == 1 or not token for token, place in enumerate(tokens.sequence_ids())]
    logits = output.start_logits[0], output.end_logits[0]
    [(first, last, score)], none = best_spans(*logits, allowed, count=1, longest=15)
    found = answer("Who?", context[:end], reader, tokenizer=tokenizer, device="cpu", handle_impossible_answer=False)
    assert found["no_answer_score"] == pytest.approx(none, rel=1e-4)
    assert context[tokens.token_to_chars(first).start : tokens.token_to_chars(last).end] in found["answer"]
    assert found["score"] >= score * (1 - 1e-4)


def test_readers_with_a_decoder_read_as_much_as_both_sides_take(tokenizer):
    sizes = {**BART, "max_position_embeddings": 600, "max_decoder_position_embeddings": 500, "pooled_layers": "1"}
    model = PoolingformerBartForQuestionAnswering(PoolingformerBartConfig(**sizes)).eval()
    read = []
    model.register_forward_pre_hook(lambda _, inputs, given: read.append(given["input_ids"].size(1)), with_kwargs=True)
    answer("Who?", " ".join(texts(12, 60, seed=8)), model, tokenizer=tokenizer, device="cpu")
    assert max(read) == 500


def test_wrong_calls_end_in_a_sentence(reader, tokenizer):
    pipe = transformers.pipeline("question-answering", model=reader, tokenizer=tokenizer, device="cpu")
    with pytest.raises(ValueError, match="question and a context"):
        pipe(question=["a", "b"], context=["c"])
    with pytest.raises(ValueError, match="both text"):
        pipe(question="a", context="")
    with pytest.raises(ValueError, match="at least 1"):
        pipe(question="a", context="b", top_k=0)
    with pytest.raises(ValueError, match="no argument max_answer_length"):
        pipe(question="a", context="b", max_answer_length=3)
    with pytest.raises(ValueError, match="less than the 20 tokens"):
        pipe(question="a", context="b", max_seq_len=20, doc_stride=20)


def test_the_script_compares_both_environments():
    output = call("test_pipelines.sh", "dry_run=1", "out=/out", "venv=/new", "old_venv=/old")
    assert "/old/bin/python -m pip install" in output
    steps = ("/new/bin/python", "former_pipelines.py make"), ("/old/bin/python", "former_pipelines.py"), ("compare",)
    assert all(part in output for step in steps for part in step)


@pytest.mark.parametrize(("old", "new", "number"), [
    ([{"score": 0.5, "a": "x"}], [{"score": 0.5 + 1e-7, "a": "x"}], 0),
    ([{"score": 0.5, "a": "x"}], [{"score": 0.6, "a": "y"}], 2),
    ([1, 2], [1], 1),
    ({"a": 1}, {"b": 1}, 1),
])  # fmt: skip
def test_differences_are_counted(old, new, number):
    assert len([*differences(old, new)]) == number


def test_a_models_own_settings_come_before_the_pipelines(writer, tokenizer):
    document = texts(1, 40)[0]
    tokens = tokenizer(document, return_tensors="pt", return_token_type_ids=False)
    expected = tokenizer.decode(writer.generate(**tokens, num_beams=4, max_new_tokens=256)[0], skip_special_tokens=True)
    assert summarize(document, writer, tokenizer=tokenizer, device="cpu") == [expected]
    own = copy.deepcopy(writer.generation_config)
    try:
        writer.generation_config.update(num_beams=2, max_length=15)
        expected = tokenizer.decode(writer.generate(**tokens)[0], skip_special_tokens=True)
        assert summarize(document, writer, tokenizer=tokenizer, device="cpu") == [expected]
    finally:
        writer.generation_config = own

"""A model object of transformers, beside the same one in fairseq."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.huggingface.families import FAMILIES
from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from fairseq_poolingformer.show import look
from fairseq_poolingformer.show.looks import CROSS, ONE, TWO
from tests.huggingface.tiny_models import word_tokenizer
from tests.models import tiny_huggingface
from tests.show.test_recorded import SUMMARY, TEXT

LEVELS = {"window_size": "4", "pooled_window_size": "12", "pooled_layers": "1-2"}
WAYS = {
    "bart": ("PoolingformerBartForConditionalGeneration", PoolingformerBART),
    "roberta": ("PoolingformerRobertaForMaskedLM", PoolingformerRoberta),
}


@pytest.fixture(scope="module", params=list(WAYS))
def both(request, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp(request.param)
    name, ours = WAYS[request.param]
    source = tiny_huggingface.folder(tmp_path / "short", request.param, max_position_embeddings=92)
    torch.manual_seed(0)
    theirs = getattr(huggingface, name).from_short(source, max_position_embeddings=92, **LEVELS)
    theirs.save_pretrained(tmp_path / "long")
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / "long" / file).write_bytes((source / file).read_bytes())
    assert convert.main(["to-fairseq", str(tmp_path / "long"), str(tmp_path / "fairseq")]) == 0
    tokenizer = AutoTokenizer.from_pretrained(source)
    return theirs, tokenizer, ours.from_pretrained(str(tmp_path / "fairseq"))


def test_it_looks_at_the_same_places(both):
    theirs, tokenizer, ours = both
    arguments = {"summary": SUMMARY, "words": ["thing"]}
    actual, expected = look(theirs, TEXT, tokenizer=tokenizer, **arguments), look(ours, TEXT, **arguments)
    assert set(actual.views) == set(expected.views) == ({CROSS, ONE, TWO} if actual.summary else {ONE, TWO})
    for kind, view in expected.views.items():
        assert actual.views[kind].layers == view.layers
        np.testing.assert_allclose(actual.views[kind].weights, view.weights, atol=1e-6)
    np.testing.assert_array_equal(actual.tokens, expected.tokens)
    assert actual.read == expected.read
    for mine, other in zip(actual.words, expected.words, strict=True):
        assert mine.span == other.span
        np.testing.assert_allclose(mine.levels[TWO], other.levels[TWO], atol=1e-6)
    if actual.summary:
        np.testing.assert_allclose(actual.piece_weights, expected.piece_weights, atol=1e-6)


def test_it_writes_the_summary_itself(both):
    theirs, tokenizer, _ = both
    options = {"max_new_tokens": 6, "num_beams": 2}
    result = look(theirs, TEXT, tokenizer=tokenizer, **options)
    assert (result.summary is None) == (not theirs.can_generate())
    if result.summary:
        assert 0 < len(result.pieces) <= 18  # a random model writes broken characters, each three tokens
        (written,) = huggingface.summarize(TEXT, theirs, tokenizer=tokenizer, **options)
        assert result.summary.text == written


def test_mistakes(both):
    theirs, tokenizer, _ = both
    with pytest.raises(ValueError, match=r"give tokenizer=AutoTokenizer"):
        look(theirs, TEXT)
    if theirs.can_generate():
        with pytest.raises(ValueError, match="PoolingformerBartModel writes no summary: give one with summary="):
            look(theirs.base_model, TEXT, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="full attention"):
        look(tiny_huggingface.model("roberta"), TEXT, tokenizer=tokenizer)


def test_every_family_whose_texts_have_two_marks_is_shown():
    marks = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    tokenizer = word_tokenizer("[PAD]", "[CLS]", "[SEP]", "[UNK]", "thing", **marks)
    for kind in ("bert", "electra", "distilbert", "modernbert"):
        config = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "pooled_layers": "2"}
        config |= {"vocab_size": 30, "intermediate_size": 16, "window_size": "4", "pad_token_id": 0}
        start = f"Poolingformer{FAMILIES[f'poolingformer-{kind}'].name}"
        model = getattr(huggingface, f"{start}Model")(getattr(huggingface, f"{start}Config")(**config))
        model.config.bos_token_id = model.config.eos_token_id = None  # as BERT's own
        read = []
        model.get_input_embeddings().register_forward_pre_hook(lambda _, args, read=read: read.append(args[0]))
        assert set(look(model, TEXT, tokenizer=tokenizer).views) == {ONE, TWO}
        assert read[0][0, [0, -1]].tolist() == [1, 2], kind
    config = {"num_layers": 2, "d_model": 16, "vocab_size": 30, "num_heads": 2, "d_kv": 8, "pooled_layers": "1"}
    model = huggingface.PoolingformerT5EncoderModel(huggingface.PoolingformerT5Config(**config))
    with pytest.raises(ValueError, match="PoolingformerT5EncoderModel is not shown: it reads texts without <s>"):
        look(model, TEXT, tokenizer=tokenizer)

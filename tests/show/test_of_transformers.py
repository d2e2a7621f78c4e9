"""A model object of transformers, beside the same one in fairseq."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from fairseq_poolingformer.show import look
from fairseq_poolingformer.show.looks import CROSS, ONE, TWO
from tests.models import tiny_huggingface
from tests.show.test_recorded import SUMMARY, TEXT

LEVELS = {"window_size": "4", "pooled_window_size": "12", "pooled_layers": "1-2"}
WAYS = {
    "bart": ("PoolingformerBartForConditionalGeneration", PoolingformerBART),
    "roberta": ("PoolingformerRobertaForMaskedLM", PoolingformerRoberta),
}


@pytest.fixture(params=list(WAYS))
def both(request, tmp_path):
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
    given = {"summary": SUMMARY, "words": ["thing"]}
    found, expected = look(theirs, TEXT, tokenizer=tokenizer, **given), look(ours, TEXT, **given)
    assert set(found.views) == set(expected.views) == ({CROSS, ONE, TWO} if found.summary else {ONE, TWO})
    for kind, view in expected.views.items():
        assert found.views[kind].layers == view.layers
        np.testing.assert_allclose(found.views[kind].weights, view.weights, atol=1e-6)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert found.read == expected.read
    for mine, other in zip(found.words, expected.words, strict=True):
        assert mine.span == other.span
        np.testing.assert_allclose(mine.levels[TWO], other.levels[TWO], atol=1e-6)
    if found.summary:
        np.testing.assert_allclose(found.piece_weights, expected.piece_weights, atol=1e-6)


def test_it_writes_the_summary_itself(both):
    theirs, tokenizer, _ = both
    found = look(theirs, TEXT, tokenizer=tokenizer, max_length=6, beam=2)
    assert (found.summary is None) == (not theirs.can_generate())
    if found.summary:
        assert 0 < len(found.pieces) <= 18  # a random model writes broken characters, each three tokens


def test_mistakes(both):
    theirs, tokenizer, _ = both
    with pytest.raises(ValueError, match=r"give tokenizer=AutoTokenizer"):
        look(theirs, TEXT)
    if theirs.can_generate():
        with pytest.raises(ValueError, match="PoolingformerBartModel writes no summary: give one with summary="):
            look(theirs.base_model, TEXT, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="full attention"):
        look(tiny_huggingface.model("roberta"), TEXT, tokenizer=tokenizer)

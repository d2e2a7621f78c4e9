"""Where models look, beside transformers' BART and RoBERTa with the same weights."""

import numpy as np
import pytest
import torch

from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from fairseq_poolingformer.show.looks import CROSS, ONE, TWO
from fairseq_poolingformer.show.recorded import look
from tests.models import tiny_huggingface

TEXT = "the thing in there. Is that the thing? And the other éé thing"
SUMMARY = "The thing. In there 1"
WIDE = {"window_size": "64", "pooled_layers": "none"}
WAYS = {"bart": (PoolingformerBART, 90), "roberta": (PoolingformerRoberta, 92)}


@pytest.fixture(scope="module", params=list(WAYS))
def both(request, tmp_path_factory):
    """Transformers' model, and ours with its weights and a window over everything."""
    kind, (model, positions) = request.param, WAYS[request.param]
    path = tmp_path_factory.mktemp(kind)
    changes = {"attn_implementation": "eager", "init_std": 0.4, "initializer_range": 0.4}
    source = tiny_huggingface.folder(path / "hf", kind, max_position_embeddings=positions, **changes)
    arguments = ["to-fairseq", source, path / "fairseq", "--arch", f"poolingformer_{kind}_base"]
    assert convert.main([str(argument) for argument in arguments]) == 0
    theirs = tiny_huggingface.MODELS[kind].from_pretrained(source, attn_implementation="eager").eval()
    return theirs, model.from_pretrained(str(path / "fairseq"), **WIDE).eval(), path / "fairseq"


def by_passage(weights, groups, count):
    """(H, T, S) weights of transformers, summed over the tokens of each passage, the mean of all heads."""
    return np.stack([weights.mean(0)[:, groups == number].sum(1) for number in range(count)], axis=1)


@torch.no_grad()
def test_shares_are_those_of_transformers(both):
    theirs, ours, _ = both
    actual = look(ours, TEXT, summary=SUMMARY)
    count = len(actual.document)
    ids = ours.encode(TEXT)[None]
    groups = np.array([count, *actual.document.of_characters(actual.tokens[:, 0]), count])
    assert [actual.document[number] for number in range(count)] == TEXT.replace(". ", ".|").replace("? ", "?|").split(
        "|"
    )
    if actual.summary is None:
        outputs = theirs(ids, output_attentions=True)
        encoder = outputs.attentions
    else:
        target = ours.encode(SUMMARY)[None]
        outputs = theirs(ids, decoder_input_ids=target.roll(1, 1), output_attentions=True)
        encoder = outputs.encoder_attentions
        cross = np.stack([by_passage(layer[0].numpy(), groups, count + 1)[1:-1] for layer in outputs.cross_attentions])
        np.testing.assert_allclose(actual.piece_weights, cross.mean(0), atol=1e-5)
        rows = actual.summary.of_characters(actual.pieces[:, 0])
        expected = np.stack([cross[:, rows == number].mean(1) for number in range(2)], axis=1)
        np.testing.assert_allclose(actual.views[CROSS].weights, expected, atol=1e-5)
        assert expected.std() > 0.02  # not all alike
    layers = np.stack([by_passage(layer[0].numpy(), groups, count + 1) for layer in encoder])
    expected = np.stack([layers[:, groups == number].mean(1) for number in range(count)], axis=1)
    np.testing.assert_allclose(actual.views[ONE].weights, expected, atol=1e-5)
    assert set(actual.views) == ({ONE} if actual.summary is None else {CROSS, ONE})


@torch.no_grad()
def test_words_and_texts_that_are_cut(both):
    theirs, ours, folder = both
    actual = look(ours, TEXT, summary=SUMMARY, words=["thing"])
    assert [TEXT[slice(*word.span)].strip() for word in actual.words] == ["thing"] * 3
    ids = ours.encode(TEXT)[None]
    if actual.summary is None:
        encoder = theirs(ids, output_attentions=True).attentions
        first = [place for place, (start, end) in enumerate(actual.tokens) if start < 9 and end > 4]
        expected = torch.stack([layer[0].mean(0)[1:-1, 1:-1][first].mean(0) for layer in encoder])
        np.testing.assert_allclose(actual.words[0].levels[ONE], expected, atol=1e-5)
    limit = "max_positions" if actual.summary is None else "max_source_positions"
    levels = {"pooled_layers": "2", "pooled_window_size": "8", "window_size": "4"}
    short = type(ours.model).from_pretrained(str(folder), **{limit: 22, **levels}).eval()
    actual = look(short, TEXT, summary=SUMMARY)
    assert len(actual.tokens) == 20
    assert 0 < actual.read < len(TEXT)
    assert actual.views[TWO].layers == [2]
    read = np.array([start < actual.read for start, _ in actual.document.spans])
    assert not read.all()
    np.testing.assert_allclose(actual.views[TWO].weights.sum(-1)[0], read, atol=1e-5)


def test_mistakes(both):
    _, ours, _ = both
    with pytest.raises(ValueError, match="no text"):
        look(ours, " \n")

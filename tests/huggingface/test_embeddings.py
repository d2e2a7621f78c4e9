"""Embeddings: sentence-transformers around our encoders."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fairseq_poolingformer.huggingface import PoolingformerRobertaForMaskedLM, PoolingformerRobertaModel
from tests.huggingface.tiny_models import ours, short
from tests.models import tiny_huggingface

LEVELS = {"window_size": "3", "pooled_window_size": "8", "pooled_layers": "1-2", "pooled_init": "copy"}
TEXT = "the sea  the 日本 in the morning, é the ring "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Poolingformer of 300 tokens with its tokenizer, made of a tiny RoBERTa."""
    path = tmp_path_factory.mktemp("embeddings")
    short = tiny_huggingface.folder(path / "short", "roberta")
    model = PoolingformerRobertaForMaskedLM.from_short(short, max_position_embeddings=302, **LEVELS)
    model.save_pretrained(path / "long")
    return path / "long"


@pytest.fixture
def sentence_transformer(folder):
    """sentence-transformers' mean pooling around the model."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    transformer = modules.Transformer(str(folder))
    pooling = modules.Pooling(transformer.get_embedding_dimension())
    return sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")


@torch.no_grad()
def test_a_text_is_the_mean_of_its_tokens(sentence_transformer, folder):
    model, tokenizer = PoolingformerRobertaModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    assert sentence_transformer.max_seq_length == 300
    texts = ["the ring", TEXT, "  é  ", "a" * 298]
    for text, vector in zip(texts, sentence_transformer.encode(texts, convert_to_tensor=True), strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        torch.testing.assert_close(vector, expected, rtol=0, atol=1e-6)
    longer = sentence_transformer.encode(["a" * 298, "a" * 400])  # it cuts what is longer
    np.testing.assert_allclose(longer[1], longer[0], rtol=0, atol=1e-6)


def test_sentence_transformers_trains_and_saves(sentence_transformer, tmp_path):
    losses_of = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    pairs = [
        ("the sea", "the sea in the morning"),
        ("日本", "in 日本 the"),
        ("ring", "a ring, a ring"),
        ("é", "é é é é"),
    ]
    loss = losses_of.MultipleNegativesRankingLoss(sentence_transformer)
    optimizer = torch.optim.AdamW(sentence_transformer.parameters(), lr=5e-3)
    sentence_transformer.train()
    level_two = sentence_transformer[0].auto_model.encoder.layer[1].attention.self.pooled_k_proj.weight
    before, losses = level_two.detach().clone(), []
    for _ in range(20):
        sides = [sentence_transformer.preprocess(list(side)) for side in zip(*pairs, strict=True)]
        losses.append(loss(sides, None))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    assert (level_two - before).abs().max() > 1e-4

    sentence_transformer.eval().save(str(tmp_path))
    again = type(sentence_transformer)(str(tmp_path), device="cpu")
    assert type(again[0].auto_model) is PoolingformerRobertaModel
    np.testing.assert_allclose(again.encode([TEXT]), sentence_transformer.encode([TEXT]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["roberta", "bert", "electra", "distilbert", "modernbert"])
def test_cross_encoders_and_embedders_open_the_folders(kind, tmp_path):
    """The three lines, from_short and save_pretrained, make folders that sentence-transformers opens at full length."""
    library = pytest.importorskip("sentence_transformers")
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
    short(kind).float().save_pretrained(tmp_path / "short")
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *"abcdefgh"]
    backend = Tokenizer(WordLevel({word: row for row, word in enumerate(words)}, "[UNK]"))
    backend.pre_tokenizer = Whitespace()
    names = {name: f"[{name[:3].upper()}]" for name in ("cls_token", "sep_token", "unk_token", "pad_token")}
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=30, **names).save_pretrained(tmp_path / "short")
    settings = {"max_position_embeddings": 300, "window_size": "3", "pooled_window_size": "8"}
    longest = 298 if kind == "roberta" else 300

    model = ours(kind, "Model").from_short(tmp_path / "short", **settings)
    model.save_pretrained(tmp_path / "long")
    embedder = library.SentenceTransformer(str(tmp_path / "long"), device="cpu")
    assert (embedder.max_seq_length, type(embedder[0].auto_model)) == (longest, type(model))
    assert (embedder.encode("a b " * 140 + "c") != embedder.encode("a b " * 140 + "d")).any()
    ids = embedder.tokenizer("a b", return_tensors="pt")["input_ids"]
    expected = model.eval()(ids).last_hidden_state[0].mean(0).detach()
    np.testing.assert_allclose(embedder.encode("a b"), expected, rtol=0, atol=1e-5)

    classifier = ours(kind, "ForSequenceClassification")
    classifier.from_short(tmp_path / "short", num_labels=1, **settings).save_pretrained(tmp_path / "classifier")
    encoder = library.CrossEncoder(str(tmp_path / "classifier"), device="cpu")
    assert encoder.max_seq_length == longest
    pairs, labels = [["a b", "c d e", "f g", "h"], ["a", "d", "b c", "a"]], torch.tensor([1.0, 1.0, 0.0, 0.0])
    loss, optimizer = losses.BinaryCrossEntropyLoss(encoder), torch.optim.Adam(encoder.parameters(), lr=3e-3)
    values = []
    for _ in range(30):
        values.append(loss(pairs, labels))
        optimizer.zero_grad()
        values[-1].backward()
        optimizer.step()
    assert values[-1] < 0.5 * values[0]
    actual = encoder.eval().predict(list(zip(*pairs, strict=True)))
    assert actual[:2].min() > actual[2:].max()

"""Embeddings: sentence-transformers around our encoders, and vectors of passages."""

import copy

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, ModernBertConfig, ModernBertModel, PreTrainedTokenizerFast

from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerModernBertModel,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaModel,
    embed_passages,
)
from tests.huggingface.tiny_models import ours, short
from tests.models import tiny_huggingface

LEVELS = {"window_size": "3", "pooled_window_size": "8", "pooled_layers": "1-2", "pooled_init": "copy"}
TEXT = "the sea  the 日本 in the morning, é the ring "
# its tokens, a space shown as in the vocabulary; 日 and 本 have three tokens of a byte each
TOKENS = "<s> t he Ġ s e a Ġ Ġthe Ġ æ Ĺ ¥ æ ľ ¬ Ġ in Ġthe Ġ m o r n ing , Ġ Ã© Ġthe Ġ r ing Ġ </s>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Poolingformer of 300 tokens with its tokenizer, made of a tiny RoBERTa."""
    path = tmp_path_factory.mktemp("embeddings")
    short = tiny_huggingface.folder(path / "short", "roberta")
    model = PoolingformerRobertaForMaskedLM.from_short(short, max_position_embeddings=302, **LEVELS)
    model.save_pretrained(path / "long")
    return path / "long"


@pytest.fixture(scope="module")
def made(folder):
    model = PoolingformerRobertaModel.from_pretrained(folder, add_pooling_layer=False).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("passage", "first", "last"),
    [
        ("the sea", 0, 6),  # <s> is the first one's
        ("sea", 3, 6),  # the space before a word is a token of its own here
        ("日", 9, 12),
        ("本", 13, 15),
        ("本 in", 13, 17),
        ("orn", 21, 23),
        ("é the ring ", 26, 33),  # </s> is the last one's
        ("in", 16, 17),
    ],
)
@torch.no_grad()
def test_a_passage_is_the_mean_of_its_tokens(made, passage, first, last):
    model, tokenizer = made
    batch = tokenizer(TEXT, return_tensors="pt")
    assert " ".join(tokenizer.convert_ids_to_tokens(batch["input_ids"][0])) == TOKENS
    expected = model(**batch).last_hidden_state[0].numpy()[first : last + 1].mean(0)
    start = TEXT.index(passage)
    (found,) = embed_passages(model, tokenizer, TEXT, [(start, start + len(passage))])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    (unit,) = embed_passages(model, tokenizer, TEXT, [(start, start + len(passage))], normalize=True)
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected), rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_blank_inside_of_a_token_does_not_count(made):
    """Tokenizers such as ModernBERT's say that a word's token begins with the blank before it."""
    model, tokenizer = made[0], copy.deepcopy(made[1])
    special = {"special_tokens": [("<s>", 0), ("</s>", 2)]}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", **special)
    batch = tokenizer(TEXT, return_tensors="pt", return_offsets_mapping=True)
    assert batch.pop("offset_mapping")[0, 7:9].tolist() == [[7, 8], [8, 12]]
    hidden = model(**batch).last_hidden_state[0]
    found = embed_passages(model, tokenizer, TEXT, [(4, 9), (9, 12), (7, 8)])
    expected = torch.stack([hidden[4:8].mean(0), hidden[8], hidden[7]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@torch.no_grad()
def test_documents_of_a_batch_are_as_alone(made):
    model, tokenizer = made
    texts = ["the ring", TEXT, "é", "in the sea"]
    spans = [[(0, 3), (4, 8)], [(13, 15)], [], [(0, len("in the sea"))]]
    for side in ("right", "left"):
        tokenizer.padding_side = side
        found = embed_passages(model, tokenizer, texts, spans, batch_size=3)
        assert [tuple(vectors.shape) for vectors in found] == [(2, 24), (1, 24), (0, 24), (1, 24)]
        for text, of_text, vectors in zip(texts, spans, found, strict=True):
            alone = embed_passages(model, tokenizer, text, of_text)
            torch.testing.assert_close(vectors, alone, rtol=0, atol=1e-6)
    tokenizer.padding_side = "right"


def test_gradients_flow(made):
    model, tokenizer = made
    vectors = embed_passages(model, tokenizer, TEXT, [(0, 3)])
    (gradient,) = torch.autograd.grad(vectors.sum(), model.embeddings.word_embeddings.weight)
    assert gradient.abs().sum() > 0


@torch.no_grad()
def test_other_encoders(made):
    """transformers' own; one with level two and rotary positions; one beside a decoder."""
    _, tokenizer = made
    sizes = {"hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    config = ModernBertConfig(vocab_size=len(tokenizer), pad_token_id=1, max_position_embeddings=40, **sizes)
    long = {"max_position_embeddings": 40, "window_size": "3", "pooled_window_size": "8"}
    modernbert = ModernBertModel(config).eval()
    bart = PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart"), **long).eval()
    for model in (modernbert, PoolingformerModernBertModel.from_short(modernbert, **long).eval(), bart):
        encoder = model.get_encoder() if model is bart else model
        expected = encoder(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0, 9:13].mean(0)
        torch.testing.assert_close(embed_passages(model, tokenizer, TEXT, [(13, 14)])[0], expected, rtol=0, atol=1e-6)
        with pytest.raises(ValueError, match="a document has 42 tokens and the model takes 40: cut it"):
            embed_passages(model, tokenizer, "sea" * 13 + "s", [(0, 3)])


@pytest.mark.parametrize(
    ("text", "spans", "message"),
    [
        (TEXT, [(0, 3), (5, 5)], r"document 0 of 43 characters has the span \(5, 5\): give the first"),
        (TEXT, [(0, 44)], r"has the span \(0, 44\)"),
        (TEXT, [(-3, 2)], r"has the span \(-3, 2\)"),
        (TEXT, [(7, 8)], r"document 0 has no token in the span \(7, 8\), ' ': leave it out"),
        (["a", "the"], [[(0, 1)]], r"a list of passages for each of 2 documents, got 1"),
        (["a", "the"], [[(0, 1)], [(0, 4)]], r"document 1 of 3 characters"),
        ("a" * 299, [(0, 1)], r"a document has 301 tokens and the model takes 300"),
    ],
)
def test_what_cannot_be_embedded_is_refused(made, text, spans, message):
    with pytest.raises(ValueError, match=message):
        embed_passages(*made, text, spans)


def test_a_tokenizer_that_does_not_know_places_is_refused(made, monkeypatch):
    model, tokenizer = made
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    with pytest.raises(ValueError, match="does not say where its tokens lie in the text"):
        embed_passages(model, tokenizer, "a", [(0, 1)])


@pytest.fixture
def sentence_transformer(folder):
    """sentence-transformers' mean pooling around the model."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    transformer = modules.Transformer(str(folder))
    pooling = modules.Pooling(transformer.get_embedding_dimension())
    return sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")


def test_a_passage_that_is_the_whole_text_is_sentence_transformers_vector(sentence_transformer, made):
    texts = ["the ring", TEXT, "  é  ", "a" * 298]
    assert sentence_transformer.max_seq_length == 300
    expected = sentence_transformer.encode(texts, convert_to_tensor=True)
    with torch.no_grad():
        found = embed_passages(*made, texts, [[(0, len(text))] for text in texts])
    torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=1e-6)
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


@pytest.mark.parametrize("kind", ["roberta", "bert", "electra", "distilbert", "mpnet", "modernbert"])
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
    longest = 298 if kind in ("roberta", "mpnet") else 300

    model = ours(kind, "Model").from_short(tmp_path / "short", **settings)
    model.save_pretrained(tmp_path / "long")
    embedder = library.SentenceTransformer(str(tmp_path / "long"), device="cpu")
    assert (embedder.max_seq_length, type(embedder[0].auto_model)) == (longest, type(model))
    assert (embedder.encode("a b " * 140 + "c") != embedder.encode("a b " * 140 + "d")).any()

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
    found = encoder.eval().predict(list(zip(*pairs, strict=True)))
    assert found[:2].min() > found[2:].max()

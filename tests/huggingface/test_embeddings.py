"""Embeddings: sentence-transformers around our encoders."""

import numpy as np
import pytest
import torch

from tests.huggingface.tiny_models import ours, short, word_tokenizer


@pytest.mark.parametrize("kind", ["roberta", "bert", "electra", "distilbert", "modernbert"])
def test_cross_encoders_and_embedders_open_the_folders(kind, tmp_path):
    """The three lines, from_short and save_pretrained, make folders that sentence-transformers opens at full length."""
    library = pytest.importorskip("sentence_transformers")
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
    short(kind).float().save_pretrained(tmp_path / "short")
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *"abcdefgh"]
    names = {name: f"[{name[:3].upper()}]" for name in ("cls_token", "sep_token", "unk_token", "pad_token")}
    word_tokenizer(*words, model_max_length=30, **names).save_pretrained(tmp_path / "short")
    settings = {"max_position_embeddings": 300, "window_size": "3", "pooled_window_size": "8"}
    longest = 298 if kind == "roberta" else 300

    model = ours(kind, "Model").from_short(tmp_path / "short", **settings)
    model.save_pretrained(tmp_path / "long")
    embedder = library.SentenceTransformer(str(tmp_path / "long"), device="cpu")
    assert (embedder.max_seq_length, type(embedder[0].auto_model)) == (longest, type(model))
    assert (embedder.encode("a b " * 140 + "c") != embedder.encode("a b " * 140 + "d")).any()
    ids = embedder.tokenizer("a b", return_tensors="pt")["input_ids"]
    expected = model.eval()(ids).last_hidden_state[0].mean(0).detach()
    np.testing.assert_allclose(embedder.encode(["a b", "c d e f"])[0], expected, rtol=0, atol=1e-5)  # beside padding
    embedder.save(str(tmp_path / "saved"))
    again = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert type(again[0].auto_model) is type(model)
    np.testing.assert_allclose(again.encode("a b"), embedder.encode("a b"), rtol=0, atol=1e-6)

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

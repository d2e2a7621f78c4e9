"""Masks: their shares against fairseq's, words by hand, characters by the text."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, ListDataset, MaskTokensDataset

from fairseq_poolingformer.text.masking import Masking, SymbolTable
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, SentencePieceTokenizer
from tests.text.tiny_gpt2 import TEXT, train_sentencepiece

WORDS = [b"", b"", b"", b"", b" the", b" long", b"er", b"\n", b"Word", b" \xe6\xb3", b"\xa8", b"", b""]
BOS, EOS, THE, LONG, ER, LINE, WORD, PART, REST, SPARE, MASK = 0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12


def test_a_symbol_table_by_hand():
    table = SymbolTable.of(WORDS)
    assert np.flatnonzero(table.has_text).tolist() == [THE, LONG, ER, LINE, WORD, PART, REST]
    assert np.flatnonzero(table.begins_word).tolist() == [THE, LONG, LINE, PART]
    assert np.flatnonzero(table.ends_line).tolist() == [LINE]
    assert table.num_characters.tolist() == [0, 0, 0, 0, 4, 5, 2, 1, 4, 2, 0, 0, 0]
    # words begin at spaces, after line ends and beside special symbols
    symbols = SymbolTable.of([b"", b"a", b"b\n", b" c"])
    assert symbols.words(np.array([0, 1, 1, 2, 1, 3, 1, 0, 0, 1])).tolist() == [0, 1, 1, 1, 2, 3, 3, 4, 5, 6]
    assert symbols.words(np.array([1, 3])).tolist() == [0, 1]
    assert symbols.words(np.array([], dtype=int)).tolist() == []


def test_whole_words_by_hand():
    masking = Masking(SymbolTable.of(WORDS), MASK, 0.5, 0.0, 0.0, whole_words=True)
    # a block that begins inside a word; a new line; a character of two tokens
    tokens = np.array([BOS, ER, ER, THE, LONG, ER, LINE, WORD, ER, PART, REST, SPARE, REST, EOS])
    words = [[1, 2], [3], [4, 5], [6], [7, 8], [9, 10], [12]]
    drawn = []
    for seed in range(200):
        masked, is_target = masking.apply(tokens, np.random.default_rng(seed))
        assert (masked == np.where(is_target, MASK, tokens)).all()
        whole = [word for word in words if is_target[word].all()]
        assert sorted(k for word in whole for k in word) == np.flatnonzero(is_target).tolist()
        drawn.append(len(whole))
    assert set(drawn) == {3, 4}  # half of seven words
    assert 0.4 < np.mean(drawn) - 3 < 0.6


def rates(tokens, read, target):
    """Shares of: tokens predicted; of these masked, left, replaced; over all blocks."""
    tokens, read, target = (np.concatenate(rows) for rows in (tokens, read, target))
    chosen = target != 1
    assert (target[chosen] == tokens[chosen]).all()
    assert (read[~chosen] == tokens[~chosen]).all()
    masked, same = read[chosen] == tokens.max() + 1, read[chosen] == tokens[chosen]
    return [chosen.mean(), masked.mean(), same.mean(), (~masked & ~same).mean()], read[chosen][~masked & ~same]


@pytest.mark.parametrize("whole_words", [False, True])
def test_shares_are_fairseqs(whole_words):
    """fairseq's own masking, on text without special symbols, which it would mask as well."""
    rng, dictionary = np.random.default_rng(0), Dictionary()
    for number in range(100):
        dictionary.add_symbol(f"w{number}")
    mask = dictionary.add_symbol("<mask>")
    table = SymbolTable.of([b""] * 4 + [b" a" if n % 3 else b"b" for n in range(100)] + [b""])
    blocks = [rng.integers(4, 104, 400) for _ in range(150)]
    for block in blocks:
        block[:2] = 5, 103  # a word's beginning; the largest index, for rates()
    texts = ListDataset([torch.from_numpy(block) for block in blocks], [400] * len(blocks))
    begins = torch.tensor(table.begins_word.astype(np.uint8)) if whole_words else None
    settings = {"pad_idx": 1, "mask_idx": mask, "mask_whole_words": begins}
    theirs = [MaskTokensDataset(texts, dictionary, return_masked_tokens=x, **settings) for x in (False, True)]
    expected, _ = rates(blocks, *([dataset[n].numpy() for n in range(len(blocks))] for dataset in theirs))
    masking = Masking(table, mask, whole_words=whole_words)
    ours = [masking.apply(block, np.random.default_rng([n])) for n, block in enumerate(blocks)]
    targets = [np.where(is_target, block, 1) for block, (_, is_target) in zip(blocks, ours, strict=True)]
    shares, replaced = rates(blocks, [masked for masked, _ in ours], targets)
    # 9,000 tokens are predicted: three standard deviations of the difference of two such shares
    assert shares == pytest.approx(expected, abs=3 * (2 * 0.25 / 9000) ** 0.5 * (2 if whole_words else 1))
    assert shares == pytest.approx([0.15, 0.8, 0.1, 0.1], abs=0.02)
    assert set(replaced) <= set(range(4, 104))
    assert len(set(replaced)) > 90


def test_each_block_has_its_share_rounded_by_chance():
    masking = Masking(SymbolTable.of([b""] * 4 + [b"x"] * 10 + [b""]), 14)
    for length, few in ((1000, 150), (10, 1), (2, 0)):
        tokens = np.array([BOS, *np.random.default_rng(0).integers(4, 14, length), EOS])
        counts = [masking.apply(tokens, np.random.default_rng(seed))[1].sum() for seed in range(300)]
        assert set(counts) <= {few, few + 1}
        assert np.mean(counts) == pytest.approx(0.15 * length, abs=0.1)


def test_a_block_without_text_has_no_targets_and_shares_that_are_none_are_refused():
    table = SymbolTable.of(WORDS)
    masked, is_target = Masking(table, MASK, 0.9).apply(np.array([BOS, 3, EOS]), np.random.default_rng(0))
    assert masked.tolist() == [BOS, 3, EOS]
    assert not is_target.any()
    for shares, message in (
        ((0.0,), "mask_prob"),
        ((0.15, 0.6, 0.6), r"at most 1 together, got 0\.6 and 0\.6"),
        ((0.15, 0.1, float("nan")), r"at most 1 together, got 0\.1 and nan"),
    ):
        with pytest.raises(ValueError, match=message):
            Masking(table, MASK, *shares)


def test_gpt2_symbols_have_their_texts_and_characters(gpt2_folder):
    tokenizer = GPT2Tokenizer(*(gpt2_folder / name for name in GPT2Tokenizer.files))
    texts = tokenizer.symbol_texts()
    table = SymbolTable.of(texts)
    assert len(texts) == len(tokenizer)
    text = " ".join(word for word in TEXT.split(" ") if "z" not in word)  # the tiny vocabulary lacks that byte
    ids = tokenizer.encode(text)
    assert b"".join(texts[index] for index in ids).decode() == text
    assert table.num_characters[ids].sum() == len(text)
    assert not table.has_text[:4].any()
    assert table.begins_word[tokenizer.encode(" the")].tolist()[0]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_sentencepiece_symbols_have_their_texts_and_characters(tmp_path, byte_fallback):
    text = "naïve café 注意力 attention that attends to the long document"
    size = 310 if byte_fallback else 50
    model = train_sentencepiece(tmp_path / "sp.model", [text] * 20, size, byte_fallback=byte_fallback)
    tokenizer = SentencePieceTokenizer(model)
    texts = tokenizer.symbol_texts()
    table = SymbolTable.of(texts)
    assert len(texts) == len(tokenizer)
    sentence = "the naïve café 😀 注意" if byte_fallback else "the naïve café 注意"
    ids = tokenizer.encode(sentence)
    assert b"".join(texts[index] for index in ids).decode() == " " + sentence  # sentencepiece puts a space before all
    assert table.num_characters[ids].sum() == len(sentence) + 1
    assert table.begins_word[ids].sum() == len(sentence.split())

import itertools

import numpy as np
import pytest
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, SentencePieceTokenizer
from tests.text.tiny_gpt2 import train_sentencepiece

LINES = [
    "the long document attends to the numbers 12 and 345",
    "naïve café e\u0301té Größe",
    "注意力機構は長い文書を要約する",
    "การให้ความสนใจ เอกสาร",
    "الانتباه إلى الوثيقة الطويلة",
    "한국어 문서 हिन्दी दस्तावेज़ తెలుగు",
]
BLANKS = " \t\n\r\xa0\u3000\u2003\u200b\ufeff"
LETTERS = "abcdefgh the12.,-éßцж注意力機構การ้ให์الانتباهِ한국어हिन्दी్ఁ😀🇩👨\u0301\u0308\u093c"
EXPANDING = "ﬁ½㍿…™ﷺｶﾞ´²\u1e9b\u0323"  # one character gives several, or several one
ODD = "\x00\x01\x7f\x85\u200c\u200d\u2028\u2581\ud800\ufffd<>|"


def texts(alphabet, *others):
    run = st.one_of(st.sampled_from(LINES), st.text(st.sampled_from(alphabet), max_size=12), *others)
    return st.lists(run, max_size=6).map("".join)


USUAL = texts(BLANKS + LETTERS)
ANY = texts(BLANKS + LETTERS + EXPANDING + ODD, st.text(max_size=4))


@pytest.fixture(scope="module", params=["unigram", "bpe", "identity"])
def sentencepiece_tokenizer(request, tmp_path_factory):
    plain = request.param == "identity"
    options = {"model_type": "unigram" if plain else request.param, "byte_fallback": True}
    options |= {"normalization_rule_name": "identity" if plain else "nmt_nfkc", "remove_extra_whitespaces": not plain}
    path = tmp_path_factory.mktemp("spm") / "any.model"
    return SentencePieceTokenizer(train_sentencepiece(path, LINES * 20, 400, **options))


@pytest.fixture(scope="module")
def gpt2(gpt2_folder):
    """Ours, and fairseq's encoder."""
    encoder = get_encoder(str(gpt2_folder / "encoder.json"), str(gpt2_folder / "vocab.bpe"))
    return GPT2Tokenizer.from_files(gpt2_folder), encoder


def check(tokenizer, text):
    """Check the offsets that every tokenizer must give; returns the bytes and their offsets."""
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert ids.tolist() == tokenizer.encode(text).tolist()
    assert ids.dtype == starts.dtype == ends.dtype == np.int64
    data = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    assert len(ids) == len(starts) == len(ends)
    assert (starts <= ends).all()
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert not len(ids) or (starts[0] >= 0 and ends[-1] <= len(data))
    return data, starts, ends


@given(text=ANY)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_gpt2_tokens_are_the_characters_of_their_bytes(gpt2, text):
    """Without the white space before them; a token of white space alone is empty."""
    tokenizer, encoder = gpt2
    data, starts, ends = check(tokenizer, text)
    clean = data.decode()
    number_of_byte = [number for number, char in enumerate(clean) for _ in char.encode()]
    first_byte = [len(clean[:number].encode()) for number in range(len(clean) + 1)]
    position = 0
    expected = []
    for token in encoder.encode(clean):
        size = len(encoder.decoder[token])  # a character of it is a byte
        inside = sorted({number_of_byte[byte] for byte in range(position, position + size)})
        end = inside[-1] + 1
        while inside and clean[inside[0]].isspace():
            inside.pop(0)
        expected.append((first_byte[inside[0] if inside else end], first_byte[end]))
        position += size
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == expected
    assert position == len(data)


@given(text=USUAL)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_sentencepiece_tokens_are_their_piece_of_the_text(sentencepiece_tokenizer, text):
    """Tokens that share a character have the same offsets; together they are that text, normalized."""
    processor = sentencepiece_tokenizer._processor
    data, starts, ends = check(sentencepiece_tokenizer, text)
    pieces = processor.encode(data.decode(), out_type=str)
    spans = list(zip(starts.tolist(), ends.tolist(), pieces, strict=True))
    for (start, end), group in itertools.groupby(spans, key=lambda span: span[:2]):
        pieces = [piece for _, _, piece in group]
        surface = data[start:end].decode()  # whole characters
        expected = processor.normalize(surface).strip(" \u2581")
        assert processor.decode_pieces(pieces).strip(" \u2581") == expected


@given(text=ANY)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_sentencepiece_tokens_hold_all_of_the_text(sentencepiece_tokenizer, text):
    data, starts, ends = check(sentencepiece_tokenizer, text)
    processor = sentencepiece_tokenizer._processor
    held = np.zeros(len(data) + 1, int)
    np.add.at(held, starts, 1)
    np.add.at(held, ends, -1)
    held = np.cumsum(held) > 0
    position = 0
    for char in data.decode():
        size = len(char.encode())
        if processor.normalize(char).strip(" \u2581"):
            assert held[position : position + size].all(), (char, position)
        position += size


CASES = [
    *(("  the\tcat\n\nsat", "cat"), ("Bis 1998\xa0km weit", "km"), ("a ½ liter", "½"), ("the eﬁ ﬁx", "ﬁx")),
    *(("x \U0001f468\u200d\U0001f469 y", "\U0001f468"), ("ประเทศ ไทย มี", "ไทย"), ("東京　大学", "大学")),
    *(("e\u0301te\u0301 ete", "e\u0301te\u0301"), ("(الوثيقة)", "الوثيقة")),
]


@pytest.mark.parametrize("kind", ["sentencepiece", "gpt2"])
@pytest.mark.parametrize(("text", "answer"), CASES)
def test_an_answer_comes_back(kind, sentencepiece_tokenizer, gpt2, text, answer):
    tokenizer = sentencepiece_tokenizer if kind == "sentencepiece" else gpt2[0]
    data, starts, ends = check(tokenizer, text)
    start = data.index(answer.encode())
    end = start + len(answer.encode())
    inside = np.flatnonzero((ends > start) & (starts < end) & (ends > starts))
    assert data[starts[inside[0]] : ends[inside[-1]]].decode() == answer

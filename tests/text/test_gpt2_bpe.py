import json
import random
import shutil
import time
import unicodedata

import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

from fairseq_poolingformer.text import gpt2_bpe
from fairseq_poolingformer.text.tokenizer_base import TokenizerConfig
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, load_tokenizer

TEXTS = [
    *("", " ", "\n", "   ", "the long document", " the long document ", "  two  spaces,   three    four  "),
    "lines\nof\n\ntext\n\n\n with \n spaces \r\n and\ttabs\t\t \t mixed\n",
    "it's they're we've I'm I'll he'd don't 'S 'RE o'clock ''s '''t' s",
    "12 1212 3.14 x1y2z3 １２ ½ Ⅻ",
    "foo(bar[0], **kw) -> {...} #!@$%^&*() __init__ == != a/b//c\\d",
    "def f(x):\n    if x:\n        return  1\n\n\n    else:\n\treturn 2\n",
    "naïve café résumé — “quoted” … ‘single’ it’s",
    "注意力機構是、長い文書。การให้ความสนใจ الانتباه لغة עברית हिन्दी",
    "😀 😀😀 👨\u200d👩\u200d👧\u200d👦 🇩🇪 e\u0301\u0301 \u200b \ufeff",
    "\x00 \x01\x1b[0m \x1c\x1d \x1e\x1f \x7f\x80\x85 \xa0\xa0x \u1680 \u2003\u2003y \u2028 \u2029\u202f\u205f\u3000z",
    "<s> </s> <pad> <unk> <mask> <|endoftext|>",
    *("z zz zebra", "\n x\n  y \nz"),
    "é<|endoftext|><|endoftext|> <|endoftext|>\n\n<|endoftext|" * 3,  # a special token of tiktoken, which is text
]


@pytest.fixture(scope="module")
def expected(gpt2_folder):
    """fairseq's way: GPT-2 ids, written as text, looked up in the dictionary."""
    encoder = get_encoder(str(gpt2_folder / "encoder.json"), str(gpt2_folder / "vocab.bpe"))
    dictionary = Dictionary.load(str(gpt2_folder / "dict.txt"))
    index = {i: dictionary.index(str(i)) for i in encoder.decoder}
    return lambda text: [index[i] for i in encoder.encode(text)]


@pytest.fixture
def tokenizer(gpt2_folder):
    return GPT2Tokenizer.from_files(gpt2_folder)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_fairseqs(tokenizer, expected, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert ids.tolist() == expected(text)


def random_text(rng):
    pools = [" \t\n\x0b\r\x85\xa0\u2003\u3000\x1c\x00\u200b", " ", " \n"]
    pools += ["abc 's't're'll", "0123456789 ", "!?.-( \n", "中文ไทยعر ", "😀é "]
    pieces = []
    for _ in range(rng.randint(0, 30)):
        char = chr(rng.randrange(0x110000))
        # Characters without a name may be letters to one Unicode version and not to the next.
        if rng.random() < 0.1 and unicodedata.category(char) not in ("Cn", "Cs", "Co"):
            pieces.append(char)
        pieces += rng.choices(rng.choice(pools), k=rng.randint(1, 6))
    return "".join(pieces)


def test_ids_of_random_text_are_fairseqs(tokenizer, expected):
    rng = random.Random(0)
    for _ in range(2500):
        text = random_text(rng)
        assert tokenizer.encode(text).tolist() == expected(text), repr(text)


@pytest.mark.parametrize("longest", [1, 2, 5])
def test_cutting_long_runs_changes_nothing(tokenizer, expected, monkeypatch, longest):
    monkeypatch.setattr(gpt2_bpe, "_MAX_RUN", longest)
    rng = random.Random(longest)
    texts = [*TEXTS, "a" + " " * 20 + "\x1c" + "\n" * 20, *(random_text(rng) for _ in range(300))]
    assert sum(len(gpt2_bpe._cut_long_runs(text)) > 1 for text in texts) > 100
    for text in texts:
        assert tokenizer.encode(text).tolist() == expected(text), repr(text)


def test_every_token_of_the_vocabulary(tokenizer, expected, gpt2_folder):
    """Tokens that fairseq's merging cannot reach would show here: tiktoken takes a known word as it is."""
    symbols = get_encoder(str(gpt2_folder / "encoder.json"), str(gpt2_folder / "vocab.bpe"))
    for token in list(symbols.encoder)[:: max(1, len(symbols.encoder) // 5000)]:
        text = bytes(symbols.byte_decoder[c] for c in token).decode("utf-8", "replace")
        assert tokenizer.encode(text).tolist() == expected(text), token


def test_decode_round_trips_and_leaves_out_special_symbols(tokenizer, tiny_gpt2_folder, tmp_path):
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert isinstance(again, GPT2Tokenizer)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert again.encode(text).tolist() == ids.tolist()
        assert "z" in text or tokenizer.decode(ids) == text  # which the small dictionary lacks
    ids = tokenizer.encode("the document").tolist()
    assert tokenizer.decode([0, *ids, 2, 1, 1, len(tokenizer) + 5]) == "the document"
    assert tokenizer.decode([*ids, 3]) == "the document<unk>"
    small = GPT2Tokenizer.from_files(tiny_gpt2_folder)
    assert small.encode("z").tolist() == [3]
    assert len(small) == len(Dictionary.load(str(tiny_gpt2_folder / "dict.txt")))
    for text, expected in (("a\ud800b", "a\ufffdb"), ("\ud83d" + "\ude00", "😀")):  # lone surrogates, and a pair
        assert tokenizer.encode(text).tolist() == tokenizer.encode(expected).tolist()


@pytest.mark.parametrize(
    "text",
    ["a" * 10**6, "注意" * 10**5, " \t" * 10**5, " " * (3 * 10**6) + "x", ("x" + "\u3000\n" * 10**6) * 2],
    ids=str.__len__,
)
def test_absurd_runs_take_seconds_at_most(tokenizer, text):
    start = time.perf_counter()
    ids = tokenizer.encode(text)
    assert time.perf_counter() - start < 20
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("dict.txt", lambda text: text + "no-count\n", "dict.txt, line .*symbol count"),
        ("dict.txt", lambda text: text + "12 1\n", "second time"),
        ("vocab.bpe", lambda text: text.replace("\n", "\none two three\n", 1), "vocab.bpe, line 2"),
        ("encoder.json", lambda text: text.replace('"a"', '"aaaa"'), "lacks token 'a'"),
    ],
)
def test_files_that_do_not_fit_are_named(tiny_gpt2_folder, tmp_path, name, change, message):
    folder = tmp_path / "bad"
    shutil.copytree(tiny_gpt2_folder, folder)
    path = folder / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        GPT2Tokenizer.from_files(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_blanks_for_line_breaks_move_no_offset(gpt2_folder, tokenizer, text):
    blank = GPT2Tokenizer.from_files(gpt2_folder, TokenizerConfig("gpt2", "blank"))
    single = text.translate(str.maketrans("\t\n\v\f\r", "     "))
    assert blank.encode(text).tolist() == tokenizer.encode(single).tolist()
    for actual, expected in zip(blank.encode_with_offsets(text), tokenizer.encode_with_offsets(single), strict=True):
        assert actual.tolist() == expected.tolist()
    ids, starts, ends = blank.encode_with_offsets(text)
    pieces = [text.encode()[start:end].decode() for start, end in zip(starts, ends, strict=True)]
    tokens = [blank.decode([token]) for token in ids.tolist()]
    for piece, token in zip(pieces, tokens, strict=True):
        assert piece == token.strip() or "\ufffd" in token or token == "<unk>" or not piece.isascii()


def test_a_folder_keeps_how_white_space_is_read(gpt2_folder, tmp_path):
    blank = GPT2Tokenizer.from_files(gpt2_folder, TokenizerConfig("gpt2", "blank"))
    blank.save(tmp_path / "new")
    load_tokenizer(tmp_path / "new").save(tmp_path / "again")  # as shards are joined
    assert load_tokenizer(tmp_path / "again").encode("a\nb").tolist() == blank.encode("a b").tolist()
    old = tmp_path / "old"
    GPT2Tokenizer.from_files(gpt2_folder).save(old)
    assert json.loads((old / "tokenizer" / "config.json").read_text()) == {"kind": "gpt2"}  # as before the setting
    assert load_tokenizer(old).encode("a\nb").tolist() != blank.encode("a\nb").tolist()
    for config, message in (
        ({"kind": "gpt2", "white_space": "gone"}, "config.json: white_space must be keep, or of gpt2 blank, is 'gone'"),
        ({"kind": "gpt2", "case": "lower"}, "config.json: unknown settings of a tokenizer: case"),
        ({"kind": "sentencepiece", "white_space": "blank"}, "white_space must be keep, or of gpt2 blank, is 'blank'"),
        (["gpt2"], "must hold an object, holds a list"),
        ({}, "unknown kind ''"),
        ({"kind": "words"}, "unknown kind 'words'"),
    ):
        (old / "tokenizer" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=message):
            load_tokenizer(old)

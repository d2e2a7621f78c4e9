"""Segmentation by a unigram model: against Hugging Face's tokenizer, and against sentencepiece on short texts."""

import io
import itertools
import random

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from transformers import XLMRobertaTokenizer

from fairseq_poolingformer.text import unigram
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer
from fairseq_poolingformer.text.unigram import UnigramModel, is_unigram

LINES = [
    "the long document attends to the numbers 12 and 345",
    "naïve café Größe 0000 ffff 9999",
    "注意力機構は長い文書を要約する",
    "الانتباه إلى الوثيقة الطويلة",
]
RARE = ["жщю", "کگچ", "ሀለሐ"]
ALPHABET = "abcdefgh the0129fжщሀ.,-éß\u0301注意力機構文書 ﬁ½…ﷺ\u2581\n\t<>"


def train(path, **options):
    proto = io.BytesIO()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdef01", k=rng.randint(1, 8))) for _ in range(2000)]
    lines = [" ".join(words[k : k + 10]) for k in range(0, len(words), 10)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*LINES * 20, *lines, *RARE]),
        model_writer=proto,
        **{"vocab_size": 400, "hard_vocab_limit": False, "minloglevel": 2, **options},
    )
    path.write_bytes(proto.getvalue())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model as XLM-R's in the folder of a Hugging Face tokenizer."""
    folder = tmp_path_factory.mktemp("xlmr")
    train(folder / "sentencepiece.bpe.model", character_coverage=1.0)
    return folder


def huggingface(folder):
    """Text to the model's own piece numbers; Hugging Face's are one higher, and its unknown piece has the number 3."""
    tokenizer = XLMRobertaTokenizer.from_pretrained(folder)

    def encode(text):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return [0 if index == 3 else index - 1 for index in ids]

    return encode


def load(path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return processor, UnigramModel(processor)


def words(seed):
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdef01", k=rng.randint(4, 14))) for _ in range(300)]


@pytest.fixture(scope="module")
def close(tmp_path_factory):
    """The folder of a model that likes xy|x better than x|yx by a thousandth only."""
    folder = tmp_path_factory.mktemp("close")
    proto = ModelProto.FromString(train(folder / "sentencepiece.bpe.model", character_coverage=1.0).read_bytes())
    for piece, score in {"x": -4.0, "y": -4.0, "xy": -3.0, "yx": -3.001, "xyxy": -20.0}.items():
        proto.pieces.add(piece=piece, score=score)
    (folder / "sentencepiece.bpe.model").write_bytes(proto.SerializeToString())
    return folder


def test_60000_equal_words_have_equal_pieces(close):
    """sentencepiece itself gives other pieces from the 3,215th word on."""
    processor, model = load(close / "sentencepiece.bpe.model")
    one = model.segment(processor.normalize("xyx"))[0]
    assert [processor.id_to_piece(piece) for piece in one] == ["\u2581", "xy", "x"]
    tokenizer = SentencePieceTokenizer(close / "sentencepiece.bpe.model")
    document = "xyx " * 60_000
    assert model.segment(processor.normalize(document))[0] == one * 60_000
    assert tokenizer.encode(document).tolist() == tokenizer.encode("xyx").tolist() * 60_000
    assert tokenizer.encode_with_offsets(document)[0].tolist() == tokenizer.encode(document).tolist()
    assert huggingface(close)(document) == one * 60_000


def test_long_documents_have_huggingfaces_pieces(folder):
    """Every word of a long document has the same pieces as alone."""
    processor, model = load(folder / "sentencepiece.bpe.model")
    pieces, _ = model.segment(processor.normalize(" ".join(words(1) * 20)))
    alone = [model.segment(processor.normalize(word))[0] for word in words(1)]
    assert pieces == list(itertools.chain(*alone)) * 20
    assert list(itertools.chain(*alone)) == huggingface(folder)(" ".join(words(1)))


@given(text=st.lists(st.text(st.sampled_from(ALPHABET), max_size=12), max_size=5).map(" ".join))
@settings(deadline=None, max_examples=100, derandomize=True)
@pytest.mark.parametrize("kind", ["xlmr", "bytes", "symbols", "across", "suffix"])
def test_short_texts_have_sentencepieces_pieces(models, kind, text):
    """The very pieces; or, of segmentations that sentencepiece's rounding cannot tell apart, none that is worse."""
    processor, model = models[kind]
    normalized = processor.normalize(text)
    pieces, sizes = model.segment(normalized)
    expected = processor.encode(text)
    assert sum(sizes) == len(normalized)
    if pieces != expected:
        score, other = (sum(map(processor.get_score, ids)) for ids in (pieces, expected))
        assert len(text) > 3
        assert other - 1e-9 <= score < other + 1e-4


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = {
        "xlmr": {"character_coverage": 0.98},  # characters that it does not know
        "bytes": {"character_coverage": 0.98, "byte_fallback": True},
        "symbols": {"user_defined_symbols": ["the", "<ab>", "注意"], "normalization_rule_name": "identity"},
        "across": {"split_by_whitespace": False, "remove_extra_whitespaces": False},
        "suffix": {"treat_whitespace_as_suffix": True},
    }
    return {kind: load(train(folder / kind, **options)) for kind, options in kinds.items()}


def test_an_unknown_character_is_worse_than_any_piece(tmp_path):
    """By ten, as in sentencepiece: ab|cz at -20 beats abc|z at -1 - 15 - 10."""
    proto = ModelProto.FromString(train(tmp_path / "any.model", character_coverage=1.0).read_bytes())
    del proto.pieces[3:]
    for piece, score in {
        "\u2581": -1.0,
        "a": -15.0,
        "b": -15.0,
        "c": -15.0,
        "ab": -10.0,
        "cz": -10.0,
        "abc": -1.0,
    }.items():
        proto.pieces.add(piece=piece, score=score)
    (tmp_path / "any.model").write_bytes(proto.SerializeToString())
    processor, model = load(tmp_path / "any.model")
    pieces = [processor.id_to_piece(piece) for piece in model.segment("\u2581abcz")[0]]
    assert pieces == ["\u2581", "ab", "cz"] == processor.encode("abcz", out_type=str)


@pytest.mark.parametrize("symbol", ["ab", "abd", "注意"])
@pytest.mark.parametrize("excess", [-0.05, 0.05])
def test_a_user_defined_symbol_counts_a_tenth_for_each_byte_after_its_first(tmp_path, symbol, excess):
    """As in sentencepiece, so that a longer piece with a slightly larger sum wins."""
    longer = -1.0 + 0.1 * (len(symbol.encode()) - 1) + excess
    proto = ModelProto.FromString(train(tmp_path / "any.model", character_coverage=1.0).read_bytes())
    del proto.pieces[3:]
    for piece, score in {"\u2581": -1.0, "c": -1.0, **dict.fromkeys(symbol, -0.001), f"c{symbol}": longer}.items():
        proto.pieces.add(piece=piece, score=score)
    proto.pieces.add(piece=symbol, score=0.0, type=ModelProto.SentencePiece.USER_DEFINED)
    (tmp_path / "any.model").write_bytes(proto.SerializeToString())
    processor, model = load(tmp_path / "any.model")
    pieces = [processor.id_to_piece(piece) for piece in model.segment(f"\u2581c{symbol}")[0]]
    assert pieces == processor.encode(f"c{symbol}", out_type=str)
    assert pieces[1:] == (["c", symbol] if excess < 0 else [f"c{symbol}"])


def test_only_so_many_words_are_remembered(folder, monkeypatch):
    monkeypatch.setattr(unigram, "_CACHED_WORDS", 5)
    processor, model = load(folder / "sentencepiece.bpe.model")
    text = processor.normalize(" ".join(words(3)))
    assert model.segment(text) == model.segment(text)
    assert len(model._known_words) <= 5


def test_only_unigram_models_are_segmented_here(tmp_path):
    for kind in ("unigram", "bpe", "char", "word"):
        assert is_unigram(train(tmp_path / kind, model_type=kind).read_bytes()) == (kind == "unigram")


def test_offsets_of_a_long_document(folder):
    """Each token of a document, from its bytes, is the token of the same bytes alone."""
    tokenizer = SentencePieceTokenizer(folder / "sentencepiece.bpe.model")
    document = " \n".join(words(2) * 20)
    ids, starts, ends = tokenizer.encode_with_offsets(document)
    assert ids.tolist() == tokenizer.encode(document).tolist()
    alone, first, last = tokenizer.encode_with_offsets(" \n".join(words(2)))
    period = len(" \n".join(words(2))) + 2
    shifts = [k * period for k in range(20) for _ in alone]
    assert ids.tolist() == alone.tolist() * 20
    assert (starts - shifts).tolist() == first.tolist() * 20
    assert (ends - shifts).tolist() == last.tolist() * 20

"""Long texts under a sentencepiece model: each word has its pieces as alone, as in Hugging Face's tokenizer."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from transformers import AutoTokenizer, XLMRobertaTokenizer

from fairseq_poolingformer.text import tokenizers
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer
from fairseq_poolingformer.weights import ConversionError
from fairseq_poolingformer.weights.sentencepiece_model import write_huggingface
from tests.text.tiny_gpt2 import train_sentencepiece

LINES = [
    "the long document attends to the numbers 12 and 345",
    "naïve café Größe 0000 ffff 9999",
    "注意力機構は長い文書を要約する",
    "الانتباه إلى الوثيقة الطويلة",
]
RARE = ["жщю", "کگچ", "ሀለሐ"]
ALPHABET = "abcdefgh the0129fжщሀ.,-éß\u0301注意力機構文書 ﬁ½…ﷺ\u2581\n\t<>"


def train(path, **options):
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdef01", k=rng.randint(1, 8))) for _ in range(2000)]
    lines = [" ".join(words[k : k + 10]) for k in range(0, len(words), 10)]
    return train_sentencepiece(path, [*LINES * 20, *lines, *RARE], 400, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model as XLM-R's in the folder of a Hugging Face tokenizer."""
    folder = tmp_path_factory.mktemp("xlmr")
    train(folder / "sentencepiece.bpe.model", character_coverage=1.0)
    return folder


def huggingface(folder):
    """Text to the model's own piece numbers; Hugging Face's are one higher, and its unknown piece has the number 3."""
    tokenizer = XLMRobertaTokenizer.from_pretrained(folder)
    return lambda text: [0 if n == 3 else n - 1 for n in tokenizer(text, add_special_tokens=False)["input_ids"]]


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
    tokenizer, encode = SentencePieceTokenizer(close / "sentencepiece.bpe.model"), huggingface(close)
    document, pieces = "xyx " * 60_000, tokenizer.encode("xyx").tolist()
    assert tokenizer.encode(document).tolist() == pieces * 60_000
    assert tokenizer.encode_with_offsets(document)[0].tolist() == pieces * 60_000
    assert encode(document) == encode("xyx") * 60_000


def test_long_documents_have_huggingfaces_pieces(folder):
    rng = random.Random(1)
    document = " ".join(["".join(rng.choices("abcdef01", k=rng.randint(4, 14))) for _ in range(300)] * 20)
    pieces = SentencePieceTokenizer(folder / "sentencepiece.bpe.model").encode(document)
    assert (pieces - 3).tolist() == [n - 2 for n in huggingface(folder)(document)]


@given(text=st.lists(st.text(st.sampled_from(ALPHABET), max_size=12), max_size=8).map(" ".join))
@settings(deadline=None, max_examples=100, derandomize=True)
@pytest.mark.parametrize("kind", ["xlmr", "bytes", "symbols", "identity", "bpe", "across", "suffix"])
def test_cuts_change_neither_pieces_nor_offsets(models, kind, text):
    def read():
        return [models[kind].encode(text).tolist(), *(x.tolist() for x in models[kind].encode_with_offsets(text))]

    expected = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "STRETCH", 1)  # a cut after every other word
        assert read() == expected


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = {
        "xlmr": {"character_coverage": 0.98},  # characters that it does not know
        "bytes": {"character_coverage": 0.98, "byte_fallback": True},
        "symbols": {"user_defined_symbols": ["the", "<ab>", "注意"]},
        "identity": {"normalization_rule_name": "identity"},
        "bpe": {"model_type": "bpe"},
        "across": {"split_by_whitespace": False, "remove_extra_whitespaces": False},
        "suffix": {"treat_whitespace_as_suffix": True},
    }
    built = {kind: SentencePieceTokenizer(train(folder / kind, **options)) for kind, options in kinds.items()}
    assert [kind for kind, tokenizer in built.items() if tokenizer._cut is None] == ["across", "suffix"]
    return built


@pytest.mark.parametrize(
    "options",
    [
        *({"model_type": kind} for kind in ("bpe", "char", "word")),
        *({name: False} for name in ("add_dummy_prefix", "remove_extra_whitespaces")),
        {"user_defined_symbols": ["[x]"]},
    ],
    ids=str,
)
def test_models_that_transformers_would_read_otherwise_are_not_converted(tmp_path, options):
    model = train(tmp_path / "it", **options)
    with pytest.raises(ConversionError, match="only unigram models of plain pieces and bytes"):
        write_huggingface(tmp_path, model, len(SentencePieceTokenizer(model)) + 1, 512)
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize("rule", ["identity", "nfkc"])
def test_normalizations_are_kept(tmp_path, rule):
    model = train(tmp_path / "it", normalization_rule_name=rule)
    ours = SentencePieceTokenizer(model)
    write_huggingface(tmp_path, model, len(ours) + 1, 512)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*LINES, "ﬁne ½ x²  \t two", " a\u200bb\u00a0c "):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).tolist()

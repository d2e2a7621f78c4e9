import numpy as np
import pytest
import sentencepiece
from fairseq.data import Dictionary

from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer, fingerprint, load_tokenizer
from tests.text.tiny_gpt2 import train_sentencepiece

LINES = [
    "attention attends to the long document",
    "naïve café 注意力機構",
    "def f(x): return x + 1",
    "numbers 12 and 345",
]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model(request, tmp_path_factory):
    options = {"byte_fallback": True, "pad_id": 3, "user_defined_symbols": ["\n", "<sep>"]}
    path = tmp_path_factory.mktemp("spm") / "any.model"
    return train_sentencepiece(path, LINES * 20, 330, model_type=request.param, **options)


def test_dictionary_holds_the_pieces_in_order(model, tmp_path):
    tokenizer = SentencePieceTokenizer(model)
    tokenizer.write_dictionary(tmp_path / "dict.txt")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    assert len(dictionary) == len(tokenizer)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for line in LINES:
        pieces = [dictionary[index] for index in tokenizer.encode(line)]
        assert pieces == processor.encode(line, out_type=str)
    assert not set(dictionary.symbols[4:]) & {"<s>", "</s>", "<unk>", "<pad>"}


@pytest.mark.parametrize("text", [*LINES, "unseen 😀 ж characters\x01", "a\nb", "a\ud800b"])
def test_round_trip_without_unknown_tokens(model, text):
    tokenizer = SentencePieceTokenizer(model)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert ids.min() > 3
    decoded = tokenizer.decode([0, *ids, 2, 1])
    assert decoded.split() == text.replace("\ud800", " ").replace("\x01", "").split()


def test_saved_folder_rebuilds_it_and_faults_are_named(model, tmp_path):
    tokenizer = SentencePieceTokenizer(model)
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert [again.encode(line).tolist() for line in LINES] == [ids.tolist() for ids in tokenizer.encode_batch(LINES)]
    before = fingerprint(tmp_path)
    (tmp_path / "tokenizer" / "sentencepiece.model").write_bytes(b"other")
    assert fingerprint(tmp_path) != before
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"bad.model: not a sentencepiece model"):
        SentencePieceTokenizer(tmp_path / "bad.model")

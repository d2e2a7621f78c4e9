from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_poolingformer.tasks.masked_lm import DOCUMENTS_WITH_TEXT
from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.dictionary import EOS
from preprocess.pipeline.encode import encode_texts
from preprocess.pipeline.records import Example

WORDS = SimpleNamespace(encode_batch=lambda texts: [np.full(len(text.split()), 9) for text in texts])


def test_texts_end_with_eos_and_are_written_for_reading():
    pair = encode_texts(WORDS, Example("an\nid", ("a b", "c\n d\ud800")), PAIRS)
    assert [ids.tolist() for ids in pair.arrays.values()] == [[9, 9, EOS], [9, 9, EOS]]
    assert pair.texts == {"id": "an id", "summary": "c d\ufffd"}
    document = encode_texts(WORDS, Example("x", ("c\n d",)), DOCUMENTS_WITH_TEXT)
    assert document.texts == {"id": "x", "text": "c\n d\n"}


@pytest.mark.parametrize("texts", [("a", ""), (" ", "b")])
def test_a_text_without_tokens_is_refused(texts):
    assert encode_texts(WORDS, Example("x", texts)).reason.startswith("nothing to encode")

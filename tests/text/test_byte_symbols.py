import numpy as np
from fairseq.data import Dictionary

from fairseq_poolingformer.text.byte_symbols import BYTE_SYMBOLS, ID_DTYPE, NEWLINE, NUM_SYMBOLS, SPACE, bytes_to_ids
from fairseq_poolingformer.text.dictionary import smallest_dtype


def test_every_byte_has_the_index_of_its_symbol():
    dictionary = Dictionary()
    for symbol in BYTE_SYMBOLS:
        dictionary.add_symbol(symbol)
    ids = bytes_to_ids(bytes(range(256)))
    assert ids.tolist() == [dictionary.index(str(byte)) for byte in range(256)]
    assert len(dictionary) == NUM_SYMBOLS
    assert (ids.dtype, ID_DTYPE) == (np.uint16, smallest_dtype(NUM_SYMBOLS))
    assert bytes_to_ids(b" \n").tolist() == [SPACE, NEWLINE]
    assert bytes_to_ids(b"").shape == (0,)

"""The dictionary of character language models: a symbol for each byte."""

import numpy as np

from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS

BYTE_SYMBOLS = tuple(str(byte) for byte in range(256))  # in dict.txt the name of a byte is its number
FIRST_BYTE = len(SPECIAL_SYMBOLS)  # index of byte 0
NEWLINE, SPACE = FIRST_BYTE + ord("\n"), FIRST_BYTE + ord(" ")
NUM_SYMBOLS = FIRST_BYTE + len(BYTE_SYMBOLS)
ID_DTYPE = np.dtype(np.uint16)  # fairseq's choice for a dictionary of that size


def bytes_to_ids(text: bytes) -> np.ndarray:
    """(n,) indices of a text's n bytes."""
    return np.frombuffer(text, np.uint8).astype(ID_DTYPE) + ID_DTYPE.type(FIRST_BYTE)

import os

import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import best_fitting_int_dtype

from fairseq_poolingformer.text.dictionary import (
    LONGEST_LINE,
    SPECIAL_SYMBOLS,
    read_counts,
    read_entries,
    read_symbols,
    smallest_dtype,
)


def test_symbols_are_fairseqs_and_a_flag_may_follow_the_count(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("the 90\nn'a 7\n注意 7\na\u00a0b -1\nmadeupword0000 0\n", encoding="utf-8")
    theirs = Dictionary.load(str(path))
    assert list(SPECIAL_SYMBOLS) == theirs.symbols[: theirs.nspecial]
    assert read_symbols(path) == theirs.symbols[theirs.nspecial :]
    assert list(read_counts(path).values()) == theirs.count[theirs.nspecial :]
    path.write_text("a 1\na 2 #fairseq:overwrite\n#fairseq:overwrite 3\n", encoding="utf-8")
    entries = list(read_entries(path, "#fairseq:overwrite"))
    assert entries == [(1, "a", 1, False), (2, "a", 2, True), (3, "#fairseq:overwrite", 3, False)]
    with pytest.raises(ValueError, match=r'line 2: expected "symbol count", found .a 2 #fairseq:overwrite'):
        list(read_entries(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1\nb\n", 'line 2: expected "symbol count", found .b'),
        (b"a 1.5\n", "line 1: expected"),
        (b"a 1\nb 2\na 3\n", "line 3: symbol 'a' is there a second time"),
        (b"</s> 1\n", "line 1: symbol '</s>' is there a second time"),
        (b"a 1\n\xff 2\n", "not UTF-8"),
        (b"x" * LONGEST_LINE + b" 1\n", "line 1: expected"),
        (None, "not a file"),
    ],
)
def test_wrong_files_are_named_with_the_line(tmp_path, content, message):
    path = tmp_path / "dict.txt"
    os.mkfifo(path) if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_counts(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("size", [4, 65_499, 65_500, 2**16, 250_000])
def test_ids_are_stored_as_fairseq_stores_them(size):
    theirs = np.dtype(best_fitting_int_dtype(size))
    assert smallest_dtype(size).itemsize == theirs.itemsize
    assert np.iinfo(smallest_dtype(size)).max >= size

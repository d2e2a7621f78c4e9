"""Files that changed after they were written."""

import random

import pytest

from fairseq_poolingformer.text import digests


@pytest.fixture(params=[100, digests.SMALL_BYTES, digests.SMALL_BYTES + 1, 3 * digests.SMALL_BYTES])
def file(request, tmp_path):
    path = tmp_path / "train.bin"
    path.write_bytes(random.Random(0).randbytes(request.param))
    return path


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("share", [0, 0.31, 0.5, 1])
def test_a_flipped_bit_is_noticed_in_small_files_and_when_reading_whole(file, share):
    expected = digests.describe(file)
    flip(file, int(share * (file.stat().st_size - 1)))
    with pytest.raises(ValueError, match=r"train\.bin: not the file that preprocessing wrote: its bytes have changed"):
        digests.check(file, expected, whole=True)
    if share in (0, 1) or file.stat().st_size <= digests.SMALL_BYTES:
        with pytest.raises(ValueError, match="Restore the file"):
            digests.check(file, expected)


def test_a_cut_file_is_noticed(file):
    expected = digests.describe(file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"bytes instead of"):
        digests.check(file, expected)


def test_a_large_file_written_over_is_noticed_by_its_sample(tmp_path):
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(3 * digests.SMALL_BYTES))
    expected = digests.describe(path)
    for start in range(0, 3 * digests.SMALL_BYTES, 2**19):
        data = bytearray(path.read_bytes())
        data[start : start + 2**16] = b"x" * 2**16
        path.write_bytes(data)
        with pytest.raises(ValueError, match="bytes have changed"):
            digests.check(path, expected)
        path.write_bytes(bytes(3 * digests.SMALL_BYTES))

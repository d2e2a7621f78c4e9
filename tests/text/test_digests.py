import random

import pytest

from fairseq_poolingformer.text.data_folder import SMALL_BYTES, compare, describe


@pytest.mark.parametrize("size", [100, SMALL_BYTES, SMALL_BYTES + 1])
def test_a_changed_file_is_noticed_by_its_size_and_a_small_one_by_its_bytes(size, tmp_path):
    path, content = tmp_path / "train.bin", bytearray(random.Random(0).randbytes(size))
    path.write_bytes(content)
    expected = describe(path)
    compare(path, expected, whole=True)
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="bytes instead of"):
        compare(path, expected)
    for place in (0, size // 3, size - 1):
        content[place] ^= 1
        path.write_bytes(content)
        changed = r"train\.bin: not the file that preprocessing wrote: its bytes have changed. Restore it"
        with pytest.raises(ValueError, match=changed):
            compare(path, expected, whole=True)
        if size > SMALL_BYTES:
            compare(path, expected)
        else:
            with pytest.raises(ValueError, match=changed):
                compare(path, expected)
        content[place] ^= 1

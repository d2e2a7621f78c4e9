"""A record of a split counts the bytes since the one before; a hash or a file divides records."""

import itertools

from preprocess.pipeline.records import Record
from preprocess.pipeline.splits import SplitRecords, hash_of


def test_a_record_of_a_split_counts_the_bytes_since_the_one_before():
    records = [Record("file", number, str(number).encode(), number) for number in range(1, 100)]
    whole, numbers = SplitRecords.of_records(records), []
    for is_valid in (False, True):
        chosen = list(whole.chosen(lambda record, v=is_valid: (hash_of(record.data) < 2**63) == v).records())
        numbers += [record.line for record in chosen]
        read = itertools.accumulate(record.progress for record in chosen)
        assert list(read) == [sum(range(record.line + 1)) for record in chosen]
    assert sorted(numbers) == list(range(1, 100))

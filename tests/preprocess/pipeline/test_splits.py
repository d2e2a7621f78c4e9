import argparse
import itertools

from preprocess.pipeline.records import Record
from preprocess.pipeline.splits import SplitRecords, by_shares, place_of


def test_a_record_of_a_split_counts_the_bytes_since_the_one_before():
    records = [Record("file", number, str(number).encode(), number) for number in range(1, 100)]
    whole, numbers = SplitRecords.of_records(records), []
    for is_valid in (False, True):
        chosen = list(whole.chosen(lambda record, v=is_valid: (place_of(record.data.decode()) < 2**63) == v).records())
        numbers += [record.line for record in chosen]
        read = itertools.accumulate(record.progress for record in chosen)
        assert list(read) == [sum(range(record.line + 1)) for record in chosen]
    assert sorted(numbers) == list(range(1, 100))


def test_splits_by_shares_are_apart_and_all_there_is():
    records = [Record("file", number, str(number).encode(), 1) for number in range(300)]
    args = argparse.Namespace(valid_share=0.2, test_share=0.3, split_seed=0)
    splits, _ = by_shares(args, SplitRecords.of_records(records), lambda record: record.data.decode())
    lines = {split: [record.line for record in part.records()] for split, part in splits.items()}
    assert sorted(itertools.chain(*lines.values())) == list(range(300))
    for split, share in (("train", 0.5), ("valid", 0.2), ("test", 0.3)):
        assert abs(len(lines[split]) / 300 - share) < 0.1


def test_texts_that_differ_in_case_and_blanks_have_one_place():
    assert place_of("A text\n of two") == place_of(" a  TEXT of two") != place_of("a text of two", 1)
    assert place_of("a text oftwo") != place_of("a text of two")

import itertools

import numpy as np
import pytest

from fairseq_poolingformer.tasks.wikihop.data import Order, WikihopExamples, WikihopSplit
from tests.tasks.folders import MARK, SYMBOLS, random_wikihop, write_wikihop

BOS, EOS = SYMBOLS.bos, SYMBOLS.eos


def naive_segments(example, max_positions, max_segments, orders=None):
    """Lists of (token, is global, candidate number), built one token after the other."""
    candidates, supports = example["candidates"], example["supports"]
    orders = orders or (range(len(candidates)), range(len(supports)))
    for size in range(max(map(len, candidates)), -1, -1):
        heads, tails = ([c[:size] for c in candidates], [c[max(0, len(c) - size) :] for c in candidates])
        ends = tails if len(set(map(tuple, tails))) > len(set(map(tuple, heads))) else heads
        prefix = [(BOS, True, 0), (MARK["[q]"], True, 0), *((t, True, 0) for t in example["question"])]
        prefix.append((MARK["[/q]"], True, 0))
        for number in orders[0]:
            prefix.append((MARK["[ent]"], True, number + 1))
            prefix += [(t, True, 0) for t in ends[number]]
            prefix.append((MARK["[/ent]"], True, 0))
        if len(prefix) + 1 <= max_positions - max_positions // 8:
            break
    rest = []
    for number in orders[1]:
        rest += [(EOS, False, 0)] * (2 if rest else 1)
        rest += [(t, False, 0) for t in supports[number]]
    segments = []
    while rest or not segments:
        room = max_positions - 1 - len(prefix)
        segments.append([*prefix, *rest[:room], (EOS, False, 0)])
        rest = rest[room:]
    return segments[:max_segments] if max_segments else segments


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    examples = random_wikihop(60)
    folder = write_wikihop(tmp_path_factory.mktemp("data"), {"valid": examples})
    return examples, WikihopSplit.open(folder, "valid")


@pytest.mark.parametrize(("max_positions", "max_segments"), [(200, 0), (46, 0), (28, 0), (28, 2)])
def test_segments_are_those_built_token_by_token(data, max_positions, max_segments):
    examples, split = data
    cut = WikihopExamples(split, SYMBOLS, max_positions, max_segments)
    assert len(cut) == len(examples)
    for number, example in enumerate(examples):
        expected = naive_segments(example, max_positions, max_segments)
        segments = cut.segments(number)
        columns = [(s.tokens, s.global_mask, s.inputs["candidate"]) for s in segments]
        rows = [list(zip(*(column.tolist() for column in three), strict=True)) for three in columns]
        assert rows == expected
        assert cut.sizes[number] == sum(map(len, expected))
        assert max(map(len, rows)) <= max_positions
        assert cut.inputs(number) == {"num_candidates": len(example["candidates"])}
        assert cut.targets(number) == {"answer": example["answer"][0] if example["answer"] else -1}
    if max_positions == 28:
        assert cut.num_cut
        assert bool(cut.num_shortened) == bool(max_segments)
    assert max(len(cut.segments(k)) for k in range(60)) > 1 or max_positions == 200


def ordered(segments):
    """The candidates' numbers in the order of the first segment, and the tokens behind the prefixes."""
    numbers = segments[0].inputs["candidate"]
    return numbers[numbers > 0].tolist(), [segment.tokens.tolist() for segment in segments]


def test_an_epochs_order_depends_on_seed_epoch_and_id_alone(data):
    examples, split = data
    names = [f"WH_{number}" for number in range(60)]

    def read(seed, epoch, which):
        drawn = WikihopExamples(split, SYMBOLS, 46, names=names, order=Order(seed, names))
        drawn.set_epoch(epoch)
        return {number: ordered(drawn.segments(number)) for number in which}

    epoch_1 = read(1, 1, range(60))
    assert read(1, 1, reversed(range(60))) == epoch_1  # whatever was read before
    for other in (read(1, 2, range(60)), read(2, 1, range(60))):
        assert sum(other[number] != epoch_1[number] for number in range(60)) > 40
    # candidates keep their numbers, and every order is that of a builder that is given it
    for number, example in enumerate(examples):
        sizes = len(example["candidates"]), len(example["supports"])
        orders = [order.tolist() for order in Order(1, names).draw(1, number, *sizes)]
        assert [sorted(order) for order in orders] == [list(range(size)) for size in sizes]
        expected = naive_segments(example, 46, 0, orders)
        assert epoch_1[number][1] == [[token for token, _, _ in segment] for segment in expected]
        assert epoch_1[number][0] == [number for _, _, number in expected[0] if number]
    drawn = {tuple(Order(1, names).draw(epoch, 3, 4)[0]) for epoch in range(400)}
    assert drawn == set(itertools.permutations(range(4)))


MASKED = [[10, 11, 12, 13 + number, 10] for number in range(20)]  # as ___MASK17___ is encoded


def test_masked_candidates_stay_apart(tmp_path, caplog):
    """20 candidates of 5 tokens and two marks each: of 128 tokens, that leaves room for three of the five."""
    example = {"question": [5, 6], "candidates": MASKED, "supports": [[7] * 50], "answer": [3]}
    split = WikihopSplit.open(write_wikihop(tmp_path, {"valid": [example]}), "valid")
    examples = WikihopExamples(split, SYMBOLS, 128)
    tokens = examples.segments(0)[0].tokens
    starts = np.flatnonzero(tokens == MARK["[ent]"]) + 1
    assert [tokens[start : start + 3].tolist() for start in starts] == [candidate[-3:] for candidate in MASKED]
    assert (examples.num_cut, examples.num_same) == (1, 0)
    examples = WikihopExamples(split, SYMBOLS, 80)  # one token each: the last ones are the same, too
    assert (examples.num_cut, examples.num_same) == (1, 1)
    assert "1 examples have candidates cut" in caplog.text
    assert "in 1 of them some candidates are the same then" in caplog.text
    examples = WikihopExamples(split, SYMBOLS, 200)  # 146 tokens: more than half, and whole
    assert (examples.num_cut, len(examples.segments(0))) == (0, 1)
    with pytest.raises(
        ValueError, match=r"valid.question, example WH_0: the question.*than seven eighths of --max-p.* 16"
    ):
        WikihopExamples(split, SYMBOLS, 16, names=["WH_0"])

"""WikiHop's segments, against a builder that works token by token."""

import json

import pytest
import torch

from fairseq_poolingformer.downstream.wikihop import WikihopExamples, WikihopPredictor, WikihopSplit
from tests.downstream.folders import MARK, SYMBOLS, random_wikihop, write_wikihop

BOS, EOS = SYMBOLS.bos, SYMBOLS.eos


def naive_segments(example, max_positions, max_segments):
    """Lists of (token, is global, candidate number), built one token after the other."""
    for size in range(max(map(len, example["candidates"])), -1, -1):
        prefix = [(BOS, True, 0), (MARK["[q]"], True, 0), *((t, True, 0) for t in example["question"])]
        prefix.append((MARK["[/q]"], True, 0))
        for number, candidate in enumerate(example["candidates"], 1):
            prefix.append((MARK["[ent]"], True, number))
            prefix += [(t, True, 0) for t in candidate[:size]]
            prefix.append((MARK["[/ent]"], True, 0))
        if len(prefix) + 1 <= max_positions // 2:
            break
    rest = [(t, False, 0) for support in example["supports"] for t in (EOS, *support)]
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


@pytest.mark.parametrize(("max_positions", "max_segments"), [(200, 0), (46, 0), (38, 0), (38, 2)])
def test_segments_are_those_built_token_by_token(data, max_positions, max_segments):
    examples, split = data
    found = WikihopExamples(split, SYMBOLS, max_positions, max_segments)
    assert len(found) == len(examples)
    for number, example in enumerate(examples):
        expected = naive_segments(example, max_positions, max_segments)
        segments = found.segments(number)
        rows = [
            list(zip(s.tokens.tolist(), s.global_mask.tolist(), s.inputs["candidate"].tolist(), strict=True))
            for s in segments
        ]
        assert rows == expected
        assert found.sizes[number] == sum(map(len, expected))
        assert max(map(len, rows)) <= max_positions
        assert found.inputs(number) == {"num_candidates": len(example["candidates"])}
        assert found.targets(number) == {"answer": example["answer"][0] if example["answer"] else -1}
    if max_positions == 38:
        assert found.num_cut
        assert bool(found.num_shortened) == bool(max_segments)
    assert max(len(found.segments(k)) for k in range(60)) > 1 or max_positions == 200


def test_without_global_attention_no_token_is_global(data):
    found = WikihopExamples(data[1], SYMBOLS, 46, use_global=False)
    assert not any(segment.global_mask.any() for k in range(60) for segment in found.segments(k))


def test_too_many_candidates_for_a_segment_are_refused(data):
    with pytest.raises(
        ValueError, match=r"valid.question, example \d+: the question.*more than half of --max-positions 2"
    ):
        WikihopExamples(data[1], SYMBOLS, 20)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("answer", [7], "example 1: no such candidate"),
        ("answer", [0, 1], "example 1: no such candidate"),
        ("supports", None, "example 1: the sizes do not add up to valid.supports"),
    ],
)
def test_arrays_that_contradict_each_other_are_named(tmp_path, field, value, message):
    examples = random_wikihop(3, seed=1)
    if value is not None:
        examples[1][field] = value
    folder = write_wikihop(tmp_path, {"valid": examples})
    if value is None:
        examples[1]["supports"].append([5])
        other = write_wikihop(tmp_path / "other", {"valid": examples})
        for suffix in (".bin", ".idx"):
            (other / f"valid.supports{suffix}").replace(folder / f"valid.supports{suffix}")
    with pytest.raises(ValueError, match=message):
        WikihopSplit.open(folder, "valid")


def test_predictions_are_candidates_as_they_are_written_in_the_release(tmp_path):
    """A lone surrogate, which JSON can hold, has no UTF-8."""
    folder = write_wikihop(tmp_path, {"valid": random_wikihop(3)})
    names = [["a", "b"], ["長 é", "\ud800"], ["c", "d", "e"]]
    (folder / "valid.candidates.txt").write_text("".join(json.dumps(row) + "\n" for row in names), encoding="utf-8")
    predictor = WikihopPredictor(folder, "valid")
    predictor.add([2, 1], torch.tensor([[1.0, 3.0, 2.0], [0.0, 1.0, -torch.inf]]), {})
    predictor.write(tmp_path / "p.json")
    found = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert list(found.items()) == [("WH_1", "\ud800"), ("WH_2", "d")]

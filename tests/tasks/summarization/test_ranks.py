"""Four gloo processes, in groups of 1 to 4, share documents: training and summaries are those of one process."""

import pytest
import torch

from tests.attention.sharding.test_exchange import SIZE, run_processes
from tests.models.tiny_bart import write_data_folder
from tests.tasks.summarization.ranks import BEAMS, CASES, step, summaries


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """With the results of all processes."""
    return run_processes("tests.tasks.summarization.ranks", tmp_path_factory.mktemp("processes"), data)


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_training_is_that_of_one_process(folder, data, name):
    case = CASES[name]
    # dropout is decided by pairs, as in a shard of one process
    expected = step(case, data, divided="dropout" in name)
    del expected["sent"]
    tolerance = 1e-12 if case.criterion == "linear_cross_entropy" else 1e-6  # fairseq's are in float32
    for size in range(1, SIZE + 1):
        results = [torch.load(folder / f"{name} {size} {rank}.pt") for rank in range(size)]
        assert all(result.pop("sent") or size == 1 for result in results)
        assert all(result.keys() == expected.keys() for result in results)
        for key, value in expected.items():
            total = sum(torch.as_tensor(result[key]) for result in results)
            value = torch.as_tensor(value)
            error = (total - value).abs().max() / value.abs().max().clamp(min=1e-3)
            assert error <= tolerance, f"{key}: {error}"


def test_bytes_of_a_step_do_not_depend_on_the_length_of_documents(folder):
    for size in range(2, SIZE + 1):
        for rank in range(size):
            short, long = (torch.load(folder / f"{name} {size} {rank}.pt") for name in ("smoothed", "a longer source"))
            assert short["sent"] == long["sent"]


@pytest.mark.parametrize("number", range(len(BEAMS)))
def test_all_ranks_write_the_summaries_of_one_process(folder, data, number):
    expected = summaries(data, BEAMS[number])
    assert len({tuple(row[0][0]) for row in expected}) > 4, "they depend on the documents"
    for size in range(1, SIZE + 1):
        for rank in range(size):
            found = torch.load(folder / f"summaries {size} {rank}.pt")[number]
            for row, wanted in zip(found, expected, strict=True):
                assert [tokens for tokens, _ in row] == [tokens for tokens, _ in wanted]
                assert [score for _, score in row] == pytest.approx([score for _, score in wanted], abs=1e-6)

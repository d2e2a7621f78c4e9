"""The batch by the memory that there is."""

from dataclasses import replace

import pytest

from fairseq_poolingformer.cli.finetune import probe
from fairseq_poolingformer.cli.finetune.choices import Choices
from fairseq_poolingformer.cli.finetune.probe import Measured

GIB = 2**30
MEASURED = Measured(10 * GIB, 2 * GIB, GIB / 1000, 1000, 50_000, 1e-4, 4, True)  # 2 GiB, and 1 GiB for an example
CHOSEN = Choices(4096, 100, 32, 0, 1, 10, 0, 5, 1e-4, "fp32", "cpu", False, 1)


@pytest.mark.parametrize(("most", "rows"), [(1, 1), (2, 2), (3, 2), (4, 4), (32, 4)])
def test_rows_are_a_power_of_two_that_leaves_a_fifth_of_the_memory(most, rows):
    assert MEASURED.rows(most) == rows


def test_what_did_not_fit_has_no_rows():
    assert replace(MEASURED, fits=False).rows(8) == 0


def fit(monkeypatch, tmp_path, fits, chosen=CHOSEN, longest=1000, **given):
    """Fit choices where ``fits`` says of them whether one example does."""
    tried = []

    def measured(path):
        return vars(replace(MEASURED, fits=fits(tried[-1]), longest=longest))

    monkeypatch.setattr(probe, "follow", lambda *command: None)
    monkeypatch.setattr(probe, "read_json_file", measured)
    return probe.fit(
        chosen, lambda trial: tried.append(trial) or [], tmp_path, {"length": None, "max_segments": None, **given}, 50
    )


def test_layers_are_computed_twice_and_then_fewer_tokens_read_where_memory_is_short(monkeypatch, tmp_path, capsys):
    found = fit(monkeypatch, tmp_path, lambda trial: True)
    assert (found.device_batch, found.checkpoint_activations, found.length) == (4, False, 4096)
    assert "the training takes about 50 seconds" in capsys.readouterr().out
    found = fit(monkeypatch, tmp_path, lambda trial: trial.checkpoint_activations)
    assert (found.checkpoint_activations, found.length) == (True, 4096)
    found = fit(monkeypatch, tmp_path, lambda trial: trial.length <= 1024)
    assert (found.checkpoint_activations, found.length) == (True, 1024)
    assert "do not hold 1,000 tokens: 1,024 are read" in capsys.readouterr().out


@pytest.mark.parametrize(("fitting", "read"), [(2, 2), (1, 1)])
def test_fewer_segments_are_read_before_a_segment_has_fewer_tokens(monkeypatch, tmp_path, capsys, fitting, read):
    found = fit(monkeypatch, tmp_path, lambda trial: 0 < trial.max_segments <= fitting, longest=18000)  # five segments
    assert (found.checkpoint_activations, found.max_segments, found.length) == (True, read, 4096)
    assert f"{read} segments of a document are read in training" in capsys.readouterr().out


def test_segments_that_are_given_stay(monkeypatch, tmp_path):
    chosen = replace(CHOSEN, max_segments=3)
    with pytest.raises(ValueError, match="give a smaller --length"):
        fit(monkeypatch, tmp_path, lambda trial: False, chosen, longest=18000, length=4096, max_segments=3)


def test_a_length_that_is_given_stays(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="do not hold 1,000 tokens; give a smaller --length"):
        fit(monkeypatch, tmp_path, lambda trial: False, length=4096)


def test_a_batch_that_is_given_stays(monkeypatch, tmp_path):
    assert fit(monkeypatch, tmp_path, lambda trial: False, replace(CHOSEN, device_batch=2)).device_batch == 2

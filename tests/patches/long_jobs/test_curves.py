"""fairseq's --tensorboard-logdir, read back by TensorBoard (skipped where it is not installed)."""

import pytest

from tests.patches.helpers import train


def test_tensorboard_has_the_losses_of_the_log(corpus, tmp_path, caplog):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(corpus, tmp_path / "run", "--max-update", 4, "--log-interval", 2, "--tensorboard-logdir", tmp_path / "curves")
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["train", "train_inner", "valid"]
    curves = {}
    for run in ("train_inner", "valid"):
        reader = events.EventAccumulator(str(tmp_path / "curves" / run))
        reader.Reload()
        curves[run] = {event.step: event.value for event in reader.Scalars("loss")}
    assert list(curves["train_inner"]) == [2, 4]
    (validated,) = [record for record in caplog.records if "valid on" in record.getMessage()]
    shown = validated.getMessage().split("| loss ")[1].split(" ")[0]
    assert f"{curves['valid'][4]:.3f}".rstrip("0") == shown.rstrip("0")

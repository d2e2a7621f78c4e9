"""QASPER's released sample; tests/tasks/qasper has the other tests of preprocessing."""

from fairseq_poolingformer.tasks.qasper.examples import QasperSplit
from preprocess import qasper


def test_the_released_sample_is_read(gpt2_folder, shared_data, tmp_path, capsys):
    files = [shared_data / "qasper" / f"qasper-{split}-v0.1_sample.json" for split in ("train", "dev")]
    flags = ["--gpt2-bpe", gpt2_folder, "--output-folder", tmp_path / "data", "--workers", 1]
    assert qasper.main(list(map(str, ["--train", files[0], "--valid", files[1], *flags]))) == 0
    assert [len(QasperSplit.open(tmp_path / "data", split)) for split in ("train", "valid")] == [9, 4]
    assert "evidence that is not in the paper" in capsys.readouterr().out

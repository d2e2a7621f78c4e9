import pytest

from preprocess.pipeline import data_folder
from tests.preprocess.conftest import contents


@pytest.mark.parametrize("name", ["fingerprint", "tokenizer.sha256", "tokenizer/config.json", "tokenizer/vocab.bpe"])
@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\xff\xfe"])
def test_unfinished_work_that_a_loss_of_power_has_torn(command, release, tmp_path, name, content, monkeypatch):
    assert command(tmp_path / "one", "--input-folder", release) == 0
    with monkeypatch.context() as patch:
        patch.setattr(data_folder, "write", None)  # stops before the data folder is written
        with pytest.raises(TypeError):
            command(tmp_path / "torn", "--input-folder", release)
    (tmp_path / "torn" / ".parts" / name).write_bytes(content)
    assert command(tmp_path / "torn", "--input-folder", release) == 0
    assert contents(tmp_path / "torn") == contents(tmp_path / "one")

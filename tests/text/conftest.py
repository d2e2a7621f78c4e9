from pathlib import Path

import pytest

from tests import lab

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "gpt2_bpe"


@pytest.fixture(scope="session")
def tiny_gpt2_folder():
    return lab.gpt2()


@pytest.fixture(scope="session", params=["tiny", "real"])
def gpt2_folder(request, tiny_gpt2_folder):
    """A small vocabulary, and GPT-2's own where it is at hand."""
    if request.param == "tiny":
        return tiny_gpt2_folder
    if not REAL.is_dir():
        pytest.skip("GPT-2's own vocabulary is not at hand")
    return REAL

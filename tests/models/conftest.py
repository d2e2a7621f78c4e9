"""Comparisons with Hugging Face's models need transformers beside fairseq; dictionaries are the same for all."""

import sys

import pytest

from tests import lab

# fairseq requires torchaudio; one made for another torch does not load, which transformers does not survive.
sys.modules.setdefault("torchaudio", None)


@pytest.fixture(scope="session")
def folder():
    return lab.words()

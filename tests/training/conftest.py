"""The tiny corpus of the tests of fairseq's command lines."""

from tests.patches.conftest import corpus, dictionary

__all__ = ["corpus", "dictionary"]

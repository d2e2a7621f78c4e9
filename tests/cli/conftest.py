"""The tiny corpus of fairseq's command lines, and a checkpoint of a language model."""

from tests.char_lm.conftest import checkpoint, data_folder
from tests.patches.conftest import corpus, dictionary

__all__ = ["checkpoint", "corpus", "data_folder", "dictionary"]

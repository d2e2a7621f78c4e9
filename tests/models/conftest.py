"""Comparisons with Hugging Face's models need transformers beside fairseq."""

import sys

# fairseq requires torchaudio; one made for another torch does not load, which transformers does not survive.
sys.modules.setdefault("torchaudio", None)

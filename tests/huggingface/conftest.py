"""Comparisons with fairseq's models need transformers beside fairseq."""

import sys

# fairseq requires torchaudio; one made for another torch does not load, which transformers does not survive.
sys.modules.setdefault("torchaudio", None)

import fairseq_poolingformer  # noqa: E402 - after torchaudio

fairseq_poolingformer.register()

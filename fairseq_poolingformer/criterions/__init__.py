"""Losses: :mod:`.functional` in plain torch, and fairseq's criterions.

Only the other modules import fairseq; they register their criterions whenever fairseq is installed.
"""

from importlib.util import find_spec

if find_spec("fairseq") is not None:
    from fairseq_poolingformer.criterions import (  # noqa: F401
        char_lm,
        document_task,
        linear_cross_entropy,
        long_masked_lm,
        question_answering,
    )

"""Losses: :mod:`.functional` in plain torch, and fairseq's ``--criterion linear_cross_entropy`` over it.

Only :mod:`.linear_cross_entropy` imports fairseq; it registers the criterion whenever fairseq is installed.
"""

from importlib.util import find_spec

if find_spec("fairseq") is not None:
    from fairseq_poolingformer.criterions import linear_cross_entropy  # noqa: F401

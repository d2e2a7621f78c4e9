"""ROUGE for summaries: the scores, fairseq's ``--scoring rouge``, and the reader of fairseq-generate's output.

Only :mod:`.fairseq_scorer` imports fairseq; it registers the scorer whenever fairseq is installed, whatever
was imported first.
"""

from importlib.util import find_spec

if find_spec("fairseq") is not None:
    from fairseq_poolingformer.scoring import fairseq_scorer  # noqa: F401

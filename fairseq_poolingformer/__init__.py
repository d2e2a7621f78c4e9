"""Poolingformer for fairseq: the ``--user-dir`` entry.

Importing the package mends what fairseq needs on current torch (:mod:`fairseq_poolingformer.compat`) and registers
every model, task, criterion, optimizer and scorer. ``fairseq_poolingformer.attention`` alone needs only torch: without
fairseq installed, importing this package does nothing.
"""

from importlib.util import find_spec

__version__ = "0.1.0"

if find_spec("fairseq") is not None:
    from fairseq_poolingformer import compat

    compat.apply()

    from fairseq_poolingformer import criterions, models, optim, scoring, tasks  # noqa: F401

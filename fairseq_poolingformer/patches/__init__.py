"""Patches that fairseq needs, on current Python, torch and numpy, and in long jobs; :mod:`.table` lists it."""

from fairseq_poolingformer.checkpoints import CheckpointError

__all__ = ["CheckpointError"]

"""Longformer's downstream tasks without fairseq: examples cut into segments, predictions, official formats and scores.

Each kind of task has a module of its name here, and ``KIND_scores`` with its official figures.
"""

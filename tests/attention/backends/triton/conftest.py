"""Tests that run kernels are collected where they can run: on a GPU, and in the processes with Triton's interpreter."""

import os

import pytest
import torch

from fairseq_poolingformer.attention.backends import BACKENDS


def pytest_collection_modifyitems(config, items):
    if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("kernels")])
    items[:] = [item for item in items if not item.get_closest_marker("kernels")]


@pytest.fixture(autouse=True)
def fresh_launches():
    """No launch of another test's tiles and splits, nor of a broken one's, is left."""
    launches = getattr(BACKENDS["triton"], "launches", None)
    if launches is not None:  # Triton is installed
        launches.launches_of.cache_clear()

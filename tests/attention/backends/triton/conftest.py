"""Tests that run kernels are collected where they can run: on a GPU, and in the processes with Triton's interpreter."""

import os

import torch


def pytest_collection_modifyitems(config, items):
    if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("kernels")])
    items[:] = [item for item in items if not item.get_closest_marker("kernels")]

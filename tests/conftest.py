"""Options of the whole test suite, and what every test starts from."""

import functools
import gc
import logging
import random
import sys

import numpy
import pytest
import torch
from hypothesis import HealthCheck, settings

# Property-based tests try 20 cases, the same in every run; pytest --hypothesis-profile=thorough tries 1,000 others.
settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True, database=None)
_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=_slow)
settings.load_profile("quick")


def pytest_addoption(parser):
    parser.addoption(
        "--official-qa-scripts",
        metavar="FOLDER",
        help="also compare scores with the official scripts: a folder with clones of google-research-datasets' "
        "natural-questions and tydiqa (absl-py and six must be installed), triviaqa, hotpot, qasper-led-baseline; "
        "SQuAD's evaluate-v1.1.py, evaluate-v2.0.py",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="send every hostile file through every command, and flip and cut files often; takes an hour",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests stay to the end: to look for garbage among them takes a fifth of their collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if "hydra._internal.config_repository" in sys.modules:
            read_flags_once()


def pytest_unconfigure():
    gc.unfreeze()  # or nanobind lists all that it has made as leaked
    if (forked := sys.modules.get("tests.forked_python")) is not None:
        forked.remove()  # xdist's workers end without atexit


def read_flags_once():
    """Hydra, which fairseq composes every configuration with, parses a flag once, and copies no list of its folders.

    Both take half of the second that each command line and each checkpoint costs; no test changes those folders.
    """
    from hydra._internal.config_repository import CachingConfigRepository
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parse_rule = OverridesParser.parse_rule
    parsed = functools.cache(lambda flag, rule: parse_rule(OverridesParser.create(), flag, rule))

    def keep(self, delegate):
        self.delegate, self.cache = delegate, {}

    OverridesParser.parse_rule = lambda self, flag, rule: parsed(flag, rule)
    CachingConfigRepository.__init__ = keep


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """No test sees what an earlier one left: its place in the random numbers, what it logged, and where to."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    if metrics := sys.modules.get("fairseq.logging.metrics"):
        metrics.reset()
    root = logging.getLogger()
    for handler in root.handlers[:]:  # fairseq's commands log to what was the standard output when they were imported
        if type(handler) is logging.StreamHandler and handler.stream.closed:
            root.removeHandler(handler)

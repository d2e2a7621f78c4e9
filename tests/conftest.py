"""Options of the whole test suite, and what every test starts from."""

import copy
import functools
import gc
import importlib.util
import logging
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import HealthCheck, settings

# Property-based tests try 20 cases, the same in every run; pytest --hypothesis-profile=thorough tries 1,000 others.
settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True, database=None)
_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=_slow)
settings.load_profile("quick")
CASES = 6  # of each function in the quick run


def pytest_addoption(parser):
    parser.addoption(
        "--official-qa-scripts",
        metavar="FOLDER",
        help="also compare scores with the official scripts: a folder with clones of google-research-datasets' "
        "natural-questions and tydiqa (absl-py and six must be installed), triviaqa, hotpot",
    )
    parser.addoption(
        "--quick", action="store_true", help="leave out tests marked full, and all but six cases of each function"
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="send every hostile file through every command, and flip and cut files often; takes an hour",
    )


def pytest_configure(config):
    """Commands that tests start must run this copy of the package."""
    if hasattr(config, "workerinput"):
        return  # xdist's main process has asked
    ask = "import importlib.util as i; print(getattr(i.find_spec('fairseq_poolingformer'), 'origin', 'no copy'))"
    origin = subprocess.run([sys.executable, "-c", ask], cwd="/", capture_output=True, text=True).stdout.strip()
    here = Path(__file__).resolve().parents[1]
    if origin != str(here / "fairseq_poolingformer" / "__init__.py"):
        pytest.exit(
            f"commands that tests start would run {origin}, and not {here}: pip install -e {here}", returncode=4
        )


def pytest_collection_modifyitems(config, items):
    """With ``--quick``: no tests marked full, and at most CASES of each function, spread over its parameters."""
    if not config.getoption("quick"):
        return
    functions = {}
    for item in items:
        if not item.get_closest_marker("full"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    selected = set()
    for cases in functions.values():
        steps = min(CASES, len(cases))
        selected.update(cases[number * (len(cases) - 1) // max(1, steps - 1)] for number in range(steps))
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests stay to the end: to look for garbage among them takes a fifth of their collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure():
    gc.unfreeze()  # or nanobind lists all that it has made as leaked
    if (forked := sys.modules.get("tests.forked_python")) is not None:
        forked.remove()  # xdist's workers end without atexit


@pytest.fixture(scope="session", autouse=True)
def hydra_reads_once():
    """Hydra, which fairseq composes every configuration with, parses a flag, composes flags and finds its caller once.

    It copies no list of its folders, which no test changes. Each command line and each checkpoint would take a third of
    a second. In the processes that tests start, Hydra is as it is.
    """
    if importlib.util.find_spec("hydra") is None:  # as it comes with fairseq
        yield
        return
    from hydra._internal.config_repository import CachingConfigRepository
    from hydra._internal.hydra import Hydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parse_rule, parsed = OverridesParser.parse_rule, {}

    def parse_once(self, flag, rule):
        if (flag, rule) not in parsed:
            parsed[flag, rule] = parse_rule(self, flag, rule)
        return parsed[flag, rule]

    def keep(self, delegate):
        self.delegate, self.cache = delegate, {}

    compose, composed = Hydra.compose_config, {}

    def compose_once(self, config_name, overrides, **settings):
        key = (config_name, *overrides, *map(str, self.config_loader.get_search_path().get_path()))
        if key not in composed:
            composed[key] = compose(self, config_name=config_name, overrides=overrides, **settings)
        return copy.deepcopy(composed[key])

    caller = sys.modules["hydra.initialize"].detect_calling_file_or_module_from_stack_frame
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OverridesParser, "parse_rule", parse_once)
        patch.setattr(CachingConfigRepository, "__init__", keep)
        patch.setattr(Hydra, "compose_config", compose_once)
        patch.setattr(sys.modules["hydra.initialize"], caller.__name__, functools.cache(caller))
        yield


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

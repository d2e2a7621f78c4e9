"""Imports point one way: each module imports only packages below its own, and nothing goes in a circle.

The imports are read from the sources, those inside functions included.
"""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "fairseq_poolingformer"

RANKS = (
    *("extras", "private_names", "patching", "command", "options", "choices", "attention", "band"),
    *("settings", "levels", "text"),
    *("checkpoints", "weights", "training", "models", "tasks", "patches", "huggingface", "show", "char_lm"),
    *("preprocess", "cli"),
)
FAIRSEQ_SIDE = ("tasks.*.task", "tasks.shared.base_task")
FAIRSEQ_IN_FUNCTIONS = {"command", "checkpoints"}  # load without it
WITHOUT_FAIRSEQ = {*RANKS} - {"training", "models", "patches", "show", "char_lm", "cli"}
WITHOUT_FAIRSEQ |= {"weights", "huggingface", "tasks", "preprocess"}


def modules() -> dict[str, Path]:
    paths = [path for package in (PLUGIN, "preprocess") for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The full names of everything that a module imports."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if not name.startswith("preprocess."):
                assert node.level == 0, f"{name} has a relative import"
            module = resolve_name("." * node.level + (node.module or ""), name.rpartition(".")[0])
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield full if full in MODULES or f"{full}.__init__" in MODULES else module


def as_module(name: str) -> str | None:
    """The module that an import of ours loads, or None for others'."""
    return next((full for full in (name, f"{name}.__init__") if full in MODULES), None)


def package(name: str) -> str:
    """``attention`` for ``fairseq_poolingformer.attention.call``; the top package for its ``__init__``."""
    return name.split(".")[1] if name.startswith(f"{PLUGIN}.") else name.split(".")[0]


def needs_fairseq(name: str) -> bool:
    module = name.removeprefix(f"{PLUGIN}.")
    return package(name) not in WITHOUT_FAIRSEQ or any(fnmatch(module, pattern) for pattern in FAIRSEQ_SIDE)


@pytest.mark.parametrize("name", [name for name in MODULES if name != f"{PLUGIN}.__init__"])
def test_imports_only_what_is_below(name):
    folder = package(name)
    for imported in imports(name):
        above = package(imported)
        assert above != "tests", f"{name} imports {imported}"
        if imported == PLUGIN:
            continue  # whose register() is the one import that goes up
        if imported.startswith((f"{PLUGIN}.", "preprocess")):
            assert RANKS.index(above) <= RANKS.index(folder), f"{name} imports {imported}, which is above it"
            module = as_module(imported) or imported
            assert needs_fairseq(name) or not needs_fairseq(module), f"{name} imports {imported}, which needs fairseq"
        elif package(imported) == "fairseq":
            assert needs_fairseq(name) or folder in FAIRSEQ_IN_FUNCTIONS, f"{name} imports {imported}"


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith(("preprocess.", PLUGIN))])
def test_nothing_imports_the_folder_preprocess_by_a_name_that_an_installation_lacks(name):
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        for imported in names:
            assert imported.split(".")[0] != "preprocess", f"{name}: import {imported} with from . or from .. instead"


def test_nothing_goes_in_a_circle():
    graph = {
        name: {module for imported in imports(name) if (module := as_module(imported)) and module != name}
        for name in MODULES
        if name != f"{PLUGIN}.__init__"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))

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

# each layer may import those before it; a module belongs to the first layer that names it, then to its package's
FAIRSEQ_SIDE = (
    *("tasks.*.task", "tasks.*.loss", "tasks.shared.base_task"),
    *(f"tasks.summarization.{name}" for name in ("scorer", "dataset", "sharing")),
)
LAYERS = [
    ("extras",),
    ("checkpoint_reader.*",),
    ("attention.*",),
    ("settings", "levels"),
    ("text.*",),
    ("cli.command",),
    ("tasks.*",),  # without the modules of a task that face fairseq
    ("weights.*",),
    ("patches.*",),
    ("training.*",),
    ("models.*",),
    FAIRSEQ_SIDE,
    ("huggingface.*",),
    ("show.*",),
    ("doctor.*",),
    ("cli.options", "cli.models"),
    ("char_lm.*",),
    ("preprocess.*",),
    ("cli.*", "finetune.*"),
    ("registration",),  # names the modules that it imports
]
WITHOUT_FAIRSEQ = {"checkpoint_reader", "settings", "levels", "attention", "text", "weights", "huggingface", "tasks"}
WITHOUT_FAIRSEQ |= {"extras", "preprocess"}
# what preprocess may use of the plugin
BELOW_PREPROCESS = {"extras", "checkpoint_reader", "settings", "attention", "text", "tasks", "cli"}


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
    return next((found for found in (name, f"{name}.__init__") if found in MODULES), None)


def package(name: str) -> str:
    """``attention`` for ``fairseq_poolingformer.attention.call``; the top package for its ``__init__``."""
    return name.split(".")[1] if name.startswith(f"{PLUGIN}.") else name.split(".")[0]


def faces_fairseq(name: str) -> bool:
    return any(fnmatch(name.removeprefix(f"{PLUGIN}."), pattern) for pattern in FAIRSEQ_SIDE)


def layer(name: str) -> int:
    own = name.removeprefix(f"{PLUGIN}.")
    exact = [n for n, names in enumerate(LAYERS) if own in names]
    patterns = [FAIRSEQ_SIDE, *(names for names in LAYERS if names is not FAIRSEQ_SIDE)]
    found = next((names for names in patterns if any(fnmatch(f"{own}.", f"{p}.") for p in names)), None)
    assert exact or found, f"{name} has no place in the layers"
    return exact[0] if exact else LAYERS.index(found)


@pytest.mark.parametrize("name", MODULES)
def test_imports_only_what_is_below(name):
    own = package(name)
    for imported in imports(name):
        assert package(imported) != "tests", f"{name} imports {imported}"
        if name == f"{PLUGIN}.__init__" or imported == PLUGIN:
            continue  # register() is the one import that goes up
        if own in WITHOUT_FAIRSEQ and not faces_fairseq(name):
            assert imported.split(".")[0] != "fairseq", f"{name} imports {imported}"
        if not imported.startswith((f"{PLUGIN}.", "preprocess")):
            continue
        if own == "preprocess":
            assert package(imported) in {"preprocess", *BELOW_PREPROCESS}, f"{name} imports {imported}"
        else:
            found = as_module(imported) or imported
            assert layer(found) <= layer(name), f"{name} imports {imported}, which is above it"


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith(("preprocess.", PLUGIN))])
def test_nothing_imports_the_folder_preprocess_by_a_name_that_an_installation_lacks(name):
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        for imported in names:
            assert imported.split(".")[0] != "preprocess", f"{name}: import {imported} with from . or from .. instead"


def test_nothing_goes_in_a_circle():
    graph = {
        name: {found for imported in imports(name) if (found := as_module(imported)) and found != name}
        for name in MODULES
        if name != f"{PLUGIN}.__init__"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))

"""The attention and the text package have their tests where their paths say: tests/text/test_x.py for text/x.py."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("attention", "text")
# modules whose tests lie elsewhere, with the file or folder that has them
ELSEWHERE = {
    "attention/graph.py": "attention/test_compiler.py",
    "attention/backends/choice.py": "attention/test_functional.py",
    "attention/backends/operation.py": "attention/test_functional.py",
    "attention/backends/block/disentangled.py": "attention/score_terms/test_disentangled.py",
    "attention/backends/block/terms.py": "attention/score_terms/test_disentangled.py",
    **{
        f"attention/backends/triton/{name}.py": "attention/backends/triton/test_backend.py"  # the backend runs them all
        for name in ("arguments", "backward", "forward", "launches", "terms", "tiles")
    },
}


def modules() -> list[str]:
    """Modules that define a function or a class; names alone need no test."""
    package = ROOT / "fairseq_poolingformer"
    paths = [path for name in PACKAGES for path in sorted((package / name).rglob("*.py")) if path.stem != "__init__"]
    kinds = (ast.FunctionDef, ast.ClassDef)
    trees = {path: ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}
    return [str(path.relative_to(package)) for path, tree in trees.items() if any(isinstance(n, kinds) for n in tree)]


@pytest.mark.parametrize("module", ELSEWHERE)
def test_a_module_that_is_excused_exists(module):
    assert (ROOT / "fairseq_poolingformer" / module).exists(), f"{module} is gone: leave it out of ELSEWHERE"


@pytest.mark.parametrize("module", modules())
def test_a_module_has_its_tests_where_its_path_says(module):
    path = Path(module)
    beside = path.with_name(f"test_{path.name}")
    assert (ROOT / "tests" / ELSEWHERE.get(module, beside)).exists(), f"{module} has no tests/{beside}"
    if module in ELSEWHERE:
        assert not (ROOT / "tests" / beside).exists(), f"tests/{beside} is there: leave {module} out of ELSEWHERE"

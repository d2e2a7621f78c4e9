"""First lines of docstrings: noun phrases or verbs, in every module."""

import ast
import re

import pytest

from tests.lab import ROOT

FOLDERS = ("fairseq_poolingformer", "preprocess", "run_scripts", "benchmarks", "tests")
OPENINGS = re.compile(r"(What|The same|Lets?|Say|Of|Those|Who)\b")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_noun_phrase_or_a_verb(folder):
    openings = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
            if text and OPENINGS.match(text):
                openings.append(f"{path}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    assert not openings, "\n".join(openings)

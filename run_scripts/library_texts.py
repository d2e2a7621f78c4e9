"""Docstrings of Python's own library as a CSV file of texts and labels, for ``poolingformer finetune``.

    python run_scripts/library_texts.py library.csv

A text is a docstring of at least 20 words, its label the package that has it.
"""

import ast
import csv
import sys
import sysconfig
from collections import Counter
from pathlib import Path

PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "tkinter", "unittest", "xml")
WORDS = 20
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(library: Path) -> dict[str, str]:
    """Return the docstrings of a library, each once, and their packages."""
    labels: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted((library / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                text = (ast.get_docstring(node) or "") if isinstance(node, DOCUMENTED) else ""
                if len(text.split()) >= WORDS:
                    labels.setdefault(text, package)
    return labels


if __name__ == "__main__":
    rows = docstrings(Path(sysconfig.get_path("stdlib")))
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows.items()])
    print(f"wrote {len(rows)} texts:", ", ".join(f"{number} {name}" for name, number in Counter(rows.values()).items()))

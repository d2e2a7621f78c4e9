"""This package's models for transformers as a few flat files, with which a folder opens where the package is missing.

``from_pretrained(folder, trust_remote_code=True)`` loads Python files from the model's own folder. transformers copies
the files that it finds through lines ``from .name import …``, one folder deep. So each module becomes a file
``attention_call.py``, and its absolute imports become relative ones. Nothing else changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "fairseq_poolingformer"
PLACE = Path(__file__).resolve().parents[1]
FIRST = ("huggingface.bart", "huggingface.roberta", "huggingface.configuration")  # whose classes transformers asks for
CLASSES = {  # model_type -> transformers' Auto class -> module and class here
    "poolingformer-bart": {
        "AutoConfig": "huggingface.configuration.PoolingformerBartConfig",
        "AutoModel": "huggingface.bart.PoolingformerBartModel",
        "AutoModelForSeq2SeqLM": "huggingface.bart.PoolingformerBartForConditionalGeneration",
    },
    "poolingformer-mbart": {
        "AutoConfig": "huggingface.configuration.PoolingformerMBartConfig",
        "AutoModel": "huggingface.bart.PoolingformerMBartModel",
        "AutoModelForSeq2SeqLM": "huggingface.bart.PoolingformerMBartForConditionalGeneration",
    },
    "poolingformer-roberta": {
        "AutoConfig": "huggingface.configuration.PoolingformerRobertaConfig",
        "AutoModel": "huggingface.roberta.PoolingformerRobertaModel",
        "AutoModelForMaskedLM": "huggingface.roberta.PoolingformerRobertaForMaskedLM",
        "AutoModelForQuestionAnswering": "huggingface.roberta.PoolingformerRobertaForQuestionAnswering",
        "AutoModelForSequenceClassification": "huggingface.roberta.PoolingformerRobertaForSequenceClassification",
    },
}
TRITON = """\
try:  # else transformers would ask everyone to install Triton
{imports}
except ImportError:
    raise"""


def auto_map(model_type: str) -> dict[str, str]:
    """Return ``auto_map`` of ``config.json``: transformers' Auto class -> flat file and class."""
    references = (name.rpartition(".") for name in CLASSES[model_type].values())
    return dict(zip(CLASSES[model_type], (f"{_flat(m)}.{cls}" for m, _, cls in references), strict=True))


def write(folder: Path) -> None:
    """Write the files into a model's folder, which must exist.

    A model that was itself loaded from such files writes nothing: transformers copies its files along.
    """
    if __name__.startswith(f"{PACKAGE}."):
        for name, text in files().items():
            (folder / name).write_text(text, encoding="utf-8")


def files() -> dict[str, str]:
    """Return the flat files: name -> contents."""
    found = {}
    for first in FIRST:
        reached = _reached(first)
        for module in reached:
            source = _path(module).read_text(encoding="utf-8")
            origin = _path(module).relative_to(PLACE.parent).as_posix()
            found[f"{_flat(module)}.py"] = f"# Generated from {origin} (MIT license).\n" + _relative(source)
        # transformers before 5.11 copies only the files that this one names
        names = map(_flat, reached[1:])
        found[f"{_flat(first)}.py"] += "".join(f"from .{name} import __name__ as _\n" for name in names)
    return dict(sorted(found.items()))


def _reached(first: str) -> list[str]:
    """Return a module and all that it imports, directly or not."""
    found = [first]
    for module in found:
        imports = _own_imports(_path(module).read_text(encoding="utf-8"))
        found += sorted({name for node in imports for name in _imported(node)}.difference(found))
    return found


def _flat(module: str) -> str:
    return module.replace(".", "_")


def _path(module: str) -> Path:
    path = PLACE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _own_imports(source: str) -> Iterator[ast.ImportFrom]:
    """The imports of this package's modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith(f"{PACKAGE}."):
            yield node


def _imported(node: ast.ImportFrom) -> list[str]:
    """The modules that an import loads: those after ``import``, and the one after ``from`` for all other names."""
    modules, others = _sorted_names(node)
    own = node.module.removeprefix(f"{PACKAGE}.")
    return [f"{own}.{alias.name}" for alias in modules] + [own] * bool(others)


def _sorted_names(node: ast.ImportFrom) -> tuple[list[ast.alias], list[ast.alias]]:
    """The names after ``import`` that are modules, and the others."""
    own = node.module.removeprefix(f"{PACKAGE}.")
    modules = [alias for alias in node.names if _path(f"{own}.{alias.name}").exists()]
    return modules, [alias for alias in node.names if alias not in modules]


def _relative(source: str) -> str:
    """Return a module with relative imports of the flat files."""
    lines = source.split("\n")
    for node in _own_imports(source):
        own, place, indent = node.module.removeprefix(f"{PACKAGE}."), node.lineno - 1, " " * node.col_offset
        modules, others = _sorted_names(node)
        if not modules:
            lines[place] = lines[place].replace(f"from {node.module} ", f"from .{_flat(own)} ")
            continue
        new = [f"{indent}from .{_flat(own)} import {', '.join(map(ast.unparse, others))}"] if others else []
        for alias in modules:
            name = _flat(f"{own}.{alias.name}")
            new.append(f"{indent}from .{name} import __name__ as _  # by this line transformers finds the file")
            new.append(f"{indent}from . import {name} as {alias.asname or alias.name}")
        lines[place : node.end_lineno] = ["\n".join(new)] + [""] * (node.end_lineno - node.lineno)
    triton = [n for n, line in enumerate(lines) if line.startswith("import triton")]
    if triton:
        imports = "\n".join(f"    {lines[n]}" for n in triton)
        lines[triton[0] : triton[-1] + 1] = [TRITON.format(imports=imports)]
    return "\n".join(lines)

"""No code runs from a checkpoint's configuration.

fairseq evaluates strings of a model's configuration as Python, such as ``--encoder-layers "[(512, 3)] * 20"`` of fconv
or ``--adaptive-softmax-cutoff``, and a checkpoint carries its configuration along. Here its modules have
:func:`literal` as ``eval``, which reads the same strings and runs nothing.
"""

import ast
import sys
from typing import Any

from fairseq_poolingformer.checkpoint_reader.errors import ConfigurationError

LARGEST = 100_000  # characters of a string, and items of a list, that are read in a configuration


def evaluate_literals_only() -> None:
    """Replace ``eval`` in fairseq's modules."""
    from fairseq import checkpoint_utils, criterions, models, optim, tasks  # noqa: F401  (loads the modules)

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq" and module is not None:
            vars(module).setdefault("eval", literal)


def literal(text: Any) -> Any:
    """Read a Python literal, in which lists may also be added and repeated: ``"[(512, 3)] * 20 + [(8, 1)]"``."""
    if not isinstance(text, str):
        return text
    try:
        if len(text) > LARGEST:
            raise ValueError(f"{len(text)} characters")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ConfigurationError(
            f"{text[:200]!r} is not a number, text, list or tuple; nothing else is read in a configuration"
        ) from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, list | tuple | str) and isinstance(count, int):
                if len(sequence) * count > LARGEST:
                    raise ValueError(f"{len(sequence) * count} items")
                return sequence * count
        return left * right
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(element) for element in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    return ast.literal_eval(node)

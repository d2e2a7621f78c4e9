"""Definitions of a package's modules, with all that they need, as files that a person reads from top to bottom.

A definition is a statement at the top of a module. Those that the wanted ones mention, directly or not, come along,
module by module, each after those that it needs. Imports of the package disappear, all others are merged.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WIDTH = 120  # characters of a line
Name = tuple[str, str]  # a module without the package's name, and a name in it: "" for the module itself
Span = tuple[tuple[int, int], tuple[int, int]]  # line from 1 and byte from 0 of the beginning, and of the end


@dataclass(eq=False)
class Statement:
    """A statement at the top of a module.

    Attributes:
        module: its module.
        node: the statement.
        first: the number of its first line in the module, from 0; comments above it are part of it.
        names: the names that it binds.
    """

    module: str
    node: ast.stmt
    first: int
    names: set[str]

    @property
    def defines(self) -> bool:
        """Whether it does nothing but define its names; others come along with any of their module."""
        return isinstance(self.node, (*FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign))


@dataclass(frozen=True)
class Use:
    """A place where a statement names a definition, or a module that is a value, whose functions may then be called."""

    span: Span
    name: Name
    definitions: list[Name]


@dataclass
class Module:
    """A module's lines, the first line of its docstring, its statements, and what it imports, by local name."""

    lines: list[str]
    title: str
    statements: list[Statement] = field(default_factory=list)
    own: dict[str, Name] = field(default_factory=dict)  # of the package
    others: dict[str, tuple[str, str]] = field(default_factory=dict)  # "from x ", "y as z"; or "", "x.y"


class Bundle:
    """The definitions that some files need.

    Args:
        package: the folder of the package.
        files: name of a file without ``.py`` -> the definitions wanted there; a file may use those before it.
        left_out: definitions and modules to do without, which only bases of classes and values of dictionaries may be.

    Raises:
        ValueError: a definition needs one that is left out, or a name would mean two things.
    """

    def __init__(self, package: Path, files: Mapping[str, Collection[Name]], left_out: Collection[Name]) -> None:
        self.package, self.left_out = package, left_out
        self.read, self.resolved, self.edited = cache(self._read), cache(self._resolved), cache(self._edited)
        self.uses = cache(lambda statement: list(self._uses(statement)))
        self.file_of: dict[Statement, str] = {}
        for file, wanted in files.items():
            waiting = [self._definition(name) for name in wanted]
            while waiting:
                statement = waiting.pop()
                if statement not in self.file_of:
                    self.file_of[statement] = file
                    waiting += [other for other in self.read(statement.module).statements if not other.defines]
                    waiting += self._needed(statement)
        self.imports = self._imported()
        self.renamed = self._renamed()
        self._check_names()

    def text(self, file: str) -> str:
        """Return a file, from its imports on."""
        needed = {s: self._needed(s) for s in self.file_of if self.file_of[s] == file}
        graph: dict[str, set[str]] = {module: set() for module in sorted({s.module for s in needed})}
        for statement, others in needed.items():
            graph[statement.module] |= {s.module for s in others if s.module in graph} - {statement.module}
        body, written = "", set()
        for module in TopologicalSorter(graph).static_order():
            body += f"\n\n# {self._path(module).relative_to(self.package)}: {self.read(module).title}\n"
            for statement in self.read(module).statements:
                text = self.edited(statement) if statement in needed else None
                if text and text not in written:
                    body += ("\n\n" if isinstance(statement.node, (*FUNCTIONS, ast.ClassDef)) else "") + text + "\n"
                    written.add(text)
        earlier: dict[str, set[str]] = {}
        for other in {other for others in needed.values() for other in others} - set(needed):
            if self.edited(other) not in written:
                names = {self.renamed[other.module, name] for name in other.names}
                earlier.setdefault(self.file_of[other], set()).update(names)
        return self._import_lines(body, earlier) + body

    def _needed(self, statement: Statement) -> list[Statement]:
        return [self._definition(name) for use in self.uses(statement) for name in use.definitions]

    def _read(self, name: str) -> Module:
        lines = self._path(name).read_text(encoding="utf-8").split("\n")
        tree = ast.parse("\n".join(lines))
        module = Module(lines, (ast.get_docstring(tree) or "").split("\n")[0])
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                source = getattr(node, "module", None) or ""
                for alias in node.names:
                    local = alias.asname or alias.name.split(".")[0]
                    if source.split(".")[0] == self.package.name:
                        module.own[local] = (source.partition(".")[2], alias.name)
                    else:
                        module.others[local] = (source and f"from {source} ", ast.unparse(alias))
            elif node is not tree.body[0] or not isinstance(node, ast.Expr):  # a docstring
                first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]) - 1
                while lines[first - 1].startswith("#"):
                    first -= 1
                module.statements.append(Statement(name, node, first, _bound([node])))
        return module

    def _path(self, module: str) -> Path:
        path = self.package.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def _resolved(self, name: Name) -> Name:
        """Follow imports to the definition of a name."""
        inside = ".".join(filter(None, name))
        if self._path(inside).is_file():
            return inside, ""
        imported = self.read(name[0]).own.get(name[1])
        return name if imported is None else self.resolved(imported)

    def _definition(self, name: Name) -> Statement:
        module, own = self.resolved(name)
        return next(statement for statement in self.read(module).statements if own in statement.names)

    def _uses(self, statement: Statement) -> Iterator[Use]:
        """Yield what a statement names of the package.

        Raises:
            ValueError: one that is left out is neither a base of a class nor a value of a dictionary.
        """
        module = self.read(statement.module)
        own = {name: (statement.module, name) for other in module.statements for name in other.names} | module.own
        removable = _removable(statement.node)
        for node, parent in _free_names(statement.node):
            if node.id not in own:
                continue
            name = self.resolved(own[node.id])
            if not name[1] and isinstance(parent, ast.Attribute):
                node, name = parent, self.resolved((name[0], parent.attr))
            if name not in self.left_out:
                yield Use(_span(node), name, [name] if name[1] else self._functions(name[0]))
            elif id(node) in removable:
                yield Use(removable[id(node)], name, [])
            else:
                raise ValueError(f"{statement.module}, line {node.lineno}: {'.'.join(name)} is left out")

    def _functions(self, module: str) -> list[Name]:
        """Return a module's public functions."""
        nodes = [statement.node for statement in self.read(module).statements]
        return [(module, n.name) for n in nodes if isinstance(n, FUNCTIONS) and not n.name.startswith("_")]

    def _imported(self) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {"SimpleNamespace": ("from types ", "SimpleNamespace")}
        for module in sorted({statement.module for statement in self.file_of}):
            for local, imported in self.read(module).others.items():
                if found.setdefault(local, imported) != imported:
                    raise ValueError(f"{module} imports {imported} as {local}, another module {found[local]}")
        return found

    def _renamed(self) -> dict[Name, str]:
        """Return the name of each definition in the files: with its module's where others have the same."""
        sources: dict[str, set[str]] = {}
        for statement in self.file_of:
            for name in statement.names:
                sources.setdefault(name, set()).add(self._source(statement))
        found: dict[Name, str] = {}
        for statement in self.file_of:
            stem = statement.module.split(".")[-1]
            for name in statement.names:
                alone = len(sources[name]) == 1 and name not in self.imports and not hasattr(builtins, name)
                long = f"_{stem}{name}" if name.startswith("_") else f"{stem}_{name}"
                found[statement.module, name] = name if alone else long
        return found

    def _check_names(self) -> None:
        texts: dict[str, set[str]] = {}
        for statement in self.file_of:
            for name in statement.names:
                texts.setdefault(self.renamed[statement.module, name], set()).add(self.edited(statement))
        if twice := [name for name, found in texts.items() if len(found) > 1]:
            raise ValueError(f"several definitions would be {', '.join(twice)}: rename one of them")

    def _source(self, statement: Statement) -> str:
        return "\n".join(self.read(statement.module).lines[statement.first : statement.node.end_lineno])

    def _edited(self, statement: Statement) -> str:
        """Return a statement's text with the names of the files, and without what is left out."""
        edits = [(use.span, self._new_text(use)) for use in self.uses(statement)]
        node = statement.node
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            start = node.col_offset + len("class " if isinstance(node, ast.ClassDef) else "def ")
            span = (node.lineno, start), (node.lineno, start + len(node.name))
            edits.append((span, self.renamed[statement.module, node.name]))
        lines = [line.encode() for line in self._source(statement).split("\n")]
        for ((top, left), (bottom, right)), new in sorted(edits, reverse=True):
            top, bottom = top - 1 - statement.first, bottom - 1 - statement.first
            lines[top : bottom + 1] = [lines[top][:left] + new.encode() + lines[bottom][right:]]
        return b"\n".join(lines).decode()

    def _new_text(self, use: Use) -> str:
        if use.name in self.left_out:
            return ""
        if use.name[1]:
            return self.renamed[use.name]
        items = ", ".join(f"{name}={self.renamed[module, name]}" for module, name in use.definitions)
        return f"SimpleNamespace({items})"

    def _import_lines(self, body: str, earlier: Mapping[str, Collection[str]]) -> str:
        """Return the imports of a file: those that its body names, and the definitions of earlier files."""
        used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
        groups: list[dict[str, set[str]]] = [{}, {}, {f"from .{file} ": set(names) for file, names in earlier.items()}]
        for local, (source, what) in self.imports.items():
            if local in used:
                top = (source.split() or ["", what])[1].split(".")[0]
                groups[top not in sys.stdlib_module_names].setdefault(source, set()).add(what)
        text = "from __future__ import annotations\n"
        for group in filter(None, groups):
            plain = [f"import {what}\n" for what in sorted(group.pop("", ()))]
            text += "".join(["\n", *plain, *(_import(source, group[source]) for source in sorted(group))])
        return text


def _import(source: str, names: Collection[str]) -> str:
    line = f"{source}import {', '.join(sorted(names))}\n"
    inside = ",\n    ".join(sorted(names))
    return line if len(line) <= WIDTH else f"{source}import (\n    {inside},\n)\n"


def _span(node: ast.AST) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are bound in the scope in which some nodes are."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.split(".")[0])
        if not isinstance(node, (*SCOPES, ast.ClassDef)):
            found |= _bound(ast.iter_child_nodes(node))
    return found


def _free_names(
    node: ast.AST, hidden: frozenset[str] = frozenset(), in_class: bool = False
) -> Iterator[tuple[ast.Name, ast.AST]]:
    """Yield the names in a node that are the module's, each with the node around it."""
    if isinstance(node, SCOPES):
        hidden |= _bound(ast.iter_child_nodes(node))
    in_class = in_class or isinstance(node, ast.ClassDef)
    for child in ast.iter_child_nodes(node):
        is_name = isinstance(child, ast.Name) and child.id not in hidden
        if is_name and not (in_class and isinstance(child.ctx, ast.Store)):
            yield child, node
        yield from _free_names(child, hidden, in_class)


def _removable(node: ast.AST) -> dict[int, Span]:
    """Return the places of bases of a class and values of a dictionary by their id, each with a comma."""
    items: list[tuple[ast.AST, ast.AST]] = []
    if isinstance(node, ast.ClassDef):
        items = [(base, base) for base in node.bases]
    elif isinstance(getattr(node, "value", None), ast.Dict):
        items = list(zip(node.value.keys, node.value.values, strict=True))
    found = {id(value): (_span(first)[0], _span(after)[0]) for (first, value), (after, _) in pairwise(items)}
    if len(items) > 1:
        found[id(items[-1][1])] = (_span(items[-2][1])[1], _span(items[-1][1])[1])
    return found

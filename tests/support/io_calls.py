"""Finds the functions of the package that read or write files, by its syntax trees.

A call is resolved by names: functions of the module and of imported ones, and methods by the class
of their object, as far as annotations and assignments tell it. If they do not, a call counts if all
methods of the package with its name read or write files, and other packages have no such method.
"""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

# These methods always read or write files.
_FILE_METHODS = {
    "delete_dir",
    "delete_empty_dir",
    "list_dir",
    "make_dir",
    "open_input",
    "open_output",
    "read_bytes",
    "read_text",
    "rename_dir",
}
# These do if their object is a FileIO.
_FILE_IO_METHODS = {"create", "delete", "exists", "move", "size", "write"}
_FILE_IO_CLASSES = {"FileIO", "LocalFileIO", "FsspecFileIO"}
_PROPERTY_DECORATORS = {"property", "cached_property"}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_CONSTRUCTORS = ("__init__", "__post_init__")
# If the class of an object is unknown, these are probably methods of other packages.
_COMMON_METHODS = {
    name
    for kind in (str, bytes, list, dict, set, deque, Path, IO, np.ndarray, pa.Array, pa.Table)
    for name in dir(kind)
}


@dataclass(frozen=True, slots=True)
class _Use:
    """A call, or an access to a property."""

    line: int
    text: str
    functions: tuple[Function, ...] = ()
    """What it may execute; it counts if all of them do; empty for the methods of a FileIO."""


@dataclass(slots=True, eq=False)
class Function:
    """A function or method."""

    module: str
    name: str
    owner: Class | None
    node: _Definition
    nodes: list[ast.AST]
    """All nodes of the function."""
    uses: list[_Use] = field(default_factory=list)
    cause: str = ""
    """What reads or writes files in it, or an empty text."""

    @property
    def qualified_name(self) -> str:
        """The name with class and module."""
        names = (self.module, self.owner.name if self.owner else "", self.name)
        return ".".join(filter(None, names))

    @property
    def is_property(self) -> bool:
        """Whether it looks like an attribute."""
        decorators = (ast.unparse(decorator) for decorator in self.node.decorator_list)
        return any(name.rpartition(".")[2] in _PROPERTY_DECORATORS for name in decorators)

    @property
    def is_constructor(self) -> bool:
        """Whether it runs when an object is created."""
        return self.owner is not None and self.name in _CONSTRUCTORS


@dataclass(slots=True, eq=False)
class Class:
    """A class, with what is known of the classes of its attributes."""

    module: str
    name: str
    bases: list[str]
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Module:
    functions: dict[str, Function] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """The qualified names of what is imported."""
    other_modules: set[str] = field(default_factory=set)
    """The names of modules of other packages."""

    def add_imports(self, nodes: Iterable[ast.AST]) -> None:
        """Add what is imported, anywhere in the module."""
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                self.other_modules.update(alias.asname or alias.name for alias in node.names)


class Package:
    """All functions of a package."""

    def __init__(self, root: Path) -> None:
        self.classes: dict[str, list[Class]] = defaultdict(list)
        self.modules: dict[str, _Module] = {}
        self.functions: list[Function] = []
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            self._add_module(name, ast.parse(path.read_text(encoding="utf-8")))
        self.methods: dict[str, list[Function]] = defaultdict(list)
        for function in self.functions:
            if function.owner is not None:
                self.methods[function.name].append(function)
        for function in self.functions:
            if function.owner is None or function.owner.name not in _FILE_IO_CLASSES:
                function.uses = list(self._find_uses(function))
        while self._mark_once():
            pass

    def find_hidden_io(self) -> list[Function]:
        """Return the properties and constructors that read or write files."""
        return [
            function
            for function in self.functions
            if function.cause and (function.is_property or function.is_constructor)
        ]

    def _add_module(self, name: str, tree: ast.Module) -> None:
        module, first = _Module(), len(self.functions)
        self.modules[name] = module
        for node in tree.body:
            if isinstance(node, _Definition):
                function = Function(name, node.name, None, node, list(ast.walk(node)))
                module.functions[node.name] = function
                self.functions.append(function)
            elif isinstance(node, ast.ClassDef):
                self._add_class(name, node)

        for function in self.functions[first:]:
            module.add_imports(function.nodes)
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                module.add_imports(ast.walk(node))

    def _add_class(self, module: str, node: ast.ClassDef) -> None:
        bases = [name for base in node.bases if (name := _name_class(base))]
        added = Class(module, node.name, bases)
        self.classes[node.name].append(added)
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                added.attributes[statement.target.id] = _name_class(statement.annotation)
            elif isinstance(statement, _Definition):
                nodes = list(ast.walk(statement))
                function = Function(module, statement.name, added, statement, nodes)
                added.methods[statement.name] = function
                self.functions.append(function)
                added.attributes |= _list_assigned_attributes(function)

    def _mark_once(self) -> bool:
        """Mark the functions that use marked ones; return whether there are new ones."""
        is_changed = False
        for function in self.functions:
            for use in () if function.cause else function.uses:
                if all(called.cause for called in use.functions):
                    names = [called.qualified_name for called in use.functions[:1]]
                    function.cause = f"{(*names, use.text)[0]}, line {use.line}"
                    is_changed = True
                    break
        return is_changed

    def _find_uses(self, function: Function) -> Iterator[_Use]:
        scope = _Scope(self, function)
        for node in function.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == "open":
                    yield _Use(node.lineno, "open()")
                elif called := self._find_function(node.func.id, function.module):
                    yield _Use(node.lineno, node.func.id, (called,))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from self._find_method_uses(node.func, scope)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found = self.find_method(scope.classify(node.value), node.attr)
                if found is not None and found.is_property:
                    yield _Use(node.lineno, node.attr, (found,))

    def _find_method_uses(self, method: ast.Attribute, scope: _Scope) -> Iterator[_Use]:
        name, owner = method.attr, scope.classify(method.value)
        if name in _FILE_METHODS or (name in _FILE_IO_METHODS and owner in _FILE_IO_CLASSES):
            yield _Use(method.lineno, f"{name}()")
            return
        functions: list[Function | None] = []
        receiver = method.value.id if isinstance(method.value, ast.Name) else ""
        module = self.modules[scope.function.module].imports.get(receiver, "")
        if module in self.modules:
            functions = [self.modules[module].functions.get(name)]
        elif owner or receiver in self.classes:
            functions = [self.find_method(owner or receiver, name)]
        elif receiver not in self.modules[scope.function.module].other_modules:
            functions = [] if name in _COMMON_METHODS else list(self.methods.get(name, []))
        known = tuple(function for function in functions if function is not None)
        if known:
            yield _Use(method.lineno, name, known)

    def _find_function(self, name: str, module: str) -> Function | None:
        """Return a function, or the constructor of a class."""
        if name in self.modules[module].functions:
            return self.modules[module].functions[name]
        source, _, original = self.modules[module].imports.get(name, "").rpartition(".")
        if source in self.modules and original in self.modules[source].functions:
            return self.modules[source].functions[original]
        constructors = [self.find_method(original or name, kind) for kind in _CONSTRUCTORS]
        return next(filter(None, constructors), None)

    def find_method(self, owner: str, name: str) -> Function | None:
        """Return the method of a class or its bases."""
        for found in self.classes.get(owner, ()):
            if name in found.methods:
                return found.methods[name]
            for base in found.bases:
                if base != owner and (method := self.find_method(base, name)) is not None:
                    return method
        return None

    def find_attribute(self, owner: str, name: str) -> str:
        """Return the class of an attribute, a property or the result of a method."""
        for found in self.classes.get(owner, ()):
            if name in found.attributes:
                return found.attributes[name]
            if name in found.methods:
                return _name_class(found.methods[name].node.returns)
            for base in found.bases:
                if base != owner and (attribute := self.find_attribute(base, name)):
                    return attribute
        return ""

    def find_result(self, name: str, module: str) -> str:
        """Return the class of what a function returns, or of the object that a class creates."""
        function = self._find_function(name, module)
        if function is not None and function.owner is None:
            return _name_class(function.node.returns)
        original = self.modules[module].imports.get(name, name).rpartition(".")[2]
        return original if original in self.classes else ""


class _Scope:
    """The classes of the names in a function."""

    def __init__(self, package: Package, function: Function) -> None:
        self.package, self.function = package, function
        self.names: dict[str, str] = {}
        arguments = function.node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.names[argument.arg] = _name_class(argument.annotation)
        if function.owner is not None and arguments.args:
            self.names[arguments.args[0].arg] = function.owner.name
        for node in function.nodes:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.names[node.target.id] = _name_class(node.annotation)
            for target, value in _list_assignments(node):
                if not self.names.get(target):
                    self.names[target] = self.classify(value)

    def classify(self, node: ast.expr) -> str:
        """Return the name of the class of an expression, or an empty text."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            return self.package.find_attribute(self.classify(node.value), node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.package.find_result(node.func.id, self.function.module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._classify_result(node.func)
        return ""

    def _classify_result(self, method: ast.Attribute) -> str:
        owner = self.classify(method.value)
        if not owner and isinstance(method.value, ast.Name):
            owner = method.value.id  # a method of a class that creates an object
        result = self.package.find_attribute(owner, method.attr)
        return owner if result == "Self" else result


def _list_assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and values: also those of two names and two values."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield target.id, value
        elif (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for name, element in zip(target.elts, value.elts, strict=True):
                if isinstance(name, ast.Name):
                    yield name.id, element
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value


def _list_assigned_attributes(method: Function) -> dict[str, str]:
    """Return the classes of ``self.name = argument`` and ``self.name = Class(...)``."""
    arguments = (*method.node.args.args, *method.node.args.kwonlyargs)
    classes = {argument.arg: _name_class(argument.annotation) for argument in arguments}
    attributes = {}
    for node in method.nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            attributes[node.target.attr] = _name_class(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            value, name = node.value, node.targets[0].attr
            if isinstance(value, ast.Name) and classes.get(value.id):
                attributes[name] = classes[value.id]
            elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                attributes[name] = value.func.id
    return attributes


def _name_class(annotation: ast.expr | None) -> str:
    """Return the name of the class of an annotation without ``None``, or an empty text."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _name_class(annotation.left) or _name_class(annotation.right)
    if isinstance(annotation, ast.Name):
        return annotation.id
    if isinstance(annotation, ast.Attribute):
        return annotation.attr
    if isinstance(annotation, ast.Subscript):
        return _name_class(annotation.value)
    return ""

"""Exports the names of a package on first use; the stub of the package lists them."""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import get_data
from sys import modules
from typing import Any


def export_lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports its names on first use.

    ``__init__.pyi`` has these names, for type checkers too.
    """

    def get_attribute(name: str) -> Any:
        if name == "__all__":
            return sorted(_find_modules(package))
        module = _find_modules(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(modules[package], name, value)
        return value

    return get_attribute, lambda: sorted({*vars(modules[package]), *_find_modules(package)})


@cache
def _find_modules(package: str) -> dict[str, str]:
    """Return the modules of the exported names."""
    source = get_data(package, "__init__.pyi")  # works in the archive of Spark's workers too
    assert source is not None
    return {
        alias.name: str(statement.module)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

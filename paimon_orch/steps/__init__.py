"""Steps: maintenance of one table, and row-level changes.

This package exports the functions for users; its modules are internal. Names are imported on first
use, as steps need different parts of the library; ``__init__.pyi`` has them, for type checkers too.
:mod:`paimon_orch.steps.common.step` describes how a step works.
"""

import ast
from functools import cache
from importlib import import_module
from pkgutil import get_data
from typing import Any


@cache
def _find_modules() -> dict[str, str]:
    """Return the modules of the exported names."""
    source = get_data(__name__, "__init__.pyi")  # works in the archive of Spark's workers too
    assert source is not None
    stub = ast.parse(source)
    return {
        alias.name: str(statement.module)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_find_modules())
    module = _find_modules().get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_find_modules()})

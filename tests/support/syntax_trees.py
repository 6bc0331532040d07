"""The syntax trees of the package, parsed once for all tests of a worker that look into them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import paimon_orch

PACKAGE = Path(paimon_orch.__file__).parent


@cache
def nodes_by_module() -> dict[Path, list[ast.AST]]:
    """Return all nodes of each module, in the order of `ast.walk`, by its path below the package.

    Tests that call this have the mark ``xdist_group("syntax")``, so that one worker runs them.
    """
    gc.disable()  # the trees live until the end; collections would take three times the parsing
    nodes = {
        path.relative_to(PACKAGE): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    gc.freeze()
    gc.enable()
    return nodes

"""Finds the tests of a line: those that execute it, or its surroundings if it runs at import."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from coverage import CoverageData

Statement: TypeAlias = ast.stmt | ast.ExceptHandler
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class CoveringTests:
    """The tests of a run with coverage contexts, and how long they took."""

    root: Path
    file: Path
    """The coverage data; the file beside it, with the suffix .json, has the durations."""
    durations: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        text = self.file.with_suffix(".json").read_text(encoding="utf-8")
        object.__setattr__(self, "durations", json.loads(text))

    def find(self, module: str, line: int, seconds: float) -> list[str]:
        """Return tests of a line, those of the mirrored folder first, quick ones before others.

        Beyond the given sum of their durations no further test is returned.
        """
        names = self._find_all(module, line)
        homes = _homes(module)

        def rank(name: str) -> tuple[int, float]:
            return next(n for n, home in enumerate(homes) if home in name), self.durations[name]

        ordered = sorted(names & self.durations.keys(), key=rank)
        sums = accumulate(self.durations[name] for name in ordered)
        chosen = [name for name, total in zip(ordered, sums, strict=True) if total <= seconds]
        return _group_by_file(chosen or ordered[:1])

    def _find_all(self, module: str, line: int) -> set[str]:
        by_line = _tests_by_line(self.file, module)
        source = (self.root / module).read_text(encoding="utf-8")
        for lines in _surroundings(source, line):
            names = set[str]().union(*(by_line.get(number, ()) for number in lines))
            if names:
                return names
        homes = _homes(module)[:2]
        return {name for name in self.durations if any(home in name for home in homes)}


@cache
def _tests_by_line(file: Path, module: str) -> dict[int, set[str]]:
    data = CoverageData(str(file))
    data.read()
    tests = defaultdict[int, set[str]](set)
    for path in data.measured_files():  # a moved repository has another path
        if path.endswith(f"/{module}"):
            for line, names in data.contexts_by_lineno(path).items():
                tests[line] |= {re.sub(r"(@\w+)?\|\w+$", "", name) for name in names if name}
    return tests


def _surroundings(source: str, line: int) -> Iterator[set[int]]:
    """Yield a line, its statement, the uses of the names that it assigns, and what encloses it.

    What runs at import is left out: it would lead to the test that imported the module first.
    """
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTION)]
    executed = {line for node in functions for line in _lines(node.body[0], node)}
    yield {line} & executed
    statements = [node for node in ast.walk(tree) if isinstance(node, Statement)]
    for node in sorted(statements, key=_start, reverse=True):
        if line not in _lines(node, node):
            continue
        body = getattr(node, "body", None)
        if body and line < body[0].lineno and not isinstance(node, ast.ClassDef | _FUNCTION):
            yield executed.intersection(range(_start(node), body[0].lineno))
        yield executed.intersection(_lines(node, node))
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield executed.intersection(_find_uses(node, source))
    yield executed


def _lines(first: Statement, last: Statement) -> range:
    return range(_start(first), (last.end_lineno or 0) + 1)


def _start(node: Statement) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(item.lineno for item in (node, *decorators))


def _find_uses(assignment: ast.Assign | ast.AnnAssign, source: str) -> Iterator[int]:
    targets = [node for node in ast.walk(assignment) if isinstance(node, ast.Name)]
    names = [node.id for node in targets if isinstance(node.ctx, ast.Store)]
    pattern = re.compile(rf"\b({'|'.join(names) or '$.'})\b")
    for number, text in enumerate(source.split("\n"), 1):
        if pattern.search(text):
            yield number


def _homes(module: str) -> list[str]:
    """Return the mirrored file, its folder, and what each test has."""
    path = PurePosixPath("tests", *PurePosixPath(module).parts[1:])
    return [f"{path.parent}/test_{path.name}::", f"{path.parent}/test_", ""]


def _group_by_file(names: Sequence[str]) -> list[str]:
    """Keep the tests of a file together, for their fixtures."""
    files = [name.partition("::")[0] for name in names]
    return sorted(names, key=lambda name: files.index(name.partition("::")[0]))

"""Draws mutations of cosmic-ray: spread over the modules by lines, and over the kinds in a module.

A mutation is drawn again if it does not compile, or if it only changes what no test can see: type
annotations, blocks for the type checker, how an object prints, the log, and decorators and
signatures that the interpreter does not enforce.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

# Two need arguments, one does nothing.
_LEFT_OUT = {"core/NoOp", "core/VariableInserter", "core/VariableReplacer"}
_FOR_READERS = {"abstractmethod", "final", "overload", "override", "runtime_checkable"}
_PRINTING = {"__repr__", "__str__"}
_LOGGERS = {"log", "logger", "_log", "_logger"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """The n-th occurrence of an operator in a module."""

    module: str
    operator: str
    occurrence: int
    line: int

    def apply(self, source: str) -> str:
        """Return the mutated source."""
        mutated = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert mutated is not None, self
        return str(mutated)


def draw(root: Path, package: str, count: int, seed: int) -> Iterator[Mutation]:
    """Yield mutations of the modules of a package, without duplicates."""
    rng = random.Random(seed)  # noqa: S311
    modules = sorted(str(path.relative_to(root)) for path in (root / package).rglob("*.py"))
    sources = {name: (root / name).read_text(encoding="utf-8") for name in modules}
    ends = [*itertools.accumulate(source.count("\n") for source in sources.values())]
    step = ends[-1] / count
    drawn: set[Mutation] = set()
    for number in range(count):
        place = (number + rng.random()) * step
        start = next(index for index, end in enumerate(ends) if place < end)
        # A module of imports has no mutations: the next one then has one more.
        for name in itertools.islice(itertools.cycle(modules), start, None):
            mutation = _draw_in(name, sources[name], drawn, rng)
            if mutation is not None:
                drawn.add(mutation)
                yield mutation
                break


def _draw_in(module: str, source: str, drawn: set[Mutation], rng: random.Random) -> Mutation | None:
    places = [*_list_mutations(module, source).values()]
    rng.shuffle(places)
    for variants in places:
        mutation = rng.choice(variants)
        if mutation not in drawn and _can_be_seen(source, mutation.apply(source)):
            return mutation
    return None


@cache
def _list_mutations(module: str, source: str) -> dict[tuple[str, int, int], list[Mutation]]:
    """Return the mutations of each kind at each place; a comparison has seven, a number two."""
    nodes = [*ast_nodes(get_ast(source))]
    found = defaultdict(list)
    for name in sorted(set(operator_names()) - _LEFT_OUT):
        operator = get_operator(name)()
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(places):
            key = (name.split("_")[0], line, column)
            found[key].append(Mutation(module, name, occurrence, line))
    return dict(found)


def _can_be_seen(source: str, mutated: str) -> bool:
    try:
        compile(mutated, "mutated", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return _dump_visible(source) != _dump_visible(mutated)


def _dump_visible(source: str) -> str:
    return ast.dump(_Visible().visit(ast.parse(source)))


class _Visible(ast.NodeTransformer):
    """Removes from a syntax tree what no test can see."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if node.name in _PRINTING:
            return None
        node.returns = None
        node.decorator_list = [
            item for item in node.decorator_list if _last_name(item) not in _FOR_READERS
        ]
        return self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.posonlyargs, node.kwonlyargs = [], []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if _last_name(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        function = getattr(node.value, "func", None)
        owner = _last_name(getattr(function, "value", node))
        return None if owner in _LOGGERS else self.generic_visit(node)


def _last_name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))

"""Rules of the source tree: places, names, tests and sizes of modules and functions."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "paimon_orch", ROOT / "tests"
ROW = re.compile(r"^\| `([a-z0-9_/]*[a-z0-9_])` \| (.+) \|$", re.MULTILINE)
TEST_FILE = re.compile(r"`([a-z0-9_/]+\.py)`")
MAX_MODULES = 24
MAX_POSITIONAL = 5
MAX_LINES = 60
P90_LINES = 20
SAME_IDEA_IN_TWO_PACKAGES = {
    "catalog",
    "compact",
    "ingest",
    "inspect",
    "quarantine",
    "sort_compact",
}


def modules() -> list[str]:
    """Return the modules of the package as paths without their suffix."""
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))
    return sorted(str(path) for path in paths if not path.name.startswith("__"))


def functions() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of the package."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def read_rows() -> dict[str, list[str]]:
    """Return the tests of modules without a test file of the same name, from `tests/README.md`."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    return {module: TEST_FILE.findall(files) for module, files in ROW.findall(text)}


def has_test_of_its_name(module: str) -> bool:
    folder, _, name = module.rpartition("/")
    return (TESTS / folder / f"test_{name}.py").exists()


def test_every_module_has_a_test_of_its_name_or_a_row_in_the_readme_of_the_tests() -> None:
    rows = read_rows()
    assert [m for m in modules() if not has_test_of_its_name(m) and m not in rows] == []


def test_the_readme_of_the_tests_names_only_existing_modules_and_tests() -> None:
    rows = read_rows()
    assert sorted(set(rows) - set(modules())) == []
    assert [module for module in rows if has_test_of_its_name(module)] == []
    assert [file for file in chain(*rows.values()) if not (TESTS / file).exists()] == []


def test_module_names_are_unique_except_for_the_same_idea_in_two_packages() -> None:
    names = Counter(module.rpartition("/")[2] for module in modules())
    assert {name for name, count in names.items() if count > 1} <= SAME_IDEA_IN_TWO_PACKAGES


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(module.rpartition("/")[0] for module in modules())
    assert {folder for folder, count in folders.items() if count > MAX_MODULES} == set()


def test_calls_of_our_functions_pass_few_positional_arguments() -> None:
    ours = {f.name for f in functions() if f.args.vararg is None} - {"info", "warning", "add_row"}
    calls = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) > MAX_POSITIONAL:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ours:
                    calls[str(path.relative_to(ROOT))].append((node.lineno, name))
    assert dict(calls) == {}


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def test_functions_are_small() -> None:
    lengths = sorted(map(lines_of_code, functions()))
    assert lengths[len(lengths) * 9 // 10] <= P90_LINES
    assert [f.name for f in functions() if lines_of_code(f) > MAX_LINES] == []


@pytest.mark.parametrize("folder", ["paimon_orch", "definitions", "pyspark_paimon"])
def test_every_function_has_types(folder: str) -> None:
    untyped = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.returns is None and node.name != "__init__")
        or any(arg.annotation is None for arg in node.args.args if arg.arg not in ("self", "cls"))
    ]
    assert untyped == []

"""Rules of the source tree: places, names, tests and sizes of modules and functions."""

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import grimp
import pytest
from support.syntax_trees import nodes_by_module

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "paimon_orch", ROOT / "tests"
ROW = re.compile(r"^\| `([a-z0-9_/]*[a-z0-9_])` \| (.+) \|$", re.MULTILINE)
IMPORT = re.compile(r"^ *from (paimon_orch[\w.]*) import (\([^)]*\)|.+)$", re.MULTILINE)
TEST_FILE = re.compile(r"`([a-z0-9_/]+\.py)`")
TREE_LINE = re.compile(r"^( *)((?:[\w.]+/(?:, |,$|$| ))+)", re.MULTILINE)
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+)?|[\w.-]+\.(?:py|md|toml|txt))`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
OUTPUTS_AND_EXAMPLES = {"dist/", "build/sbom.cdx.json"}
MAX_MODULES = 24
MAX_POSITIONAL = 5
MAX_LINES = 60
P90_LINES = 20
SAME_IDEA_IN_TWO_PACKAGES = {
    "analyze",
    "catalog",
    "compact",
    "doctor",
    "hdfs",
    "ingest",
    "inspect",
    "quarantine",
    "repair",
    "rollback",
    "sort_compact",
}


def modules() -> list[str]:
    """Return the modules of the package as paths without their suffix."""
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))
    return sorted(str(path) for path in paths if not path.name.startswith("__"))


def functions() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of the package."""
    for node in chain.from_iterable(nodes_by_module().values()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def read_rows() -> dict[str, list[str]]:
    """Return the tests of modules that are tested from other folders, from `tests/README.md`."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    return {module: TEST_FILE.findall(files) for module, files in ROW.findall(text)}


def imported_names(path: Path) -> set[str]:
    """Return the names of this package that a file imports, as dotted names."""
    names = set()
    for module, imported in IMPORT.findall(path.read_text(encoding="utf-8")):
        names |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", imported))}
    return names


def modules_tested_in_their_folder(folder: str) -> set[str]:
    """Return the modules of a folder that tests in the mirrored folder are named for or import.

    Imports are followed through the modules of the folder, but not through those of other folders.
    """
    tests = list((TESTS / folder).glob("test_*.py"))
    files = {dotted_name(path): path for path in (PACKAGE / folder).glob("*.py")}
    prefix = dotted_name(PACKAGE / folder / "__init__.py")
    todo = {f"{prefix}.{path.stem.removeprefix('test_')}" for path in tests}
    todo = todo.union(*map(imported_names, tests))
    reached: set[str] = set()
    while todo := (todo & files.keys()) - reached:
        reached |= todo
        todo = set().union(*(imported_names(files[name]) for name in todo))
    return {str(files[name].relative_to(PACKAGE).with_suffix("")) for name in reached}


def dotted_name(path: Path) -> str:
    """Return the name under which a file of the package is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_the_readme_of_the_tests_lists_the_modules_that_are_tested_from_other_folders() -> None:
    folders = {module.rpartition("/")[0] for module in modules()}
    at_home = set().union(*map(modules_tested_in_their_folder, folders))
    declared = {
        module for module in modules() if module.startswith("stores/")
    }  # found by a registry
    needed, rows = set(modules()) - at_home - declared, set(read_rows())
    assert sorted(needed - rows) == []
    assert sorted(rows - needed) == []


def test_the_readme_of_the_tests_names_existing_tests_in_order() -> None:
    rows = read_rows()
    assert list(rows) == sorted(rows)
    assert [module for module, files in rows.items() if not files] == []
    assert [file for file in chain(*rows.values()) if not (TESTS / file).exists()] == []


def list_tracked_files() -> list[str]:
    """Return the paths of all files in the repository."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return listed.stdout.rstrip("\0").split("\0")


def test_the_repository_has_no_symbolic_link() -> None:
    assert [name for name in list_tracked_files() if (ROOT / name).is_symlink()] == []


def list_folders() -> set[str]:
    """Return the folders that pages name: packages, and folders of the repository and the tests."""
    parents = [Path(name).parent.parts for name in list_tracked_files()]
    tests = {"/".join(parts[:2]) for parts in parents if parts[:1] == ("tests",)}
    packages = {str(path.parent.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    return packages | tests | {parts[0] for parts in parents if parts}


def list_folders_of_the_design() -> list[str]:
    """Return the folders of the tree in `docs/design.md`, whose lines are indented by depth."""
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    tree = text[text.index("```text\ndefinitions/") :].partition("\n```")[0]
    folders, parents = [], [""]
    for indent, names in TREE_LINE.findall(tree):
        parents = parents[: len(indent) // 2 + 1]
        children = [f"{parents[-1]}{name}" for name in re.findall(r"[\w.]+/", names)]
        folders += children
        parents.append(children[0])
    return [folder.removesuffix("/") for folder in folders]


def test_the_page_about_the_design_names_every_folder_once() -> None:
    folders = list_folders_of_the_design()
    assert sorted(list_folders() - set(folders)) == []
    assert [folder for folder, count in Counter(folders).items() if count > 1] == []
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_the_page_for_contributors_has_a_row_for_every_package_and_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("| folder | contains |") :].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()]
    named = re.findall(r"`([^`]+)/`", "".join(cells))
    packages = {str(path.parent.relative_to(ROOT)) for path in PACKAGE.glob("*/*.py")}
    wanted = {folder for folder in list_folders() if "/" not in folder} - {"paimon_orch"} | packages
    assert sorted(wanted - set(named)) == []
    assert sorted(set(named) - wanted) == []


@pytest.mark.parametrize(
    ("page", "bases"),
    [
        ("CONTRIBUTING.md", [ROOT]),
        ("docs/design.md", [ROOT, PACKAGE]),
        ("tests/README.md", [ROOT, TESTS]),
    ],
)
def test_paths_and_links_in_pages_about_the_tree_exist(page: str, bases: list[Path]) -> None:
    text = ROW.sub("", (ROOT / page).read_text(encoding="utf-8"))
    named = [path for path in PATH.findall(text) if path not in OUTPUTS_AND_EXAMPLES]
    links = [ROOT / page / ".." / link for link in LINK.findall(text)]
    assert len(named) > 3
    assert [path for path in named if not any((base / path).exists() for base in bases)] == []
    assert [link for link in map(Path.resolve, links) if not link.exists()] == []


def test_module_names_are_unique_except_for_the_same_idea_in_two_packages() -> None:
    names = Counter(module.rpartition("/")[2] for module in modules())
    assert {name for name, count in names.items() if count > 1} <= SAME_IDEA_IN_TWO_PACKAGES


def test_modules_import_each_other_in_no_circle_even_inside_functions() -> None:
    graph = grimp.build_graph("paimon_orch", exclude_type_checking_imports=True, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 700
    TopologicalSorter(imports).prepare()  # raises an error that names the modules of a circle


def test_no_folder_has_too_many_modules() -> None:
    folders = Counter(module.rpartition("/")[0] for module in modules())
    assert {folder for folder, count in folders.items() if count > MAX_MODULES} == set()


@pytest.mark.xdist_group("syntax")
def test_calls_of_our_functions_pass_few_positional_arguments() -> None:
    ours = {f.name for f in functions() if f.args.vararg is None} - {"info", "warning", "add_row"}
    calls = defaultdict(list)
    for path, nodes in nodes_by_module().items():
        for node in nodes:
            if isinstance(node, ast.Call) and len(node.args) > MAX_POSITIONAL:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ours:
                    calls[str(path)].append((node.lineno, name))
    assert dict(calls) == {}


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


@pytest.mark.xdist_group("syntax")
def test_functions_are_small() -> None:
    lengths = sorted(map(lines_of_code, functions()))
    assert lengths[len(lengths) * 9 // 10] <= P90_LINES
    assert [f.name for f in functions() if lines_of_code(f) > MAX_LINES] == []

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from support.syntax_trees import nodes_by_module

import paimon_orch

HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))]
FIRST_RELEASES = ["3.11.0", "3.12.0", "3.13.0"]
INSTALLED_BY_OTHERS = {
    "aiohttp",  # s3fs
    "airflow",  # apache-airflow
    "annotated_types",  # pydantic
    "azure",  # adlfs
    "botocore",  # s3fs
    "click",  # dagster
    "dagster_pipes",  # dagster
    "grpc",  # pyspark-client
    "openlineage",  # openlineage-python
    "pydantic",  # dagster
    "yaml",  # pyyaml
}
"""Packages that are imported, and the dependency that installs them."""
MACHINE_PATHS = [f"/{name}/" for name in ("work", "root")]


@pytest.fixture(scope="module")
def pins(repository: Path) -> dict[str, str]:
    lines = (repository / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines)


def requirements(repository: Path) -> list[Requirement]:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    return [r for r in map(Requirement, texts) if r.name != project["name"]]


def test_constraints_contain_only_exact_pins(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.!+]+", line)] == []
    assert lines == sorted(set(lines), key=lambda line: line.split("==")[0])


def test_each_dependency_is_bounded_above_and_pinned_within_its_bounds(
    repository: Path, pins: dict[str, str]
) -> None:
    for requirement in requirements(repository):
        assert "<" in str(requirement.specifier), requirement
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


@pytest.mark.xdist_group("syntax")
def test_each_package_that_is_imported_is_a_dependency(repository: Path) -> None:
    imported = set[str]()
    for nodes in nodes_by_module().values():
        for node in nodes:
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    declared = {each.name.replace("-", "_") for each in requirements(repository)}

    own = {"paimon_orch", "pyspark_paimon", "_typeshed"}
    assert imported - sys.stdlib_module_names - own - declared == INSTALLED_BY_OTHERS


def test_each_pin_can_be_installed_on_the_first_release_of_each_python(
    pins: dict[str, str],
) -> None:
    refused = {}
    for installed in distributions():
        supported = SpecifierSet(installed.metadata["Requires-Python"] or "")
        is_pinned = pins.get(canonicalize_name(installed.name)) == installed.version
        if is_pinned and len([*supported.filter(FIRST_RELEASES)]) < len(FIRST_RELEASES):
            refused[installed.name] = supported
    assert refused == {}


def test_no_file_names_a_package_registry_or_a_path_of_one_machine(repository: Path) -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    places = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = repository / name
        content = path.read_bytes() if path.is_file() else b""
        places += [(name, text) for text in HOSTS + MACHINE_PATHS if text.encode() in content]

    assert places == []


def test_make_help_lists_every_target_and_is_the_default(repository: Path) -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (repository / "Makefile").read_text(), re.MULTILINE)
    assert phony
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=repository, capture_output=True, text=True, check=True
    )

    lines = [line.split() for line in shown.stdout.splitlines()]
    assert [line[1] for line in lines] == phony[1].split()
    assert all(len(line) > 2 for line in lines)


def test_make_install_without_a_suitable_python_names_the_versions_to_install(
    repository: Path, tmp_path: Path
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(repository / name, tmp_path)

    finished = subprocess.run(
        ["make", "install", "PYTHON="], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert finished.returncode
    assert "needs Python 3.11, 3.12 or 3.13" in finished.stderr
    assert "make install PYTHON=" in finished.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("paimon_orch", {"dagster", "filelock", "importlib.metadata"}),
        ("paimon_orch.orchestration.table_tick", {"airflow", "dagster", "pydantic"}),
        ("paimon_orch.dagster", set()),
        ("paimon_orch.cli.app", {"dagster"}),
    ],
)
def test_importing_the_package_does_not_import_slow_modules(
    module: str, unwanted: set[str]
) -> None:
    slow = {
        "datasketches",
        "opentelemetry",
        "pandas",
        "pyarrow.dataset",
        "pyspark",
        "sqlglot",
    } | unwanted
    code = f"import sys, {module}; print({slow} & sys.modules.keys())"

    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert finished.stdout.strip() == "set()"


def test_the_steps_run_without_pyspark() -> None:
    code = "import sys, paimon_orch.steps.common.executor; print('pyspark' in sys.modules)"

    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert finished.stdout.strip() == "False"


def test_the_makefile_names_only_existing_tests(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    [names] = re.findall(r"^OLDEST_TESTS := (.+)$", makefile, re.MULTILINE)
    for name in names.split():
        path, _, test = name.partition("::")
        file = repository / "tests" / path
        assert file.exists(), name
        assert not test or f"def {test}(" in file.read_text(encoding="utf-8"), name


def test_the_version_is_the_same_in_the_project_the_package_and_the_changelog(
    repository: Path,
) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## (\S+)", (repository / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert project["version"] == paimon_orch.__version__ == headings[0]

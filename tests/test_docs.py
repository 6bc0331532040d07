"""The documentation: links and citations resolve, generated pages are current, examples run."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from support.docs import pictures, reference
from support.docs.page_run import BLOCK
from support.syntax_trees import nodes_by_module
from typer.main import get_command

from paimon_orch import Catalog, steps
from paimon_orch.cli.app import app
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.tags import Tags
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
SOURCES = sorted(
    path
    for folder in ("paimon_orch", "pyspark_paimon", "definitions", "tests", "benchmarks")
    for path in (ROOT / folder).glob("**/*.py")
)
COPIED_PAGES = {
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks.md",
    "test-data.md",
}
"""Pages of the site that are outside docs/, see ``support/docs/site.py``."""

RUN_WITH_AIRFLOW = "docs/airflow.md"
"""The examples of this page are run by ``tests/airflow_provider``, in an environment with Airflow."""

DELETION_VECTORS = {"deletion-vectors.enabled": "true"}
FIRST_ROW = {"merge-engine": "first-row"}
CITATION = re.compile(r"docs/[\w/-]+\.md(?:#[\w-]+)?")
OUTSIDE_DOCUMENT = re.compile(
    r"\bformat section\b|\bfacts? \d|\bspecification section\b", re.IGNORECASE
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def read_page(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve_to_files_and_headings(page: str) -> None:
    path = ROOT / page

    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        linked = (path.parent / target).resolve() if target else path
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), f"{target}#{anchor}"


@pytest.mark.parametrize("folder", ["docs", "docs/format"])
def test_the_overview_of_a_folder_links_to_every_page(folder: str) -> None:
    overview = ROOT / folder / "README.md"
    pages = {path.resolve() for path in (ROOT / folder).glob("**/*.md")} - {overview}
    if folder == "docs":
        pages -= set((ROOT / "docs" / "format").glob("*.md")) - {ROOT / "docs/format/README.md"}

    links = LINK.findall(overview.read_text(encoding="utf-8"))
    assert not pages - {(overview.parent / target).resolve() for target, _ in links}


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    pages = sorted(list_navigation_pages(config["nav"]))
    own = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}
    assert pages == sorted(own | COPIED_PAGES)


def list_navigation_pages(entry: object) -> Iterator[str]:
    """Yield the pages below an entry of ``nav``."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for part in entry.values():
            yield from list_navigation_pages(part)
    elif isinstance(entry, list):
        for part in entry:
            yield from list_navigation_pages(part)


def test_the_specification_is_cited_by_existing_pages_and_headings() -> None:
    citations = {
        (citation, path.relative_to(ROOT).as_posix())
        for path in SOURCES
        for citation in CITATION.findall(path.read_text(encoding="utf-8"))
    }

    headings = {page: anchors(ROOT / page) for page in PAGES}
    broken = []
    for citation, source in sorted(citations):
        page, _, anchor = citation.partition("#")
        if page not in headings or (anchor and anchor not in headings[page]):
            broken.append(f"{source}: {citation}")
    assert len(citations) > 100
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_no_source_cites_a_document_outside_the_repository() -> None:
    quoting = {Path(__file__)}

    cited = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in SOURCES
        if path not in quoting
        for match in OUTSIDE_DOCUMENT.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not cited, "\n".join(cited)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["cli.md", "components.md"])
def test_the_reference_is_generated_from_the_current_code(name: str) -> None:
    text = (reference.FOLDER / name).read_text(encoding="utf-8")

    assert text == reference.pages()[name], "run: make reference"


@pytest.mark.parametrize("name", pictures.pages())
def test_pictures_are_generated_from_the_current_code(name: str) -> None:
    text = (pictures.FOLDER / name).read_text(encoding="utf-8")

    assert text == pictures.pages()[name], "run: make reference"


def test_pictures_have_alternative_texts() -> None:
    without = [
        f"{page}: {target}"
        for page in PAGES
        for text, target in re.findall(
            r"!\[([^\]]*)\]\(([^)]+)\)", (ROOT / page).read_text(encoding="utf-8")
        )
        if len(text) < 20
    ]
    assert not without, "\n".join(without)


@pytest.mark.xdist_group("syntax")
def test_messages_on_the_page_about_troubleshooting_exist() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = [
        fragment
        for line in text.splitlines()
        if line.startswith(("| `", "| the sensor"))
        for fragment in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    ]

    messages = list(list_strings_of_the_package())
    missing = [
        fragment
        for fragment in quoted
        if not any(matches_message(fragment, message) for message in messages)
    ]
    assert len(quoted) > 40
    assert not missing, missing


def list_strings_of_the_package() -> Iterator[str]:
    """Yield all strings of the package, with the expressions of f-strings left out."""
    for nodes in nodes_by_module().values():
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
                yield "\0".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def matches_message(fragment: str, message: str) -> bool:
    """Return whether the parts of a fragment between ``...`` follow each other in a message."""
    position = 0
    for part in fragment.split("..."):
        position = message.find(part, position) + len(part)
        if position < len(part):
            return False
    return True


@pytest.mark.parametrize("page", [page for page in PAGES if "paimon-orch " in read_page(page)])
def test_commands_in_the_pages_have_known_options(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        line
        for language in ("sh", "text")
        for block in blocks(page, language)
        for line in block.replace("\\\n", "").splitlines()
    ]
    names = {name for name, _ in list_commands()}
    for line in lines:
        _, program, arguments = line.partition("paimon-orch ")
        if program:
            words = shlex.split(arguments, comments=True)
            assert " ".join(parse_command(get_command(app), words, None)) in names, line
        elif line.startswith("export PAIMON_WAREHOUSE="):
            monkeypatch.setenv("PAIMON_WAREHOUSE", line.partition("=")[2])


def test_each_procedure_has_a_counterpart_that_exists_or_is_listed_without_one() -> None:
    section = read_page("docs/format/procedures.md").partition("## All procedures")[2]
    cells = re.findall(r"^\| ([a-z_, ()SF]+) \| (?:S|F)", section, re.MULTILINE)
    procedures = {name for cell in cells for name in re.findall(r"[a-z_]{4,}", cell)} - {"action"}
    table, _, missing = read_page("docs/how-to/procedures.md").partition("no counterpart")
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    named, commands, functions = (
        {name for row in rows for name in re.findall(r"`([^`]+)`", row[number])}
        for number in range(3)
    )

    without = set(re.findall(r"`([a-z_]+)`", missing)) - {"ingest"}
    assert named | without == procedures
    assert not named & without
    names = {name for name, _ in list_commands()}
    assert {each for each in commands if each[0] != "-"} <= names | {"order_strategy"}
    for function in functions:
        owner, _, name = function.removeprefix("table.").rpartition(".")
        place = {"tags": Tags, "branches": Branches, "": Table}[owner]
        assert hasattr(place if function.startswith("table.") else steps, name), function


def parse_command(command: Any, arguments: list[str], parent: Any) -> list[str]:
    """Return the words of a command's name without running it. Wrong options raise a usage error."""
    context = command.make_context(command.name, arguments, parent=parent)
    if not hasattr(command, "commands"):
        return []
    following = [*context._protected_args, *context.args]
    name, subcommand, remaining = command.resolve_command(context, following)
    return [name, *parse_command(subcommand, remaining, context)]


@pytest.mark.parametrize(
    "page", sorted({page for page in PAGES if "```python" in read_page(page)} - {RUN_WITH_AIRFLOW})
)
def test_python_in_the_pages_imports_existing_names(page: str) -> None:
    for text in blocks(page, "python"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module}.{alias.name}"


def test_the_example_of_airflow_in_the_readme_is_that_of_its_page() -> None:
    # The page runs in an environment with Airflow.
    [example] = blocks("README.md", "py")
    assert example in set(blocks(RUN_WITH_AIRFLOW, "python"))


def test_every_command_that_deletes_or_rewrites_has_a_dry_run() -> None:
    without = {name for name, options in list_commands() if "--dry-run" not in options}

    reads = {"catalogs", "check", "count", "describe", "doctor", "history", "inspect", "why"}
    reads |= {"maintenance-history", "read", "sql", "tables"}
    lists = {"branch list", "consumer list", "database list", "quarantine list", "tag list"}
    creates = {"create", "database create", "demo"}
    assert without == reads | lists | creates | {"rename"}


def list_commands() -> list[tuple[str, set[str]]]:
    """Return the name and the options of each command."""
    command = get_command(app)
    pending, commands = [("", command)], list[tuple[str, set[str]]]()
    for name, pending_command in pending:
        subcommands = getattr(pending_command, "commands", None)
        if subcommands is None:
            options = {option for parameter in pending_command.params for option in parameter.opts}
            commands.append((name, options))
        else:
            pending += [(f"{name} {key}".strip(), sub) for key, sub in subcommands.items()]
    return commands


def blocks(page: str, language: str) -> Iterator[str]:
    for name, text in BLOCK.findall(read_page(page)):
        if name == language:
            yield text


def components(page: str) -> list[str]:
    """Return the definitions of components in a page."""
    return [text for text in blocks(page, "yaml") if text.startswith("type: ")]


# Dagster's code that loads YAML causes these warnings.
@pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if components(page)])
def test_components_in_the_pages_define_their_table(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", "/lake")

    with create_defs_folder_sandbox() as sandbox:
        for number, text in enumerate(components(page)):
            path = sandbox.defs_folder_path / f"example{number}"
            path.mkdir()
            (path / "defs.yaml").write_text(text)
            with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
                dg.Definitions.validate_loadable(defs)
                defined = {spec.key for spec in defs.resolve_all_asset_specs()}
            # Components of databases have no table.
            table = yaml.safe_load(text)["attributes"].get("table")
            assert table is None or dg.AssetKey(table.split(".")) in defined


REWRITES = [
    (page, number)
    for page in PAGES
    for number, text in enumerate(blocks(page, "python"))
    if ".overwrite(" in text and ".scan(" in text
]


def test_the_pages_have_recipes_that_write_back_rows() -> None:
    assert "docs/how-to/recover-from-a-bad-commit.md" in {page for page, _ in REWRITES}


@pytest.mark.parametrize("options", [{}, DELETION_VECTORS, FIRST_ROW], ids=str)
@pytest.mark.parametrize(("page", "number"), REWRITES)
def test_recipes_that_write_back_rows_keep_all_rows(
    page: str, number: int, options: dict[str, str], tmp_path: Path
) -> None:
    orders = orders_with_a_bad_commit(tmp_path, options)
    text = list(blocks(page, "python"))[number].replace("/lake", str(tmp_path))

    (tmp_path / "example.py").write_text(text)
    runpy.run_path(str(tmp_path / "example.py"))

    rows = orders.scan(merge_level_0=True).to_arrow()
    assert rows.num_rows == 2_001
    assert pc.sum(pc.equal(rows["status"], "GOOD")).as_py() == 2_001
    assert orders.scan().rows_not_visible <= 1


def orders_with_a_bad_commit(root: Path, options: dict[str, str]) -> Table:
    """Create a table with a tag of 2,000 rows, half of them compacted, and a later bad commit."""
    columns = "id BIGINT, day STRING, status STRING"
    orders = Catalog(str(root)).create_table(
        "shop.orders",
        columns,
        primary_key=("day", "id"),
        partition_by=("day",),
        options={"bucket": "1"} | options,
    )
    orders.upsert(rows_of_day("2026-01-31", range(1_000), "GOOD"))
    compact(orders, InProcessExecutor(), strategy="full")
    orders.upsert(rows_of_day("2026-01-31", range(1_000, 2_000), "GOOD"))
    orders.tags.create("before-the-accident")
    orders.upsert(rows_of_day("2026-01-31", range(2_500), "BROKEN"))
    compact(orders, InProcessExecutor())
    orders.upsert(rows_of_day("2026-02-01", range(1), "GOOD"))
    return orders


def rows_of_day(day: str, ids: range, status: str) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "day": [day] * len(ids), "status": [status] * len(ids)}
    )

"""The documentation: its links lead somewhere, its reference is current, its examples run."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from support.docs import reference

from paimon_orch import Catalog
from paimon_orch.cli.app import main
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("**/docs/**/*.md")]
)
TOLD = ["docs/getting-started.md", "docs/how-to/recover-from-a-bad-commit.md"]
"""Told one after the other in one warehouse: the second goes on where the first ended."""

VECTORS = {"deletion-vectors.enabled": "true"}
FIRST_ROW = {"merge-engine": "first-row"}
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that a forge gives the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_exist(page: str) -> None:
    path = ROOT / page

    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), f"{target}#{anchor}"


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    linked = {(ROOT / "docs" / target).resolve() for target, _ in LINK.findall(contents)}
    assert {path.resolve() for path in (ROOT / "docs").glob("**/*.md")} - linked == {
        (ROOT / "docs" / "README.md").resolve()
    }


@pytest.mark.parametrize("name", ["cli.md", "components.md"])
def test_the_reference_is_that_of_the_code(name: str) -> None:
    text = (reference.FOLDER / name).read_text(encoding="utf-8")

    assert text == reference.pages()[name], (
        "write it anew: PYTHONPATH=tests:. python -m support.docs.reference"
    )


def blocks(page: str, language: str) -> Iterator[str]:
    for found, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if found == language:
            yield text


# Dagster warns of what it does itself when it loads YAML.
@pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated", "ignore::dagster.BetaWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "yaml"))])
def test_components_of_the_documentation_load(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", "/lake")
    components = [text for text in blocks(page, "yaml") if text.startswith("type: ")]

    with create_defs_folder_sandbox() as sandbox:
        for number, text in enumerate(components):
            path = sandbox.defs_folder_path / f"example{number}"
            path.mkdir()
            (path / "defs.yaml").write_text(text)
            with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
                dg.Definitions.validate_loadable(defs)


def test_what_the_pages_tell_can_be_done_from_top_to_bottom(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for page in TOLD:
        for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            here = text.replace("/lake", str(tmp_path))
            if language == "python":
                (tmp_path / "example.py").write_text(here)
                runpy.run_path(str(tmp_path / "example.py"))
            if language == "sh":
                for line in here.replace("\\\n", "").splitlines():
                    run(line, monkeypatch)
    printed = capsys.readouterr().out
    assert printed.count("PAID") == 3
    assert "\n0 findings in " in printed


REWRITES = [
    (page, number)
    for page in PAGES
    for number, text in enumerate(blocks(page, "python"))
    if ".overwrite(" in text and ".scan(" in text
]


def test_there_are_recipes_that_read_rows_and_write_them_back() -> None:
    assert "docs/how-to/recover-from-a-bad-commit.md" in {page for page, _ in REWRITES}


@pytest.mark.parametrize("options", [{}, VECTORS, FIRST_ROW], ids=str)
@pytest.mark.parametrize(("page", "number"), REWRITES)
def test_a_recipe_that_writes_back_what_it_reads_loses_no_row(
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
    """Make a table whose tag names 2,000 rows of a day, of which compaction has seen 1,000, and one row of another."""
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


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None), line

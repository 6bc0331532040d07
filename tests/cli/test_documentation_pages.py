"""The commands and programs of the pages that new users follow run from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.commands import Run
from support.docs.page_run import BLOCK, PageRun

from paimon_orch import Catalog
from paimon_orch.spark.datasource.register import register
from paimon_orch.spark.datasource.session_settings import WAREHOUSE_SETTING
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
DAYS = ("2026-01-31", "2026-02-01")
DELETION_VECTORS = {"deletion-vectors.enabled": "true"}
SERVER = "needs a server"


@dataclass(frozen=True, kw_only=True)
class PageSetup:
    """What a page expects to exist."""

    tables: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the tables, which then have no rows."""
    follows: str | None = None
    """The page whose lake this page continues."""
    uses_spark: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)


PAGES = {
    "README.md": PageSetup(
        uses_spark=True,
        skipped={"make demo": "installs packages", "make test": "runs the tests"},
    ),
    "docs/api/catalog-and-tables.md": PageSetup(),
    "docs/installation.md": PageSetup(),
    "docs/getting-started.md": PageSetup(),
    "docs/production.md": PageSetup(
        tables=("db.orders",),
        skipped={"dagster_slack": "an optional package that the tests do not install"},
    ),
    "docs/autopilot.md": PageSetup(tables=("sales.orders", "web.events")),
    "docs/doctor.md": PageSetup(tables=("sales.orders", "sales.items")),
    "docs/spark.md": PageSetup(
        tables=("db.orders",),
        uses_spark=True,
        skipped={"changes.writeStream": "takes long; spark/datasource/test_stream_write.py"},
    ),
    "docs/maintenance.md": PageSetup(
        tables=("db.orders",),
        skipped={"sync-partitions prod": SERVER, "sync-iceberg": "runs in read-with-iceberg.md"},
    ),
    "docs/file-indexes.md": PageSetup(tables=("db.events",)),
    "docs/how-to/catalogs.md": PageSetup(tables=("db.orders",)),
    "docs/how-to/compose.md": PageSetup(),
    "docs/how-to/duckdb-and-polars.md": PageSetup(follows="docs/getting-started.md"),
    "docs/how-to/flink-writes.md": PageSetup(),
    "docs/how-to/load-files.md": PageSetup(),
    "docs/how-to/named-catalogs.md": PageSetup(
        tables=("db.orders",),
        skipped={
            "CATALOG__LAKE__STORAGE": "the lake of the test needs no secrets",
            "warehouse=s3:": SERVER,
            'options(catalog="prod"': "needs a session started where the catalog is configured",
        },
    ),
    "docs/how-to/options-that-stop-a-step.md": PageSetup(
        tables=("shop.orders",), options={"commit.callbacks": "com.example.Notify"}
    ),
    "docs/how-to/procedures.md": PageSetup(tables=("db.orders",)),
    "docs/how-to/read-with-iceberg.md": PageSetup(
        tables=("shop.orders",),
        skipped={"hive-catalog": SERVER, "rest-catalog": SERVER, 'type="hive"': SERVER},
    ),
    "docs/how-to/recover-from-a-bad-commit.md": PageSetup(
        follows="docs/getting-started.md",
        uses_spark=True,
        skipped={
            "before-repair-": "no repair made this tag",
            "after-repair": "no repair came before",
        },
    ),
    "docs/how-to/run-a-step-anywhere.md": PageSetup(
        tables=("db.orders",),
        skipped={
            "PipesS3MessageWriter": "Dagster starts it in a cluster; dagster/test_remote_runs.py"
        },
    ),
    "docs/how-to/s3.md": PageSetup(),
}


ON_SPARK = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=ON_SPARK * setup.uses_spark) for page, setup in PAGES.items()],
)
def test_the_commands_and_programs_of_a_page_run(
    page: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    setup = PAGES[page]
    prepare_folder(tmp_path, monkeypatch)
    for name in setup.tables:
        create_prepared_table(name, tmp_path / "lake", setup.options)
    page_run = PageRun(
        folder=tmp_path, run_command=run, monkeypatch=monkeypatch, skipped=setup.skipped
    )
    page_run.names |= build_names(tmp_path / "lake", setup.tables)
    if setup.uses_spark:
        page_run.names |= request.getfixturevalue("spark_names")

    for name in filter(None, (setup.follows, page)):
        page_run.run((ROOT / name).read_text(encoding="utf-8"))

    assert page_run.unused_skips == set()
    if page == "docs/getting-started.md":
        assert page_run.printed.count("PAID") == 3
        assert "\n0 findings in " in page_run.printed


def test_all_pages_that_new_users_follow_run_except_for_commands_of_servers() -> None:
    guides = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/how-to").glob("*.md")}
    assert guides <= set(PAGES)

    shown = {
        page: len(re.findall(r"^.*paimon-orch [a-z].*$", block, re.MULTILINE))
        for page in PAGES
        for language, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        if language == "text" and "paimon-orch " in block
    }

    assert shown == {
        "docs/production.md": 4,  # a crontab
        "docs/how-to/compose.md": 3,  # in a container
        "docs/how-to/s3.md": 1,
    }


@pytest.fixture
def spark_names(spark: SparkSession) -> Iterator[dict[str, object]]:
    """Names of Spark in the pages; the default catalog that a page sets is removed afterwards."""
    row = ("id bigint, dt string, status string", [(1, "2026-01-01", "OPEN")])
    yield {"spark": spark, "dataframe": spark.createDataFrame(row[1], row[0])}
    spark.conf.unset(WAREHOUSE_SETTING)
    register(spark)


def prepare_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the folder the working directory, with files and catalogs that the pages name."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(folder))
    (folder / "orders.csv").write_text("id,dt,status\n1,2026-01-01,OPEN\n2,2026-01-01,PAID\n")
    page = (ROOT / "docs/how-to/load-files.md").read_text(encoding="utf-8")
    german, coupons = (text for name, text in BLOCK.findall(page) if name == "text")
    (folder / "german.csv").write_text(german)
    (folder / "coupons.jsonl").write_text(coupons)
    catalogs = "".join(
        f"  {name}:\n    warehouse: {folder / 'lake'}\n" for name in ("lake", "prod")
    )
    (folder / ".paimon_orch.yaml").write_text(f"catalog:\n{catalogs}")


def create_prepared_table(name: str, lake: Path, options: Mapping[str, str]) -> Table:
    """Create a table with rows of two days, or an empty one with the options."""
    if name.endswith(".events"):
        return create_events(name, lake)
    day = "dt" if name.startswith(("db.", "sales.")) else "day"
    table = Catalog(str(lake)).create_table(
        name,
        f"id BIGINT NOT NULL, {day} STRING, status STRING",
        primary_key=(day, "id"),
        partition_by=(day,),
        options={"bucket": "1"} | dict(options),
    )
    commits = 0 if options else 12 if name == "sales.orders" else 2
    for number in range(commits):
        table.upsert(build_orders(day, f"STATUS {number}"))
    if name == "sales.orders":
        (lake / "sales.db" / "orders" / "snapshot" / "snapshot-4").unlink()
    return table


def create_events(name: str, lake: Path) -> Table:
    """Create a table with data evolution."""
    table = Catalog(str(lake)).create_table(
        name,
        "user_id BIGINT, country STRING",
        options={"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
    )
    for number in range(3):
        table.append(pa.table({"user_id": [number], "country": ["FR"]}))
    return table


def build_orders(day: str, status: str) -> pa.Table:
    """Return 20 rows, half of them of each day."""
    return pa.table(
        {
            "id": pa.array(range(20), pa.int64()),
            day: [DAYS[number % 2] for number in range(20)],
            "status": [status] * 20,
        }
    )


def build_names(lake: Path, tables: tuple[str, ...]) -> dict[str, object]:
    """Return the names that programs of the pages do not define."""
    catalog = Catalog(str(lake))
    table = {"table": catalog.table(tables[0])} if tables else {}
    return {"arrow_table": build_orders("dt", "OPEN"), **table}

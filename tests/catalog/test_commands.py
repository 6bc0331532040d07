"""The main commands with the name of a catalog of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.catalogs.kinds import NAME, CatalogUnderTest
from support.catalogs.rest_server import PYPAIMON_1_4
from support.commands import run_command
from support.histories import backdate_files
from support.tables import rows_of

from paimon_orch.steps.inspection.check_table import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(command: str, *arguments: str) -> dict[str, object]:
    """Run a command on the table and return its JSON document."""
    document = json.loads(run_command(command, NAME, "db.t", *arguments, "--json"))
    assert isinstance(document, dict)
    return document


@pytest.mark.slow
def test_a_table_is_created_loaded_maintained_and_dropped(
    catalog_under_test: CatalogUnderTest, spark: SparkSession, tmp_path: Path
) -> None:
    columns = ["--columns", "k BIGINT, v STRING", "--primary-key", "k"]
    created = run_command("create", NAME, "db.t", *columns, "--option", "bucket=1")
    assert created == f"created db.t in {NAME}"
    assert run_command("tables", NAME) == "db.t"
    for number, text in enumerate("abc"):
        source = tmp_path / f"{number}.csv"
        source.write_text(f"k,v\n0,{text}\n{number},{text}\n")
        assert run("ingest", "--from", str(source))["snapshot_id"] == number + 1
    table = catalog_under_test.open().table("db.t")
    rows = [(0, "c"), (1, "b"), (2, "c")]
    assert rows_of(table) == rows

    assert run("compact", "--strategy", "full")["snapshot_id"] == 4
    assert (
        run("expire-snapshots", "--retain-max", "1", "--retain-min", "1", "--yes")["snapshots"] == 3
    )
    (Path(table.paths.root) / "bucket-0" / "data-stray-0.parquet").write_bytes(b"stray")
    backdate_files(table)
    assert run("remove-orphan-files")["files"] == 1

    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()
    run_command("drop", NAME, "db.t", "--yes")
    assert run_command("tables", NAME) == "none"
    if catalog_under_test.kind != PYPAIMON_1_4:  # this server keeps the files
        assert not (Path(table.paths.root) / "schema").exists()

"""Instants of ORC files that Java wrote in a zone are not copied to ORC files in UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps import compact, delete, rescale
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.row_level.row_level_write import RowLevelRequest, plan
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

COLUMNS = "k INT, i TIMESTAMP(3) WITH LOCAL TIME ZONE"
TIMES = [dt.datetime(2024, month, 1, 12, tzinfo=dt.UTC) for month in range(1, 7)]


def create_table(
    tmp_path: Path, zone: bytes, key: list[str], options: dict[str, str] | None = None
) -> Table:
    """Create a table with ORC files whose stripes name a zone with three letters."""
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        COLUMNS,
        primary_key=key,
        options={
            "bucket": "2",
            "bucket-key": "k",
            "file.format": "orc",
            "file.compression": "none",
            "compaction.min.file-num": "2",
            **(options or {}),
        },
    )
    for part in (slice(0, 4), slice(2, 6), slice(0, 6)):  # a full compaction needs three files
        rows = pa.table({"k": pa.array(range(6), pa.int32())[part], "i": pa.array(TIMES[part])})
        _ = table.upsert(rows) if key else table.append(rows)
    for path in Path(table.paths.root).rglob("*.orc"):
        data = path.read_bytes()
        assert data.count(b"\x1a\x03GMT") == 1
        path.write_bytes(data.replace(b"\x1a\x03GMT", b"\x1a\x03" + zone))
    return table


def read(table: Table) -> list[dict[str, Any]]:
    rows = table.scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["k"], row["i"]))


def read_for_change(table: Table) -> None:
    """Read the old rows of an update."""
    planned = plan(table, RowLevelRequest(operation="update"))
    assert planned.source is not None
    for unit in planned.units:
        assert list(unit.read(planned.source, table.load().schema.fields))


STEPS: dict[str, Callable[[Table], object]] = {
    "full compaction": lambda table: compact(table, strategy="full"),
    "delete": lambda table: delete(table, InProcessExecutor(), "k = 3"),
    "update": read_for_change,
    "rescale": lambda table: rescale(table, bucket_num=3),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", [[], ["k"]], ids=["append", "primary key"])
@pytest.mark.parametrize("step", STEPS)
def test_steps_that_would_copy_instants_are_refused(
    tmp_path: Path, step: str, key: list[str]
) -> None:
    table, catalog = create_table(tmp_path, b"PST", key), Catalog(str(tmp_path))
    rows, files = read(table), sorted(tmp_path.rglob("*"))

    with pytest.raises(UnsupportedError, match=r"time zone PST .*parquet in 'file.format' = 'orc'"):
        STEPS[step](table)

    assert sorted(tmp_path.rglob("*")) == files
    assert read(table) == rows
    catalog.alter_table("db.t", [SetOption("file.format", "parquet")])
    table = catalog.table("db.t")
    STEPS[step](table)
    assert read(table) == [row for row in rows if step != "delete" or row["k"] != 3]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", [[], ["k"]], ids=["append", "primary key"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("zone", "options"),
    [(b"UTC", {}), (b"PST", {"orc.timestamp-ltz.legacy.type": "false"})],
    ids=["UTC", "instants"],
)
def test_instants_without_a_zone_are_copied(
    tmp_path: Path, zone: bytes, options: dict[str, str], step: str, key: list[str]
) -> None:
    table = create_table(tmp_path, zone, key, options)
    STEPS[step](table)
    assert {row["i"] for row in read(table)} <= set(TIMES)


def test_deletion_vectors_do_not_copy_instants(tmp_path: Path) -> None:
    table = create_table(tmp_path, b"PST", [], {"deletion-vectors.enabled": "true"})
    rows = read(table)
    delete(table, InProcessExecutor(), "k = 3")
    assert read(table) == [row for row in rows if row["k"] != 3]

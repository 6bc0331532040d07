"""Partitions in manifests whose bytes are not those of the partition columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support.damage import edit_partitions
from support.tables import new_table, rows_of, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.row.binary_row import EMPTY_ROW, serialize_row
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.steps import (
    analyze,
    compact,
    compact_manifests,
    delete,
    expire_partitions,
    expire_snapshots,
    remove_orphan_files,
    repair,
    rewrite_file_index,
)
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table

COLUMNS = "dt STRING, k BIGINT, v STRING"
TWO = [field.type for field in parse_columns("a STRING, b STRING")]
LONG = serialize_row(["2026-01-31 of a long text"], TWO[:1])
PARTITIONS = {
    "no values": EMPTY_ROW,
    "two values": serialize_row(["2026-01-31", "x"], TWO),
    "no bytes": b"",
    "a negative number of values": b"\xff\xff\xff\xff",
    "fewer bytes than values": LONG[:12],
    "a value outside of the row": LONG[:-8],
    "any number of values": b"\x7f\xff\xff\xff" + bytes(64),
}
ATTEMPTS: dict[str, Callable[[Table], object]] = {
    "rows": rows_of,
    "rows of a partition": lambda table: rows_of(table, filter="dt = '2026-01-31'"),
    "count": lambda table: table.scan().count(),
    "partitions": lambda table: table.system("partitions").scan().to_arrow(),
    "files": lambda table: table.system("files").scan().to_arrow(),
    "inspect": inspect,
    "upsert": lambda table: table.upsert(table_of("dt k v", [("2026-01-30", 1, "a")])),
    "delete": lambda table: delete(table, EXECUTOR, "k = 1"),
    "drop": lambda table: table.drop_partitions(["dt=2026-01-31"]),
    "compact": lambda table: compact(table, EXECUTOR, strategy="full"),
    "idle": lambda table: compact(table, EXECUTOR, idle_for=timedelta(0)),
    "partition": lambda table: compact(table, EXECUTOR, partitions=["dt=2026-01-31"]),
    "index": lambda table: rewrite_file_index(table, EXECUTOR),
    "analyze": lambda table: analyze(table, EXECUTOR),
    "expire": lambda table: expire_partitions(
        table, expiration_time=timedelta(days=1), timestamp_formatter="yyyy-MM-dd"
    ),
    "expire by time": lambda table: expire_partitions(
        table, expiration_time=timedelta(days=1), strategy="update-time"
    ),
    "snapshots": lambda table: expire_snapshots(table, EXECUTOR, retain_max=1, retain_min=1),
    "orphans": lambda table: remove_orphan_files(table, EXECUTOR, older_than=0),
    "repair": repair,
    "truncate": lambda table: table.truncate(),
}


def fill(table: Table) -> Table:
    for key in range(2):
        table.upsert(table_of("dt k v", [("2026-01-31", key, "a")]))
    return table


UNCONCERNED = {
    "count",
    "upsert",
    "index",
    "analyze",
    "expire by time",
    "snapshots",
    "orphans",
    "repair",
}
"""The attempts that need no value of a partition."""


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_damaged_partition_is_an_error_of_its_table(
    tmp_path: Path, name: str, attempt: str
) -> None:
    table = fill(new_table(tmp_path, COLUMNS, key=("dt", "k"), partition_by=("dt",)))
    edit_partitions(table, 2, PARTITIONS[name])
    if attempt in UNCONCERNED:
        ATTEMPTS[attempt](table)
        return
    with pytest.raises(CorruptFileError, match=r"db\.db/t.*(partition|manifest)"):
        ATTEMPTS[attempt](table)


@pytest.mark.parametrize("name", [name for name in PARTITIONS if not name.endswith("values")])
def test_a_damaged_partition_is_not_copied_to_another_manifest(tmp_path: Path, name: str) -> None:
    table = fill(new_table(tmp_path, COLUMNS, key=("dt", "k"), partition_by=("dt",)))
    edit_partitions(table, 2, PARTITIONS[name])
    with pytest.raises(CorruptFileError, match=r"db\.db/t/manifest"):
        compact_manifests(table)

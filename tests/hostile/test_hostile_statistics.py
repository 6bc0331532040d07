"""Statistics in footers of Parquet files that hide rows from filters."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import data_files
from support.golden import GOLDEN, copy_warehouse
from support.tables import catalog_of, new_table, rows_of, small_batches, table_of

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

ROWS = 1000
FIRST = 1 << 40
KINDS = {
    "append": {"key": (), "bucket": "-1"},
    "append with buckets": {"key": (), "bucket": "1", "bucket_key": "k"},
    "primary key": {},
    "deletion vectors": {"deletion_vectors__enabled": "true"},
    "parts of a bucket": {"target_file_size": "4 kb"},
}


def replace_in_footers(paths: Iterable[Path], old: bytes, new: bytes) -> None:
    """Replace bounds in the footers of Parquet files."""
    for path in paths:
        data = path.read_bytes()
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        path.write_bytes(data[:start] + data[start:].replace(old, new))


def lower_maxima(paths: Iterable[Path], first: int) -> None:
    """Give row groups of 100 rows with every second key from ``first`` the minimum as maximum."""
    for lowest in range(first, first + ROWS, 200):
        old, new = (struct.pack("<q", key) for key in (lowest + 198, lowest))
        replace_in_footers(paths, old, new)


def find_statistics(table: Table) -> list[str]:
    findings = check(table, deep=True).findings
    assert {finding.rule for finding in findings} <= {"statistics"}
    return [finding.text for finding in findings]


@pytest.mark.parametrize("kind", KINDS)
def test_a_forced_full_compaction_repairs_statistics_that_hide_rows(
    tmp_path: Path, kind: str
) -> None:
    table = small_batches(new_table(tmp_path, "k BIGINT, v STRING", **KINDS[kind]), 100)  # type: ignore[arg-type]
    write = table.upsert if table.load().schema.primary_keys else table.append
    rows = []
    for first in (FIRST, FIRST + 101):  # row groups of the second file are in two parts of a bucket
        added = [(k, f"v{k}") for k in range(first, first + ROWS, 2)]
        write(table_of("k v", added))
        lower_maxima(data_files(table), first)
        rows += added
    key = FIRST + 250
    assert rows_of(table, filter=f"k = {key}") == []

    texts = find_statistics(table)

    assert any("column k of row group 1 has" in text for text in texts)
    assert all("compaction.force-rewrite-all-files" in text for text in texts)
    table = small_batches(force_rewrites(table), 100)
    compact(table, InProcessExecutor(), strategy="full")
    expire_snapshots(table, retain_max=1, retain_min=1)
    assert find_statistics(table) == []
    assert rows_of(table, filter=f"k = {key}") == [(key, f"v{key}")]
    assert rows_of(table) == sorted(rows)


def force_rewrites(table: Table) -> Table:
    """Return the table with the option that the finding names."""
    catalog = catalog_of(table)
    catalog.alter_table("db.t", [SetOption("compaction.force-rewrite-all-files", "true")])
    return catalog.table("db.t")


ALONE = {
    **KINDS,
    "data evolution": {
        "key": (),
        "bucket": "-1",
        "row_tracking__enabled": "true",
        "data_evolution__enabled": "true",
    },
}


@pytest.mark.parametrize("kind", ALONE)
def test_a_forced_full_compaction_rewrites_a_file_that_is_alone(tmp_path: Path, kind: str) -> None:
    table = small_batches(new_table(tmp_path, **ALONE[kind]), 100)  # type: ignore[arg-type]
    write = table.upsert if table.load().schema.primary_keys else table.append
    write(table_of("k v", [(k, "v") for k in range(FIRST, FIRST + ROWS, 2)]))
    lower_maxima(data_files(table), FIRST)
    assert find_statistics(table)

    compact(small_batches(force_rewrites(table), 100), InProcessExecutor(), strategy="full")

    expire_snapshots(table, retain_max=1, retain_min=1)
    assert find_statistics(table) == []


HIDING = {
    "DOUBLE": ([0.5, math.nan, 7.5], struct.pack("<d", 7.5), struct.pack("<d", 0.5)),
    "BYTES": ([b"aa", None, b"zz"], b"zz", b"aa"),
    "STRING": (["aa", None, "zz"], b"zz", b"aa"),
}


@pytest.mark.parametrize("kind", HIDING)
def test_bounds_of_other_types_that_hide_rows_are_found(tmp_path: Path, kind: str) -> None:
    values, highest, changed = HIDING[kind]
    table = new_table(tmp_path, f"k BIGINT, v {kind}")
    table.upsert(pa.table({"k": [1, 2, 3], "v": values}))
    assert find_statistics(table) == []

    replace_in_footers(data_files(table), highest, changed)

    [text] = find_statistics(table)
    assert "column v of row group 0 has" in text


def test_statistics_of_shredded_columns_that_hide_rows_are_found(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "variant", tmp_path / "lake")
    table = Catalog(str(warehouse)).table("db.t_shredded")

    replace_in_footers(data_files(table), struct.pack("<q", 98), struct.pack("<q", 5))

    [text] = find_statistics(table)
    assert "column va.typed_value.a.typed_value of row group 0 has" in text


def test_doctor_names_the_rewrite(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(FIRST, "a"), (FIRST + 1, "b")]))
    replace_in_footers(data_files(table), struct.pack("<q", FIRST + 1), struct.pack("<q", FIRST))

    [finding] = [
        each
        for each in examine_opened_table(table, deep=True)
        if each.rule is DoctorRule.WRONG_STATISTICS
    ]

    assert finding.cost == {"findings": 2}
    assert "compaction.force-rewrite-all-files" in str(finding.advice)

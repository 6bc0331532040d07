"""The directories of FLOAT and DOUBLE values that Java before 19 writes with more digits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import Row, new_table, rows_of, table_of

from paimon_orch import col
from paimon_orch.errors import InputError
from paimon_orch.format.partition_path import normalize_directory_name
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.orchestration.table_conditions import find_done_partition
from paimon_orch.steps import (
    check,
    compact,
    expire_snapshots,
    remove_orphan_files,
    remove_unexisting_files,
)
from paimon_orch.storage import FileInfo
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.table.table import Table

# As Java 17 writes them.
JAVA_NAMES = {
    "f=7.118777E11": "f=7.1187772E11",
    "d=1.0E23": "d=9.999999999999999E22",
    "d=2.0E23": "d=1.9999999999999998E23",
}
FLOAT = 711877722112.0
ROWS = [(1, FLOAT, 1e23, "a"), (2, FLOAT, 2e23, "b"), (3, 1.5, 1e23, "c")]
KINDS = {
    "append": {"bucket": "-1", "deletion-vectors.enabled": "true"},
    "primary key": {"index-file-in-data-file-dir": "true", "data-file.path-directory": "data"},
    "vectors": {"deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"},
    "dynamic": {"bucket": "-1", "index-file-in-data-file-dir": "true"},
}


def rows_in(rows: list[Row]) -> pa.Table:
    types = {"k": pa.int32(), "f": pa.float32(), "d": pa.float64(), "v": pa.string()}
    return table_of("k f d v", rows).cast(pa.schema(types))


def table_of_java(root: Path, kind: str = "append", **options: str) -> Table:
    """Return a table whose directories have the names of an older Java."""
    key = () if kind == "append" else ("f", "d", "k")
    table = new_table(
        root,
        "k INT, f FLOAT, d DOUBLE, v STRING",
        key=key,
        partition_by=["f", "d"],
        **KINDS[kind] | options,
    )
    write(table, ROWS)
    if kind == "vectors":
        compact(table, strategy="full")
    for path in sorted(Path(table.paths.root).rglob("*=*"), reverse=True):
        path.rename(path.with_name(JAVA_NAMES.get(path.name, path.name)))
    return table


def write(table: Table, rows: list[Row]) -> None:
    (table.upsert if table.load().schema.primary_keys else table.append)(rows_in(rows))


def directories_of(table: Table) -> set[str]:
    return {path.name for path in Path(table.paths.root).rglob("*=*")}


@pytest.mark.parametrize("kind", KINDS)
def test_files_remain_in_the_directories_of_an_older_java(tmp_path: Path, kind: str) -> None:
    table = table_of_java(tmp_path, kind)
    names = directories_of(table)
    assert "d=1.9999999999999998E23" in names
    assert rows_of(table) == ROWS
    assert rows_of(table, filter=(col("f") == FLOAT) & (col("d") == 2e23)) == [ROWS[1]]
    assert check(table, deep=True).findings == ()

    write(table, [(4, FLOAT, 1e23, "d"), (5, 2.5, 2.5, "e")])
    table.delete(col("k") == 2)
    compact(table, strategy="full")
    remaining = [ROWS[0], ROWS[2], (4, FLOAT, 1e23, "d"), (5, 2.5, 2.5, "e")]
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=int(time.time() * 1000) + 1)
    assert not remove_orphan_files(table, older_than=int(time.time() * 1000)).files
    assert not remove_unexisting_files(table)
    assert check(table, deep=True).findings == ()
    assert rows_of(table) == remaining
    assert directories_of(table) - {"f=2.5", "d=2.5"} <= names


def test_orphans_and_partitions_are_found_by_the_value(tmp_path: Path) -> None:
    table = table_of_java(tmp_path)
    orphan = Path(
        table.paths.root, "f=7.1187772E11", "d=9.999999999999999E22", "bucket-0", "data-x"
    )
    orphan.touch()
    spec = {"f": "7.118777E11", "d": "1.0E23"}
    result = remove_orphan_files(table, older_than=int(time.time() * 1000) + 1, partitions=[spec])
    assert result.files == 1
    assert not orphan.exists()
    table.drop_partitions([spec])
    assert rows_of(table) == ROWS[1:]


def test_two_directories_of_one_value_are_refused(tmp_path: Path) -> None:
    table = table_of_java(tmp_path)
    Path(table.paths.root, "f=7.1187772E11", "d=1.0E23").mkdir()
    with pytest.raises(InputError, match=r"d=1\.0E23, d=9\.999999999999999E22"):
        table.scan().to_arrow()
    with pytest.raises(InputError, match=r"d=1\.0E23, d=9\.999999999999999E22"):
        remove_unexisting_files(table)
    assert {finding.rule for finding in check(table).findings} == {"path"}


def test_the_mark_of_a_partition_is_in_its_directory(tmp_path: Path) -> None:
    table = table_of_java(tmp_path, **{"partition.mark-done-action": "success-file"})
    names = directories_of(table)
    spec = {"f": "7.118777E11", "d": "1.0E23"}
    table.stores.build_marker().mark([spec])
    assert directories_of(table) == names
    assert find_done_partition(table, spec) is not None


class ListingIO(LocalFileIO):
    """Records the directories that are listed."""

    listed: list[str]

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        self.listed.append(path.rpartition("/db.db/t")[2])
        return super().list_dir(path)


@pytest.mark.parametrize("column", ["f", "k"])
def test_a_level_of_floating_point_directories_is_listed_once(tmp_path: Path, column: str) -> None:
    table = new_table(tmp_path, "k INT, f FLOAT, v INT", key=(), partition_by=[column], bucket="-1")
    rows = [(k, FLOAT * k, k) for k in range(5)]
    table.append(table_of("k f v", rows))
    io = ListingIO()
    io.listed = []
    assert len(rows_of(replace(table, io=io))) == len(rows)
    assert io.listed.count("") == (1 if column == "f" else 0)


@pytest.mark.parametrize(
    ("kind", "text", "normalized"),
    [
        ("FLOAT", "7.1187772E11", "7.118777E11"),
        ("DOUBLE", "7.1187772E11", "7.1187772E11"),
        ("DOUBLE", "9.999999999999999E22", "1.0E23"),
        ("DOUBLE", "-0.0", "-0.0"),
        ("DOUBLE", "NaN", "NaN"),
        ("DOUBLE", "1_0.0", "1_0.0"),
        ("DOUBLE", "\u0661.0", "\u0661.0"),
        ("FLOAT", "1.0E999", "Infinity"),
        ("STRING", "9.999999999999999E22", "9.999999999999999E22"),
    ],
)
def test_a_number_has_one_normal_text(kind: str, text: str, normalized: str) -> None:
    [field] = parse_columns(f"p {kind}")
    assert normalize_directory_name(f"p={text}", field) == f"p={normalized}"

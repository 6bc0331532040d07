"""Changelog files: format, codec, statistics and names, and changelog files of Java 2.0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from support.golden import GOLDEN, assert_rows_equal, canonical_rows, copy_warehouse
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import CompactionStrategy, compact
from paimon_orch.table.table import Table

FOLDER = GOLDEN / "java-2.0" / "changelog_options"
EXECUTOR = InProcessExecutor()


def changelogs() -> Iterator[Any]:
    for entry in json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))["tables"]:
        for changes in entry["changelogs"]:
            name, number = entry["table"], changes["snapshot"]
            yield pytest.param(name, number, changes["rows"], id=f"{name}-{number}")


def changes_in(table: Table, snapshot: int) -> list[list[Any]]:
    changelog = table.incremental(snapshot - 1, snapshot, "changelog").to_arrow()
    return canonical_rows(changelog)


@pytest.mark.parametrize(("name", "number", "rows"), list(changelogs()))
def test_changelog_files_of_java_are_read(
    name: str, number: int, rows: list[list[Any]], tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(FOLDER, tmp_path / "w"))).table(name)

    assert_rows_equal(rows, changes_in(table, number))


@pytest.mark.parametrize(
    ("name", "number", "rows"), [case for case in changelogs() if case.values[0] != "db.t_input"]
)
def test_our_compaction_of_the_same_rows_writes_the_same_changelog_as_java(
    name: str, number: int, rows: list[list[Any]], tmp_path: Path
) -> None:
    table = Catalog(str(copy_warehouse(FOLDER, tmp_path / "w"))).table(name)
    table.rollback(number - 1)
    strategy: CompactionStrategy = "full" if name == "db.t_full" else "minor"

    compact(table, EXECUTOR, strategy=strategy)

    assert_rows_equal(rows, changes_in(table, number))


def changelog_files(table: Table) -> list[DataFileMeta]:
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.changelog_manifest_list is not None
    manifests = table.stores.manifests.manifest_list(snapshot.changelog_manifest_list)
    return [entry.file for entry in table.stores.manifests.entries(manifests)]


def write_changelog(root: Path, producer: str, **options: str) -> tuple[Path, DataFileMeta]:
    """Write a table with one changelog file in its newest snapshot; return it and its metadata."""
    table = new_table(root, changelog_producer=producer, **options)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    if producer != "input":
        compact(table, EXECUTOR, strategy="full")
    (file,) = changelog_files(table)
    (path,) = root.rglob(file.file_name)
    return path, file


PRODUCERS = ["input", "lookup", "full-compaction"]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_changelog_files_have_their_own_format_and_prefix(tmp_path: Path, producer: str) -> None:
    path, _ = write_changelog(
        tmp_path, producer, changelog_file__format="avro", changelog_file__prefix="cl-"
    )

    assert path.name.startswith("cl-")
    assert path.suffix == ".avro"
    with path.open("rb") as source:
        records: list[Any] = list(fastavro.reader(source))
    assert [record["v"] for record in records] == ["a", "b"]
    assert list(tmp_path.rglob("data-*.parquet"))


@pytest.mark.parametrize("producer", PRODUCERS)
def test_changelog_files_have_their_own_codec_and_statistics(tmp_path: Path, producer: str) -> None:
    path, file = write_changelog(
        tmp_path,
        producer,
        changelog_file__compression="snappy",
        changelog_file__stats_mode="none",
        file__compression__per__level="0:lz4,5:lz4",
    )

    assert pq.read_metadata(path).row_group(0).column(0).compression == "SNAPPY"
    assert file.value_stats_cols == ()
    (data,) = tmp_path.rglob("data-*.parquet")
    assert pq.read_metadata(data).row_group(0).column(0).compression == "LZ4"


def test_the_codec_in_a_changelog_file_name_is_that_of_data_files(tmp_path: Path) -> None:
    options = {
        "changelog_file__compression": "snappy",
        "file__suffix__include__compression": "true",
    }
    path, _ = write_changelog(tmp_path, "lookup", **options)

    assert path.name.endswith(".zst.parquet")


def test_an_unsupported_changelog_format_is_refused_with_the_option_key(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"changelog-file\.format"):
        write_changelog(tmp_path, "lookup", changelog_file__format="csv")


def test_the_changelog_keeps_the_row_kind_of_the_first_row_of_a_key(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, changelog_producer="lookup", merge_engine="first-row")
    rows = table_of("k v kind", [(1, "a", "+U"), (2, "b", "+I")])
    table.upsert(rows, row_kind="kind")

    compact(table, EXECUTOR)

    assert changes_in(table, 2) == [["+U", 1, "a"], ["+I", 2, "b"]]

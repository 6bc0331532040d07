"""The check of metadata by columns and parts equals a simple implementation."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.damage import edit_files, edit_index
from support.data_evolution import add_columns, evolving_table
from support.random_manifests import ENTRIES, SNAPSHOTS, write_snapshots
from support.simple_check import check_snapshots
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.format.manifest import columnar_manifest
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.steps.common import manifest_units
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.commit import kind_conflicts
from paimon_orch.table.table import Table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table in whose buckets some of the files exist."""
    table = new_table(
        tmp_path_factory.mktemp("warehouse"), "p INT, k BIGINT, s STRING",
        key=("p", "k", "s"), partition_by=("p",), bucket="2",
    )  # fmt: skip
    root = Path(table.paths.root)
    for directory in ("p=0/bucket-0", "p=0/bucket-1", "p=1/bucket-0", "p=0/bucket-2"):
        (root / directory).mkdir(parents=True)
        for name in ("a", "b", "c", "x"):
            (root / directory / name).write_bytes(b"1")
    for name in ("i", "j"):
        (root / "index").mkdir(exist_ok=True)
        (root / "index" / name).write_bytes(b"1")
    allowed = table.io.confine((*table.io.roots, "/elsewhere"))  # some have an external path
    return dataclasses.replace(table, io=allowed)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    manifests=st.lists(st.lists(ENTRIES, max_size=4), min_size=5, max_size=5),
    snapshots=st.lists(SNAPSHOTS, min_size=1, max_size=3),
    entries_per_part=st.sampled_from([1, 3, 1_000]),
    columnar_bytes=st.sampled_from([0, 16_384]),
)
def test_the_findings_are_those_of_a_simple_implementation(
    table: Table,
    manifests: list[list[ManifestEntry]],
    snapshots: list[tuple[Any, ...]],
    entries_per_part: int,
    columnar_bytes: int,
) -> None:
    write_snapshots(table, manifests, snapshots)

    with (
        mock.patch.object(manifest_units, "_ENTRIES_PER_PART", entries_per_part),
        mock.patch.object(columnar_manifest, "_MIN_COLUMNAR_BYTES", columnar_bytes),
    ):
        report = check(table)

    found = sorted((f.rule, f.where, f.text) for f in report.findings if f.rule != "lost-snapshot")
    assert found == sorted(check_snapshots(table))
    snapshot_files = [table.stores.snapshots.get(number) for number in table.stores.snapshots.ids()]
    live = [
        entry
        for snapshot in snapshot_files
        for entry in table.stores.manifests.read_live_entries(snapshot)
    ]
    assert report.data_files == len({entry.file.file_name for entry in live})


def test_files_with_a_part_of_their_row_ids_in_common_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = evolving_table(tmp_path)
    add_columns(table, table_of("a b c", [(n, n, n) for n in range(5)]))
    add_columns(table, table_of("b", [(n,) for n in range(5)]), first_row_id=0)
    assert check(table).findings == ()
    monkeypatch.setattr(kind_conflicts, "check_row_ranges", lambda *_: None)
    add_columns(table, table_of("b", [(n,) for n in range(3)]), first_row_id=2)

    [finding] = check(table).findings

    assert finding.rule == "row-ids"
    names = re.fullmatch(
        "files (.*) and (.*) have only a part of their row ids in common", finding.text
    )
    assert names is not None
    assert names[1] != names[2]


@pytest.mark.parametrize("data_evolution", [False, True])
def test_row_ids_that_a_snapshot_has_not_assigned_are_damage(
    tmp_path: Path, *, data_evolution: bool
) -> None:
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": str(data_evolution)}
    columns = "a BIGINT, b BIGINT, c BIGINT"
    table = new_table(tmp_path, columns, key=(), bucket="-1", **options)
    rows = table_of("a b c", [(n, n, n) for n in range(5)])
    table.append(rows)
    path = Path(table.stores.snapshots.path(1))
    path.write_text(path.read_text().replace('"nextRowId": 5', '"nextRowId": 3'))

    [finding] = check(table).findings
    assert finding.rule == "row-ids"
    assert "row ids up to 4, but the snapshot has assigned only ids below 3" in finding.text
    with pytest.raises(UnsupportedError, match="append its rows to a new one"):
        table.append(rows)
    assert table.stores.snapshots.ids() == [1]


def test_a_changelog_manifest_may_be_missing_only_from_a_tagged_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="input")
    table.upsert(pa.table({"k": [1], "v": ["a"]}))
    snapshot = table.stores.snapshots.get(1)
    [meta] = table.stores.manifests.manifest_list(snapshot.changelog_manifest_list or "")
    manifest = Path(table.paths.manifest_dir) / meta.file_name

    manifest.unlink()
    assert [finding.rule for finding in check(table).findings] == ["unreadable"]

    table.tags.create("t")
    assert check(table).findings == ()

    manifest.write_bytes(b"damaged")
    assert {finding.rule for finding in check(table).findings} == {"unreadable"}


def test_a_sequence_number_without_successors_is_found_and_overwritten(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    edit_files(table, 1, max_sequence_number=2**63 - 1)

    [finding] = check(table).findings
    assert finding.rule == "sequence"
    assert "the sequence number 9223372036854775807, and few or no numbers are greater" in (
        finding.text
    )
    with pytest.raises(UnsupportedError, match="so no rows can be added"):
        table.upsert(table_of("k v", [(2, "b")]))

    table.overwrite(table_of("k v", rows_of(table)))
    table.upsert(table_of("k v", [(2, "b")]))
    assert rows_of(table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("bucket", [-1, 32_768])
def test_a_hash_index_of_an_impossible_bucket_is_found_and_overwritten(
    tmp_path: Path, bucket: int
) -> None:
    table = new_table(tmp_path, bucket="-1")
    rows = table_of("k v", [(1, "a")])
    table.upsert(rows)

    def add(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        folder = Path(table.paths.root) / "index"
        shutil.copy(folder / entries[0].file_name, folder / "copy")
        return [*entries, dataclasses.replace(entries[0], bucket=bucket, file_name="copy")]

    edit_index(table, 1, add)

    [finding] = check(table).findings
    assert finding.rule == "index"
    assert f"the bucket {bucket}, but dynamic buckets have numbers from 0 to 32767" in finding.text
    with pytest.raises(CorruptFileError, match="overwrite the partition with its rows"):
        table.upsert(rows)

    table.overwrite(rows)
    table.upsert(table_of("k v", [(2, "b")]))
    assert rows_of(table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("bucket", [-1, 32_768])
def test_files_of_an_impossible_dynamic_bucket_are_found(tmp_path: Path, bucket: int) -> None:
    table = new_table(tmp_path, bucket="-1")
    table.upsert(table_of("k v", [(1, "a")]))
    edit_files(table, 1, bucket=bucket)

    findings = {finding.rule: finding.text for finding in check(table).findings}

    assert "dynamic buckets have numbers from 0 to 32767" in findings["bucket"]

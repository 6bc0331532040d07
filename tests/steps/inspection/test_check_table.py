"""Check: sound tables have no findings, and each kind of damage has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.damage import data_files, edit_delta, edit_files, edit_index, edit_snapshot
from support.golden import golden_tables
from support.golden_limits import missing_type
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import MissingFileError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.table import Table

DAMAGED = {
    # Java 0.9 wrote invalid UTF-8 because it treated a null row as a row of nulls.
    "java-0.9/pk_aggregation_complex/db.t": {"text"},
    # pypaimon writes a delete count of 0 for files with deletes.
    "pypaimon-2.1/pk_rowkind_delete/db.t": {"delete-rows"},
}
TABLES = {f"{id_.rpartition('/')[0]}/{entry['table']}": folder for id_, folder, entry in golden_tables()}  # fmt: skip
SOUND = [name for name in sorted(TABLES) if not missing_type(name)]


def rules(table: Table, *, deep: bool = True) -> set[str]:
    return {finding.rule for finding in check(table, deep=deep).findings}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", SOUND)
def test_a_deep_check_of_tables_of_other_engines_has_only_the_listed_findings(name: str) -> None:
    warehouse, table = TABLES[name] / "warehouse", name.rpartition("/")[2]

    report = check(Catalog(str(warehouse)).table(table), deep=True)

    assert {finding.rule for finding in report.findings} == DAMAGED.get(name, set())
    assert report.versions


@pytest.mark.parametrize("name", [name for name in sorted(TABLES) if missing_type(name)])
def test_check_names_unsupported_types(name: str) -> None:
    warehouse, table = TABLES[name] / "warehouse", name.rpartition("/")[2]

    report = check(Catalog(str(warehouse)).table(table), deep=True)

    assert {finding.rule for finding in report.findings} == {"unreadable"}
    assert all(str(missing_type(name)) in finding.text for finding in report.findings)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two appends of two files each, a compaction with deletion vectors, and another append."""
    table = new_table(
        tmp_path, "p INT, k BIGINT, v STRING", key=("p", "k"), partition_by=("p",),
        deletion_vectors__enabled="true", bucket="2",
    )  # fmt: skip
    for text in "ab":
        table.upsert(table_of("p k v", [(1, k, f"{text}{k}") for k in range(20)]))
        compact(table, InProcessExecutor())
    table.upsert(table_of("p k v", [(1, k, f"c{k}") for k in range(5, 9)]))
    table.tags.create("kept", 2)
    assert check(table, deep=True), check(table, deep=True).findings
    return table


def test_the_report_counts_checked_versions_and_files(table: Table) -> None:
    report = check(table, deep=True)

    assert report.versions == 6
    assert report.to_dict() == {
        "versions": 6,
        "data_files": report.data_files,
        "findings": [],
        "stale_indexes": [],
    }
    assert report.data_files == len(list(Path(table.paths.root).glob("p=*/*/*")))


def test_an_empty_table_has_no_findings(tmp_path: Path) -> None:
    assert check(new_table(tmp_path), deep=True)


def test_a_missing_data_file_is_found(table: Table) -> None:
    data_files(table)[0].unlink()

    [first, *_] = check(table).findings

    assert (first.rule, "does not exist" in str(first)) == ("missing-file", True)
    assert str(data_files(table)[0]) in str(first)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pattern", ["manifest-list-*", "manifest-[0-9a-f]*", "index-manifest-*"])
def test_missing_metadata_is_found(table: Table, pattern: str) -> None:
    for path in Path(table.paths.manifest_dir).glob(pattern):
        path.unlink()

    assert rules(table, deep=False) == {"unreadable"}


def test_a_missing_index_file_is_found(table: Table) -> None:
    for path in Path(table.paths.index_dir).iterdir():
        path.unlink()

    assert rules(table, deep=False) == {"missing-file"}
    assert rules(table) >= {"missing-file", "vector"}


def test_a_damaged_snapshot_is_found(table: Table) -> None:
    Path(table.stores.snapshots.path(3)).write_bytes(b"{}")

    assert rules(table) >= {"unreadable", "gap"}


def test_a_missing_snapshot_is_found(table: Table) -> None:
    Path(table.stores.snapshots.path(3)).unlink()

    assert rules(table) == {"gap"}


def test_snapshots_that_a_late_one_hides_are_found(table: Table) -> None:
    first, second, third, *_ = table.stores.snapshots.ids()
    Path(table.stores.snapshots.path(second)).unlink()
    table.stores.snapshots.write_hint("EARLIEST", third)
    table.stores.snapshots.write_hint("LATEST", first)

    assert rules(table) == {"hidden-snapshots"}


def test_a_lost_newest_snapshot_is_found(table: Table) -> None:
    newest = table.stores.snapshots.latest_id()
    assert newest is not None
    Path(table.stores.snapshots.path(newest)).unlink()

    assert rules(table, deep=False) == {"lost-snapshot"}
    with pytest.raises(MissingFileError, match=f"LATEST names snapshot {newest}"):
        remove_orphan_files(table)


def test_a_snapshot_under_another_name_is_found(table: Table) -> None:
    edit_snapshot(table, 5, id=6)

    assert "id" in rules(table)


@pytest.mark.slow
def test_a_missing_schema_is_found(table: Table) -> None:
    edit_snapshot(table, 5, schema_id=7)

    assert rules(table) == {"unreadable"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("figure", ["total_record_count", "delta_record_count"])
def test_wrong_counts_are_found(table: Table, figure: str) -> None:
    edit_snapshot(table, 5, **{figure: 7})

    assert rules(table) == {"record-count"}


def test_a_wrong_count_of_a_changelog_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="input")
    table.upsert(table_of("k v", [(1, "a")]))
    assert check(table, deep=True)

    edit_snapshot(table, 1, changelog_record_count=2)

    assert rules(table) == {"record-count"}


def test_a_damaged_changelog_manifest_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="input")
    table.upsert(table_of("k v", [(1, "a")]))
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.changelog_manifest_list is not None
    [meta] = table.stores.manifests.manifest_list(snapshot.changelog_manifest_list)
    Path(table.paths.manifest_dir, meta.file_name).write_bytes(b"Obj\1")

    [finding] = check(table).findings

    assert meta.file_name in str(finding)


def test_a_lost_changelog_file_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, changelog_producer="input")
    table.upsert(table_of("k v", [(1, "a")]))
    for path in Path(table.paths.root).glob("bucket-*/changelog-*"):
        path.unlink()

    assert rules(table) == {"missing-file"}


def test_a_delete_of_a_file_that_is_not_live_is_found(table: Table) -> None:
    edit_delta(table, 5, lambda entries: [*entries, replace(entries[0], file=replace(entries[0].file, file_name="data-x.parquet")).deleted()])  # fmt: skip

    assert "delete" in rules(table)


@pytest.mark.slow
def test_a_file_added_twice_is_found(table: Table) -> None:
    edit_delta(table, 5, lambda entries: [*entries, entries[0]])

    assert "add" in rules(table)


def test_a_file_on_two_levels_is_found(table: Table) -> None:
    def twice(entries: list) -> list:  # type: ignore[type-arg]
        entry = entries[0]
        return [*entries, replace(entry, file=entry.file.with_level(3))]

    edit_delta(table, 5, twice)

    assert "add" in rules(table)


def test_a_base_without_a_live_file_is_found(table: Table) -> None:
    snapshot = table.stores.snapshots.get(4)
    edit_snapshot(
        table,
        5,
        base_manifest_list=snapshot.base_manifest_list,
        base_manifest_list_size=snapshot.base_manifest_list_size,
    )

    assert "base" in rules(table)


def test_a_compaction_that_adds_rows_is_found(table: Table) -> None:
    edit_delta(table, 4, lambda entries: [e for e in entries if e.kind is FileKind.ADD])

    assert "compaction" in rules(table)


@pytest.mark.slow
def test_a_file_with_a_wrong_size_is_found(table: Table) -> None:
    with data_files(table)[-1].open("ab") as file:
        file.write(b"x")

    assert rules(table, deep=False) == {"file-size"}


def test_overlapping_runs_are_found(table: Table) -> None:
    edit_files(table, 5, level=5)

    assert "sorted-run" in rules(table, deep=False)


@pytest.mark.parametrize("count", [1, 3])
def test_mixed_bucket_counts_are_found(table: Table, count: int) -> None:
    edit_files(table, 5, total_buckets=count)

    assert "bucket" in rules(table, deep=False)


def test_rows_in_the_wrong_bucket_are_found(table: Table) -> None:
    buckets = sorted(Path(table.paths.root).glob("p=1/bucket-*"))
    aside = buckets[0].with_name("aside")
    buckets[0].rename(aside)
    buckets[1].rename(buckets[0])
    aside.rename(buckets[1])

    def swapped(entries: list) -> list:  # type: ignore[type-arg]
        return [replace(entry, bucket=1 - entry.bucket) for entry in entries]

    edit_delta(table, 5, swapped)

    assert "bucket" in rules(table)


def test_a_file_that_differs_from_its_metadata_is_found(tmp_path: Path) -> None:
    changes: dict[str, Callable[[Table], None]] = {
        "delete-rows": lambda t: edit_files(t, 1, delete_row_count=2),
        "sequence": lambda t: edit_files(t, 1, max_sequence_number=1),
        "key-range": lambda t: edit_files(t, 1, min_key=table_key(t, 1), max_key=table_key(t, 1)),
        "unreadable": lambda t: edit_files(t, 1, row_count=99),
    }
    for number, (rule, damage) in enumerate(changes.items()):
        table = new_table(tmp_path / str(number), bucket="1")
        table.upsert(table_of("k v", [(1, "a"), (2, "b"), (3, "c")]))
        assert check(table, deep=True)

        damage(table)

        assert rule in rules(table)
        assert rules(table, deep=False) <= {"record-count"}


def table_key(table: Table, snapshot_id: int) -> bytes:
    [entry] = table.stores.manifests.read_delta_entries(table.stores.snapshots.get(snapshot_id))
    return entry.file.min_key


def test_wrong_statistics_are_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="1")
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    table.upsert(table_of("k v", [(7, None)]))
    [entry] = table.stores.manifests.read_delta_entries(table.stores.snapshots.get(2))

    edit_files(table, 1, value_stats=entry.file.value_stats)

    assert rules(table) == {"statistics"}


def test_duplicate_or_unsorted_keys_in_a_file_are_found(tmp_path: Path) -> None:
    for number, order in enumerate(([0, 0, 1], [1, 0, 2])):
        table = new_table(tmp_path / str(number), bucket="1")
        table.upsert(table_of("k v", [(1, "a"), (2, "b"), (3, "c")]))
        [path] = data_files(table)
        pq.write_table(pq.read_table(path).take(order), path)
        edit_files(table, 1, file_size=path.stat().st_size)

        assert "keys" in rules(table)


def test_damaged_bytes_are_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="1")
    table.upsert(table_of("k v", [(k, "a" * 50) for k in range(50)]))
    [path] = data_files(table)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)

    assert rules(table, deep=False) == set()
    assert rules(table) == {"unreadable"}


def vector_edit(**changes: object) -> Callable[[list[IndexManifestEntry]], list[IndexManifestEntry]]:  # fmt: skip
    def edit(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        ranges = entries[0].ranges
        assert ranges
        return [replace(entries[0], ranges=(replace(ranges[0], **changes), *ranges[1:])), *entries[1:]]  # type: ignore[arg-type]  # fmt: skip

    return edit


def test_a_deletion_vector_of_a_file_that_is_not_live_is_found(table: Table) -> None:
    edit_index(table, 5, vector_edit(data_file="data-gone.parquet"))

    assert "vector" in rules(table, deep=False)


@pytest.mark.parametrize("cardinality", [0, 1000])
def test_a_deletion_vector_with_an_impossible_cardinality_is_found(
    table: Table, cardinality: int
) -> None:
    edit_index(table, 5, vector_edit(cardinality=cardinality))

    assert "vector" in rules(table, deep=False)


def test_two_deletion_vectors_of_one_file_are_found(table: Table) -> None:
    edit_index(table, 5, lambda entries: [*entries, *entries])

    assert "vector" in rules(table, deep=False)


def test_a_deletion_vector_with_a_wrong_cardinality_is_found(table: Table) -> None:
    edit_index(table, 5, vector_edit(cardinality=2))

    assert rules(table, deep=False) == set()
    assert rules(table) >= {"vector"}


def test_a_damaged_deletion_vector_is_found(table: Table) -> None:
    for path in Path(table.paths.index_dir).iterdir():
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    assert rules(table, deep=False) == set()
    assert "vector" in rules(table)


def test_a_key_with_two_live_rows_is_found(table: Table) -> None:
    edit_snapshot(table, 4, index_manifest=None)

    assert "live-twice" in rules(table)
    assert rules(table, deep=False) == set()


def test_deleted_rows_that_are_live_again_are_found(table: Table) -> None:
    """The deletion vector of a live file only grows."""
    table.upsert(table_of("p k v", [(1, k, f"d{k}") for k in range(20)]))
    compact(table, InProcessExecutor())
    assert check(table, deep=True)
    newest = table.stores.snapshots.latest()
    assert newest is not None

    edit_snapshot(table, newest.id, index_manifest=table.stores.snapshots.get(4).index_manifest)

    assert "live-twice" in rules(table)


def test_a_path_outside_the_table_is_found(table: Table) -> None:
    edit_files(table, 5, external_path="/elsewhere/../etc/passwd")

    assert "path" in rules(table, deep=False)


def test_an_unfinished_expiration_has_no_findings(table: Table) -> None:
    table.stores.snapshots.write_hint("EARLIEST", 5)
    table.tags.delete("kept")
    Path(table.stores.snapshots.path(2)).unlink()
    for name in {table.stores.snapshots.get(i).delta_manifest_list for i in (1, 3)}:
        (Path(table.paths.manifest_dir) / name).unlink()

    assert check(table, deep=True).findings == ()


class ExpiringFileIO(LocalFileIO):
    """Reports that the first snapshot was deleted after it was read."""

    def exists(self, path: str) -> bool:
        return not path.endswith("/snapshot-1") and super().exists(path)


def test_findings_of_an_expired_snapshot_are_found_in_the_next_one(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    [lost] = data_files(table)
    table.upsert(table_of("k v", [(2, "b")]))
    lost.unlink()

    findings = check(Table(table.identifier, ExpiringFileIO(), table.paths)).findings

    assert [(finding.rule, finding.where) for finding in findings] == [
        ("missing-file", "snapshot 2")
    ]


def test_a_branch_without_a_schema_is_found(table: Table) -> None:
    table.branches.create("dev")
    for path in Path(table.paths.root).glob("branch/branch-dev/schema/*"):
        path.unlink()

    assert rules(table) == {"unreadable"}


def test_a_bound_of_zero_can_have_either_sign(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, f FLOAT, d DOUBLE", file__format="avro")
    table.upsert(table_of("k f d", [(1, 0.0, 0.0), (2, 1.0, 1.0)]))
    stats = [ColumnStats(1, 2, 0), ColumnStats(0.0, 1.0, 0), ColumnStats(0.0, 1.0, 0)]
    types = [field.type for field in table.load().schema.fields]

    edit_files(table, 1, value_stats=SimpleStats.of(stats, types))

    assert check(table, deep=True).findings == ()


def test_a_null_count_of_minus_one_is_unknown(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING")
    table.upsert(table_of("k v", [(1, None), (2, "long")]))
    stats = [ColumnStats(1, 2, 0), ColumnStats(None, None, -1)]  # Java stores it for long strings
    types = [field.type for field in table.load().schema.fields]

    edit_files(table, 1, value_stats=SimpleStats.of(stats, types))

    assert check(table, deep=True).findings == ()
    edit_files(table, 1, value_stats=SimpleStats.of([stats[0], ColumnStats(None, None, 0)], types))
    assert rules(table) == {"statistics"}


def test_a_damaged_schema_of_a_branch_without_snapshots_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.branches.create("dev")
    schema = Path(table.paths.root, "branch", "branch-dev", "schema", "schema-0")
    assert check(table).findings == ()

    schema.write_bytes(b"{")

    [finding] = check(table).findings
    assert (finding.rule, finding.where) == ("unreadable", "branch dev")


@pytest.mark.parametrize("content", [b"", b"junk" * 20])
def test_a_damaged_file_index_is_found_although_readers_skip_it(
    tmp_path: Path, content: bytes
) -> None:
    options = {
        "file-index.bloom-filter.columns": "k",
        "file-index.in-manifest-threshold": "1 b",
    }
    table = new_table(tmp_path, key=(), bucket="-1", **options)
    table.append(table_of("k v", [(number, "a") for number in range(100)]))
    [index] = Path(table.paths.root).rglob("*.index")
    assert check(table, deep=True).findings == ()

    index.write_bytes(content)

    [finding] = check(table, deep=True).findings
    assert index.name in str(finding)

"""Records that batch readers do not see before a compaction: counts, warnings and options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke, run_command
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact, compact_written_partitions
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.table.metadata import manifest_io
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table


def create_compacted_table(root: Path, **options: str) -> Table:
    """Return a table with three compacted rows; one is replaced and one is deleted.

    A fourth row is not compacted.
    """
    table = new_table(root, deletion_vectors__enabled="true", **options)
    table.upsert(table_of("k v", [(1, "a"), (2, "b"), (3, "c")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(2, "new"), (4, "d")]))
    table.delete(table_of("k", [(3,)]))
    return table


AFTER = [(1, "a"), (2, "new"), (4, "d")]
BEFORE = [(1, "a"), (2, "b"), (3, "c")]


def test_records_on_level_0_are_counted_if_readers_leave_them_out(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)

    assert rows_of(table) == BEFORE
    assert table.scan().rows_not_visible == 3
    compact(table, InProcessExecutor())
    assert rows_of(table) == AFTER
    assert table.scan().rows_not_visible == 0


def test_rows_of_other_tables_are_visible_immediately(tmp_path: Path) -> None:
    keyed = new_table(tmp_path / "keyed")
    keyed.upsert(table_of("k v", [(1, "a")]))
    append = new_table(tmp_path / "append", key=(), bucket="-1", deletion_vectors__enabled="true")
    append.append(table_of("k v", [(1, "a")]))

    assert [t.scan().rows_not_visible for t in (keyed, append)] == [0, 0]
    assert rows_of(keyed) == rows_of(append) == [(1, "a")]


def test_level_0_is_merged_on_request(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)

    scan = table.scan(merge_level_0=True)

    assert rows_of(table, merge_level_0=True) == AFTER
    assert scan.rows_not_visible == 0
    assert rows_of(table, merge_level_0=True, filter="v = 'b'") == []
    assert rows_of(table, merge_level_0=True, filter="k = 3") == []


def test_the_option_of_the_table_merges_level_0_and_a_scan_overrides_it(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path, deletion_vectors__merge_on_read="true")

    assert rows_of(table) == AFTER
    assert table.scan().rows_not_visible == 0
    assert rows_of(table, merge_level_0=False) == BEFORE
    assert table.scan(merge_level_0=False).rows_not_visible == 3


def test_first_row_tables_need_a_compaction_despite_merge_on_read(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, merge_engine="first-row", deletion_vectors__merge_on_read="true")
    table.upsert(table_of("k v", [(1, "first")]))
    compact(table, InProcessExecutor())
    table.upsert(table_of("k v", [(1, "second"), (2, "first")]))

    assert rows_of(table) == [(1, "first")]
    assert table.scan().rows_not_visible == 2
    assert rows_of(table, merge_level_0=True) == [(1, "first"), (2, "first")]


def test_records_are_counted_in_the_partitions_of_the_filter(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "p STRING, k BIGINT",
        key=("p", "k"),
        partition_by=("p",),
        deletion_vectors__enabled="true",
    )
    table.upsert(table_of("p k", [("a", 1), ("a", 2), ("b", 1)]))

    assert table.scan().rows_not_visible == 3
    assert table.scan(filter="p = 'a'").rows_not_visible == 2
    assert table.scan(filter="p = 'c'").rows_not_visible == 0


def test_rows_in_postpone_buckets_are_counted(tmp_path: Path) -> None:
    options = {"postpone__batch_write_fixed_bucket": "false"}
    table = new_table(tmp_path, bucket="-2", **options)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))

    assert rows_of(table) == []
    assert table.scan().rows_not_visible == 2


def test_time_travel_counts_the_records_that_were_not_compacted(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)
    table.tags.create("before")
    compact(table, InProcessExecutor())

    assert rows_of(table, tag="before") == BEFORE
    assert table.scan(tag="before").rows_not_visible == 3
    assert rows_of(table, tag="before", merge_level_0=True) == AFTER
    assert rows_of(table, snapshot_id=2, merge_level_0=True) == BEFORE


def test_the_audit_log_merges_level_0_on_request(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)
    log = table.system("audit_log")

    assert log.scan().rows_not_visible == 3
    rows = log.scan(["rowkind", "k"], merge_level_0=True, order_by="k").to_arrow()
    assert rows.to_pylist() == [
        {"rowkind": "+I", "k": 1},
        {"rowkind": "+I", "k": 2},
        {"rowkind": "-D", "k": 3},
        {"rowkind": "+I", "k": 4},
    ]


def test_counting_opens_only_manifests_with_level_0_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_compacted_table(tmp_path)
    scan = table.scan()
    opened: list[ManifestFileMeta] = []
    original = manifest_io._open_manifest

    def record(meta: ManifestFileMeta, *arguments: Any) -> Manifest:
        opened.append(meta)
        return original(meta, *arguments)

    monkeypatch.setattr(manifest_io, "_open_manifest", record)

    assert scan.rows_not_visible == 3
    assert opened
    assert all(meta.min_level == 0 for meta in opened)


def test_a_read_reports_the_number_of_records_that_it_skips(tmp_path: Path) -> None:
    create_compacted_table(tmp_path)
    read = "read", str(tmp_path), "db.t", "--format", "csv"

    plain, merged = invoke(*read), invoke(*read, "--merge-level-0")

    assert plain.stdout.splitlines()[1:] == ['1,"a"', '2,"b"', '3,"c"']
    assert plain.stderr == (
        "note: 3 records of db.t are not compacted yet and are left out; run "
        f"`paimon-orch compact {tmp_path} db.t`, or read them with --merge-level-0\n"
    )
    assert merged.stdout.splitlines()[1:] == ['1,"a"', '2,"new"', '4,"d"']
    assert merged.stderr == ""


def test_inspect_shows_the_records_that_are_not_visible(tmp_path: Path) -> None:
    create_compacted_table(tmp_path)

    report = json.loads(run_command("inspect", str(tmp_path), "db.t", "--json"))

    assert report["totals"]["rows_not_visible"] == 3
    assert "batch readers do not see 3 records" in run_command("inspect", str(tmp_path), "db.t")


def test_a_write_that_is_not_visible_is_logged_with_the_command_to_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path / "a warehouse", deletion_vectors__enabled="true")

    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))

    command = f"paimon-orch compact '{tmp_path}/a warehouse' db.t"
    messages = [*caplog.messages]
    caplog.clear()
    table.upsert(table_of("k v", [(3, "c")]))
    assert caplog.messages[0].startswith("1 of the records written to db.t is not visible to ")
    assert messages == [
        (
            "2 of the records written to db.t are not visible to batch readers before a compaction; "
            f"run `{command}`"
        )
    ]


def test_a_visible_write_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    new_table(tmp_path / "plain").upsert(table_of("k v", [(1, "a")]))
    merged = new_table(
        tmp_path / "merged",
        deletion_vectors__enabled="true",
        deletion_vectors__merge_on_read="true",
    )
    merged.upsert(table_of("k v", [(1, "a")]))

    assert caplog.messages == []
    assert rows_of(merged) == [(1, "a")]


def test_a_row_level_delete_reports_the_records_that_are_not_visible(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)

    result = row_level.delete(table, InProcessExecutor(), "k in (1, 2)")

    assert (result.deleted, result.rows_not_visible) == (2, 2)
    assert rows_of(table, merge_level_0=True) == [(4, "d")]


def test_only_the_partitions_of_a_commit_are_compacted(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "p STRING, k BIGINT",
        key=("p", "k"),
        partition_by=("p",),
        deletion_vectors__enabled="true",
    )
    table.upsert(table_of("p k", [("other", 1)]))
    names = ["a=b/c, d=e", " ", "ü"]
    written = table.upsert(table_of("p k", [(name, 1) for name in names]))
    assert written is not None

    compact_written_partitions(table, written.id, InProcessExecutor())

    assert rows_of(table) == [(name, 1) for name in sorted(names)]
    assert table.scan().rows_not_visible == 1


def test_a_diff_compares_scans_of_both_ends(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)
    last = table.stores.snapshots.latest_id()
    assert last == 4

    visible, merged = (table.incremental(2, 4, "diff", merge_level_0=m) for m in (False, None))

    assert visible.to_arrow().num_rows == 0
    assert visible.rows_not_visible == 3
    rows = merged.to_arrow().sort_by("k").to_pylist()
    assert [(row["rowkind"], row["k"]) for row in rows] == [("+U", 2), ("-D", 3), ("+I", 4)]
    assert merged.rows_not_visible == 0
    delta = table.incremental(2, 4).to_arrow().sort_by("k").to_pylist()
    assert [(row["rowkind"], row["k"]) for row in delta] == [("+I", 2), ("-D", 3), ("+I", 4)]


def test_an_overwrite_of_records_that_are_not_visible_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(
        tmp_path,
        "p STRING, k BIGINT",
        key=("p", "k"),
        partition_by=("p",),
        deletion_vectors__enabled="true",
    )
    table.upsert(table_of("p k", [("a", 1), ("a", 2), ("b", 1)]))
    caplog.clear()

    table.overwrite(table_of("p k", [("c", 1)]))
    assert caplog.messages == []
    table.overwrite(table_of("p k", [("a", 1)]))

    (message,) = caplog.messages
    assert message.startswith("the overwrite of db.t replaces 2 records that are not compacted yet")
    assert "roll back to snapshot 2" in message
    assert rows_of(table, merge_level_0=True) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_scan_of_a_tag_uses_the_current_option(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)
    table.tags.create("before")
    option = SetOption("deletion-vectors.merge-on-read", "true")
    Catalog(str(tmp_path)).alter_table("db.t", [option])
    table.upsert(table_of("k v", [(9, "later")]))

    assert rows_of(table, tag="before") == AFTER
    assert rows_of(table, tag="before", merge_level_0=False) == BEFORE
    assert table.system("audit_log").scan(tag="before").rows_not_visible == 0


def test_merge_level_0_is_refused_for_system_tables_without_level_0(tmp_path: Path) -> None:
    table = create_compacted_table(tmp_path)

    for name in ("files", "ro"):
        with pytest.raises(InputError, match="has no level 0 to merge"):
            table.system(name).scan(merge_level_0=True)

"""A corpus of damaged tables: golden tables of other implementations, with one thing damaged each."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support.damage import add_schema, edit_files, edit_index, edit_snapshot
from support.golden import GOLDEN, copy_warehouse
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.format.deletion_vector import encode_deletion_vector_file
from paimon_orch.format.manifest.index_manifest import HASH_INDEX, IndexManifestEntry
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.table.table import Table
from paimon_orch.table.write.dynamic_bucket import BucketAssigner, HashIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedTable:
    """A golden table and what happens to it."""

    golden: str
    """The folder of the golden table, such as ``java-2.0/dv_append``."""
    damage: Callable[[Table], object]
    """Damages the table; may return the number of rows that are lost."""
    rule: DoctorRule
    is_repaired: bool = True
    needs_check: bool = False
    """Whether only ``doctor --check`` finds the damage."""
    is_selected: bool = False
    """Whether the repair reads data files, so that its rule must be selected."""

    def open(self, root: Path) -> Table:
        """Return the undamaged table in a new warehouse."""
        return Catalog(str(copy_warehouse(GOLDEN / self.golden, root))).table("db.t")


def _snapshot_path(table: Table, name: object) -> Path:
    return Path(table.paths.root) / "snapshot" / str(name)


def _delete_snapshot_in_the_middle(table: Table) -> None:
    ids = table.stores.snapshots.ids()
    _snapshot_path(table, f"snapshot-{ids[len(ids) // 2]}").unlink()


def _delete_latest_hint(table: Table) -> None:
    _snapshot_path(table, "LATEST").unlink()


def _name_an_expired_snapshot(table: Table) -> None:
    _snapshot_path(table, "EARLIEST").write_text("1")


def _delete_the_newest_snapshot(table: Table) -> None:
    latest = table.stores.snapshots.latest_id()
    _snapshot_path(table, "LATEST").write_text(str(latest))
    _snapshot_path(table, f"snapshot-{latest}").unlink()


def _hide_later_snapshots(table: Table) -> None:
    """Leave LATEST at a snapshot that a slow writer created in the place of an expired one."""
    first, second, third, *_ = table.stores.snapshots.ids()
    _snapshot_path(table, f"snapshot-{second}").unlink()
    _snapshot_path(table, "EARLIEST").write_text(str(third))
    _snapshot_path(table, "LATEST").write_text(str(first))


def _delete_a_manifest(table: Table) -> int:
    latest = table.stores.snapshots.latest()
    assert latest is not None
    meta = table.stores.manifests.manifests(latest)[0]
    entries = table.stores.manifests.open(meta)
    rows = sum(entry.file.row_count for entry in entries.entries())
    (Path(table.paths.manifest_dir) / meta.file_name).unlink()
    return rows


def _delete_a_data_file(table: Table) -> int:
    """Delete a live file, as an orphan cleanup during an expiration does (apache/paimon#7710)."""
    path = next(Path(table.paths.root).glob("bucket-*/*.parquet"))
    rows: int = pq.ParquetFile(path).metadata.num_rows
    path.unlink()
    return rows


def _delete_an_old_manifest_list(table: Table) -> None:
    """Leave a snapshot without its list, as an interrupted expiration does (apache/paimon#6978)."""
    oldest = table.stores.snapshots.get(table.stores.snapshots.ids()[0])
    (Path(table.paths.manifest_dir) / oldest.delta_manifest_list).unlink()


def _let_files_of_a_level_overlap(table: Table) -> None:
    for snapshot in (1, 2):
        edit_files(table, snapshot, level=5)


def _keep_vectors_of_a_replaced_file(table: Table) -> None:
    """Keep a deletion vector of a file that a compaction replaced (apache/paimon#8778)."""

    def add(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        [entry] = entries
        vectors = read_deletion_vectors(table.io, table.paths, table.load().schema, entries)
        vectors["data-replaced-0.parquet"] = next(iter(vectors.values()))
        data, ranges = encode_deletion_vector_file(vectors, bitmap64=False)
        file = replace(entry, file_name="index-with-stale-vector-0", file_size=len(data))
        Path(table.paths.index_file(table.load().schema, file)).write_bytes(data)
        return [replace(file, ranges=ranges, row_count=len(ranges))]

    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(table, latest, add)


def _delete_the_index_files(table: Table) -> None:
    for entry in table.stores.manifests.read_index_entries(table.stores.snapshots.latest()):
        Path(table.paths.index_file(table.load().schema, entry)).unlink()


def _drop_the_hash_index(table: Table) -> None:
    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(table, latest, lambda entries: [e for e in entries if e.index_type != HASH_INDEX])


def _overwrite_a_snapshot(table: Table) -> None:
    """Replace the first of two new snapshots by that of another writer with as many rows."""
    other_root = Path(table.paths.root).parents[1].with_name("other")
    shutil.copytree(Path(table.paths.root).parents[1], other_root)
    other = Catalog(str(other_root)).table(table.identifier)
    names = [field.name for field in table.load().schema.fields]
    row = table.scan().to_arrow().slice(0, 1).select(names)
    for each in (table, other):
        each.append(row)
    snapshot_id = table.stores.snapshots.latest_id()
    table.append(row)
    shutil.copytree(other.paths.root, table.paths.root, dirs_exist_ok=True)
    _snapshot_path(table, "LATEST").write_text(str(table.stores.snapshots.ids()[-1]))
    assert snapshot_id == other.stores.snapshots.latest_id()


def _overwrite_the_newest_snapshot(table: Table) -> None:
    """Let two writers commit the same snapshot; the second one overwrites that of the first one."""
    other_root = Path(table.paths.root).parents[1].with_name("other")
    shutil.copytree(Path(table.paths.root).parents[1], other_root)
    other = Catalog(str(other_root)).table(table.identifier)
    names = [field.name for field in table.load().schema.fields]
    for each in (table, other):
        each.append(each.scan().to_arrow().slice(0, 1).select(names))
    shutil.copytree(other.paths.root, table.paths.root, dirs_exist_ok=True)
    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    an_hour_ago = time.time() - 3600
    edit_snapshot(table, latest, time_millis=int(an_hour_ago * 1000))
    for path in Path(table.paths.manifest_dir).iterdir():
        os.utime(path, (an_hour_ago, an_hour_ago))


def _set_the_clock_back(table: Table) -> None:
    latest = table.stores.snapshots.latest()
    assert latest is not None
    edit_snapshot(table, latest.id, time_millis=latest.time_millis - 3_600_000)


def _misspell_an_option(table: Table) -> None:
    path = Path(table.paths.root) / "schema" / f"schema-{table.load().schema.id}"
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema["options"]["target-file-sise"] = "1 mb"
    path.write_text(json.dumps(schema))


def _damage_the_newest_snapshot(table: Table) -> None:
    _snapshot_path(table, f"snapshot-{table.stores.snapshots.latest_id()}").write_text("{")


def _delete_the_newest_manifest_lists(table: Table) -> None:
    """Leave a snapshot without its lists, as a retried commit does (apache/paimon#6777)."""
    latest = table.stores.snapshots.latest()
    assert latest is not None
    for name in (latest.base_manifest_list, latest.delta_manifest_list):
        (Path(table.paths.manifest_dir) / name).unlink()


def _write_for_other_buckets(table: Table) -> None:
    """Write for another number of buckets without an overwrite (apache/paimon#3841)."""
    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_files(table, latest, total_buckets=4)


def _delete_the_index_manifest(table: Table) -> None:
    latest = table.stores.snapshots.latest()
    assert latest is not None
    assert latest.index_manifest is not None
    (Path(table.paths.manifest_dir) / latest.index_manifest).unlink()


def _truncate_a_data_file(table: Table) -> None:
    path = next(Path(table.paths.root).glob("bucket-*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])


def _delete_the_schema(table: Table) -> None:
    (Path(table.paths.root) / "schema" / f"schema-{table.load().schema.id}").unlink()


def write_into_bucket_1(table: Table, rows: pa.Table) -> None:
    """Write like a concurrent writer whose bucket 0 was full with other keys."""
    others = BucketAssigner({0: np.array([-1, -2, -3], np.int32)}, 3)
    with patch.object(HashIndex, "load_assigner", lambda *_: others):
        table.upsert(rows)


def stop_to_merge_levels(root: Path, *, newer: dict[str, str], **options: str) -> Table:
    """Create a table with overlapping files on levels 4 and 5, whose readers merged them once."""
    table = new_table(root, "k BIGINT, v BIGINT, w BIGINT", **options)
    table.upsert(table_of("k v w", [(k, 10 * k, k) for k in range(6)]))
    compact(table, strategy="full")
    table.upsert(table_of("k v w", [(2, 7, None), (3, 90, 5)]))
    edit_files(table, 3, level=4)
    return add_schema(table, **newer)


def put_keys_into_two_buckets(root: Path, *, compacts: bool = False, **options: str) -> Table:
    """Return a table whose keys 2 and 3 of partition 0 are in the buckets 0 and 1."""
    named = {"bucket": "-1", "dynamic_bucket__target_row_num": "3", **options}
    columns = "p INT, k BIGINT, v STRING, s INT"
    table = new_table(root, columns, key=("p", "k"), partition_by=["p"], **named)
    old = [(p, k, "old", 10 * k) for p in (0, 1) for k in (1, 2, 3)]
    new = [(0, k, "new", 25) for k in (2, 3, 4)]
    table.upsert(table_of("p k v s", old))
    if compacts:
        compact(table, InProcessExecutor(), strategy="full")
    write_into_bucket_1(table, table_of("p k v s", new))
    if compacts:
        compact(table, InProcessExecutor(), strategy="full")
    return table


CORPUS: dict[str, DamagedTable] = {
    "a snapshot in the middle is deleted (#4743)": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_snapshot_in_the_middle,
        rule=DoctorRule.SNAPSHOT_GAP,
    ),
    "LATEST is deleted": DamagedTable(
        golden="java-2.0/alltypes_append",
        damage=_delete_latest_hint,
        rule=DoctorRule.WRONG_HINT,
    ),
    "EARLIEST names an expired snapshot": DamagedTable(
        golden="java-0.9/expired",
        damage=_name_an_expired_snapshot,
        rule=DoctorRule.WRONG_HINT,
    ),
    "LATEST names a late snapshot": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_hide_later_snapshots,
        rule=DoctorRule.WRONG_HINT,
    ),
    "the newest snapshot is deleted": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_the_newest_snapshot,
        rule=DoctorRule.WRONG_HINT,
    ),
    "a manifest is deleted": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_a_manifest,
        rule=DoctorRule.MISSING_MANIFESTS,
    ),
    "an orphan cleanup deletes a live file (#7710)": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_a_data_file,
        rule=DoctorRule.MISSING_FILES,
        needs_check=True,
    ),
    "an expiration is killed (#6978)": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_an_old_manifest_list,
        rule=DoctorRule.UNREADABLE_SNAPSHOT,
    ),
    "files of one level overlap (#3520)": DamagedTable(
        golden="java-0.9/pk_b1_mor",
        damage=_let_files_of_a_level_overlap,
        rule=DoctorRule.OVERLAPPING_FILES,
    ),
    "deletion vectors of replaced files stay (#8778)": DamagedTable(
        golden="java-0.9/pk_dv",
        damage=_keep_vectors_of_a_replaced_file,
        rule=DoctorRule.STALE_DELETION_VECTORS,
    ),
    "deletion vectors are deleted": DamagedTable(
        golden="java-0.9/pk_dv",
        damage=_delete_the_index_files,
        rule=DoctorRule.MISSING_DELETION_VECTORS,
        is_repaired=False,
    ),
    "a commit loses the hash index": DamagedTable(
        golden="java-0.9/pk_dynamic_bucket",
        damage=_drop_the_hash_index,
        rule=DoctorRule.MISSING_HASH_INDEX,
    ),
    "a hash index is deleted": DamagedTable(
        golden="java-0.9/pk_dynamic_bucket",
        damage=_delete_the_index_files,
        rule=DoctorRule.MISSING_HASH_INDEX,
    ),
    "a writer overwrites a snapshot": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_overwrite_a_snapshot,
        rule=DoctorRule.OVERWRITTEN_SNAPSHOT,
        is_repaired=False,
    ),
    "a writer overwrites the newest snapshot": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_overwrite_the_newest_snapshot,
        rule=DoctorRule.LOST_COMMIT,
        is_repaired=False,
        needs_check=True,
    ),
    "the clock of a writer is slow": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_set_the_clock_back,
        rule=DoctorRule.CLOCK_SKEW,
        is_repaired=False,
    ),
    "an option is misspelled": DamagedTable(
        golden="java-2.0/alltypes_append",
        damage=_misspell_an_option,
        rule=DoctorRule.OPTION,
        is_repaired=False,
    ),
    "a retried commit deletes its lists (#6777)": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_the_newest_manifest_lists,
        rule=DoctorRule.UNREADABLE_TABLE,
    ),
    "rows are written for another number of buckets (#3841)": DamagedTable(
        golden="java-0.9/pk_b1_mor",
        damage=_write_for_other_buckets,
        rule=DoctorRule.DAMAGED_FILES,
        is_repaired=False,
        needs_check=True,
    ),
    "the index manifest is deleted": DamagedTable(
        golden="java-0.9/pk_dv",
        damage=_delete_the_index_manifest,
        rule=DoctorRule.UNREADABLE_TABLE,
    ),
    "a data file is truncated": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_truncate_a_data_file,
        rule=DoctorRule.UNREADABLE_FILES,
        is_selected=True,
        needs_check=True,
    ),
    "the schema is deleted": DamagedTable(
        golden="java-0.9/append_simple",
        damage=_delete_the_schema,
        rule=DoctorRule.UNREADABLE_TABLE,
        is_repaired=False,
    ),
    "the newest snapshot is damaged": DamagedTable(
        golden="java-2.0/alltypes_append",
        damage=_damage_the_newest_snapshot,
        rule=DoctorRule.UNREADABLE_TABLE,
    ),
}

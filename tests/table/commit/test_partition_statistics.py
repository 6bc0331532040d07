"""What a commit changes in each partition, as it is reported to catalogs."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from paimon_orch import Catalog
from paimon_orch.table.commit.partition_statistics import count_partition_changes


def test_added_and_deleted_files_are_counted_by_partition(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", "dt STRING, k INT", partition_by=["dt"], options={"bucket": "2", "bucket-key": "k"}
    )
    table.append(pa.table({"dt": ["a", "a", "b", None], "k": [1, 2, 3, 4]}))
    snapshot = table.snapshot()
    assert snapshot is not None
    entries = table.stores.manifests.read_live_entries(snapshot)
    removed = [entry.deleted() for entry in entries if entry.file.row_count == 2]

    added = {s.spec["dt"]: s for s in count_partition_changes(entries, table.load().schema)}
    assert {name: s.record_count for name, s in added.items()} == {
        "a": 2,
        "b": 1,
        "__DEFAULT_PARTITION__": 1,
    }
    assert sum(s.file_size for s in added.values()) == sum(e.file.file_size for e in entries)
    assert {s.total_buckets for s in added.values()} == {2}

    both = count_partition_changes([*entries, *(e.deleted() for e in entries)], table.load().schema)
    assert {(s.record_count, s.file_size, s.file_count) for s in both} == {(0, 0, 0)}
    times = [7, 9, None, 8]
    timed = [
        replace(entry, partition=entries[0].partition, file=replace(entry.file, creation_time=time))
        for entry, time in zip((entries * 4)[:4], times, strict=True)
    ]
    [change] = count_partition_changes(timed, table.load().schema)
    assert change.last_file_creation_millis == 9
    for change in count_partition_changes(removed, table.load().schema):
        assert (change.record_count, change.file_count) == (-2, -1)

"""How many calls of the client of HDFS each operation may make."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from support.hdfs.cluster import HdfsCluster
from support.hdfs.kill import watch_calls
from support.request_operations import OPERATIONS, Warehouse, build_table

from paimon_orch.storage import resolve_warehouse
from paimon_orch.storage.concurrency import run_concurrently
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache

# On S3 these are 16, 37, 110 and 14 requests. In HDFS, to open a file and to read it are two calls,
# files are deleted one by one, and a new file is renamed when it is complete.
LIMITS = {
    "read one partition with a filter": 22,
    "plan of a compaction": 37,
    "expire 10 snapshots": 140,
    "upsert, second in a process": 27,
}


@pytest.mark.timeout(300)
def test_operations_make_few_calls(hdfs_cluster: HdfsCluster, tmp_path: Path) -> None:
    warehouse = Warehouse(root=f"{hdfs_cluster.uri}/tests/{uuid4()}", folder=tmp_path)
    build_table(tmp_path / "original")
    _copy(tmp_path / "original", warehouse.root)
    counts = dict[str, int]()
    for name in LIMITS:
        clear_metadata_cache()
        state = OPERATIONS[name].warm(warehouse)
        with watch_calls() as calls:
            OPERATIONS[name].run(warehouse, state)
        counts[name] = len(calls)

    assert {name: count for name, count in counts.items() if count > LIMITS[name]} == {}


def _copy(original: Path, root: str) -> None:
    io, _ = resolve_warehouse(root)
    files = [path for path in original.rglob("*") if path.is_file()]
    run_concurrently(
        io,
        lambda path: io.write(f"{root}/{path.relative_to(original)}", path.read_bytes()),
        files,
    )

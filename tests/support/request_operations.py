"""The operations whose requests are counted, on a table that is built once and copied.

python -m support.request_operations NAME   # a process that ``measure_in_process`` starts
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.request_chains import run_chains

from paimon_orch import Catalog
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.storage import resolve_warehouse
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    import dagster as dg

NAME = "db.t"
PARTITIONS = [f"2026-{month:02d}" for month in range(1, 13)]
SNAPSHOTS = 30
ROWS = 1_000
MANY_MANIFESTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """A warehouse with the table, as a process opens it."""

    root: str
    """The storage options for it are in ``PAIMON_STORAGE_OPTIONS``."""
    folder: Path
    """A local folder for what an operation reads besides the table."""

    def catalog(self) -> Catalog:
        """Open the catalog."""
        return Catalog(self.root)

    def table(self) -> Table:
        """Open the table."""
        return self.catalog().table(NAME)


def make_rows(partition: int, snapshot: int, count: int = ROWS) -> pa.Table:
    """Return rows of a partition for both of its buckets."""
    ids = range(count)
    return pa.table(
        {
            "dt": [PARTITIONS[partition]] * count,
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array([snapshot] * count, pa.int32()),
        }
    )


def build_table(root: Path) -> None:
    """Create the table: 12 partitions, 2 buckets, 60 files, 30 snapshots, 30 manifests."""
    table = _create_table(root, buckets=2)
    for snapshot in range(SNAPSHOTS):
        table.upsert(make_rows(snapshot % len(PARTITIONS), snapshot))


def build_table_with_merged_manifests(root: Path) -> None:
    """Create the table after a compaction and three upserts: the 31st commit merges manifests."""
    from paimon_orch.steps import compact

    build_table(root)
    table = Warehouse(root=str(root), folder=root).table()
    compact(table, InProcessExecutor(), partitions=[f"dt={PARTITIONS[0]}"], strategy="full")
    for partition in range(3):
        table.upsert(make_rows(partition, SNAPSHOTS + 1 + partition))


def build_table_with_many_manifests(root: Path) -> None:
    """Create a table with 300 snapshots of one file and one manifest each."""
    table = _create_table(root, buckets=1, **{"manifest.merge-min-count": "1000"})
    for snapshot in range(MANY_MANIFESTS):
        table.upsert(make_rows(snapshot % len(PARTITIONS), snapshot, 10))


def build_table_with_one_bucket(root: Path) -> None:
    """Create a table for a run that compacts one bucket."""
    table = _create_table(root, buckets=1)
    for snapshot in range(3):
        table.upsert(make_rows(0, snapshot))


def _create_table(root: Path, *, buckets: int, **options: str) -> Table:
    return Catalog(str(root)).create_table(
        NAME,
        "dt STRING, id BIGINT, amount INT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": str(buckets), **options},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a process does with the table."""

    run: Callable[[Warehouse, Any], object]
    """Its requests are counted. The second argument is what ``warm`` returned."""
    prepare: Callable[[Warehouse], object] = lambda _: None
    """Runs in another process before; its requests are not counted."""
    warm: Callable[[Warehouse], object] = lambda _: None
    """Runs in the same process before; its requests are not counted."""
    writes: bool = False
    build: Callable[[Path], None] = build_table
    """Creates the table in a local warehouse."""

    def find_original(self, folder: Path) -> Path:
        """Return the warehouse in a folder that :attr:`build` creates at the first call."""
        original = folder / self.build.__name__
        if not original.exists():
            self.build(original)
        return original


def _read_partition(warehouse: Warehouse, _: Any) -> None:
    rows = warehouse.table().scan(filter=f"dt = '{PARTITIONS[0]}' AND id < 10").to_arrow()
    assert rows.num_rows == 10


def _read_all(warehouse: Warehouse, _: Any) -> None:
    assert warehouse.table().scan().to_arrow().num_rows == ROWS * len(PARTITIONS)


def _count(warehouse: Warehouse, _: Any) -> None:
    assert warehouse.table().scan().count() == ROWS * len(PARTITIONS)


def _plan_compaction(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps.compaction.compact import CompactRequest, plan

    assert plan(warehouse.table(), CompactRequest(strategy="full"))


def _compact_partition(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps import compact

    result = compact(
        warehouse.table(), InProcessExecutor(), partitions=[f"dt={PARTITIONS[0]}"], strategy="full"
    )
    assert result.snapshot_id == SNAPSHOTS + 1


def _write_file(warehouse: Warehouse) -> None:
    pq.write_table(make_rows(0, SNAPSHOTS), warehouse.folder / "rows.parquet")


def _ingest(warehouse: Warehouse, _: Any) -> None:
    source = str(warehouse.folder / "rows.parquet")
    _run_command(warehouse, "ingest", "--from", source, "--executor", "local")


def _upsert_once(warehouse: Warehouse) -> Table:
    table = warehouse.table()
    table.upsert(make_rows(1, SNAPSHOTS))
    return table


def _upsert(_: Warehouse, table: Table) -> None:
    assert table.upsert(make_rows(2, SNAPSHOTS + 1))


def _write_second(warehouse: Warehouse) -> Any:
    from paimon_orch.table.write.conform_rows import convert_rows
    from paimon_orch.table.write.table_write import write_rows
    from paimon_orch.table.write.write_builder import WriteBuilder

    builder = WriteBuilder(_upsert_once(warehouse).load())
    planned = builder.plan()
    rows = convert_rows(make_rows(2, SNAPSHOTS + 1), planned.schema)
    return builder, write_rows(planned, [rows])


def _commit(_: Warehouse, written: Any) -> None:
    builder, message = written
    assert builder.commit(message)


def _sensor() -> dg.SensorDefinition:
    import dagster as dg

    from paimon_orch.dagster import build_latest_snapshot_sensor

    days = dg.StaticPartitionsDefinition(PARTITIONS)
    return build_latest_snapshot_sensor(NAME, partitions_def=days)


def _tick(warehouse: Warehouse, _: Any = None) -> object:
    """Evaluate the sensor, and keep its cursor in a file."""
    import dagster as dg
    from support.dagster.ticks import evaluate_sensor

    from paimon_orch.dagster import PaimonCatalogResource

    file = warehouse.folder / "cursor"
    paimon = PaimonCatalogResource(warehouse=warehouse.root)
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = file.read_text() if file.exists() else None
        result = evaluate_sensor(_sensor(), paimon, instance, cursor)
    if isinstance(result, dg.SensorResult):
        file.write_text(result.cursor or "")
    return result


def _tick_and_commit(warehouse: Warehouse) -> None:
    _tick(warehouse)
    warehouse.table().upsert(make_rows(0, SNAPSHOTS))


def _skip(warehouse: Warehouse, _: Any) -> None:
    import dagster as dg

    assert isinstance(_tick(warehouse), dg.SkipReason)


def _see_snapshot(warehouse: Warehouse, _: Any) -> None:
    import dagster as dg

    assert isinstance(_tick(warehouse), dg.SensorResult)


def _import_dagster(_: Warehouse) -> None:
    _sensor()


def _inspect(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps import inspect

    assert len(inspect(warehouse.table()).buckets) == 2 * len(PARTITIONS)


def _doctor(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps.inspection.doctor.doctor import examine_catalog

    report = examine_catalog(warehouse.catalog(), [NAME])
    assert report.tables[0].files == 2 * SNAPSHOTS


def _check(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps import check

    assert not check(warehouse.table(), executor=InProcessExecutor()).findings


def _expire(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps import expire_snapshots

    result = expire_snapshots(
        warehouse.table(),
        InProcessExecutor(),
        retain_max=SNAPSHOTS - 10,
        retain_min=1,
    )
    assert result.snapshots == 10


def _alter(warehouse: Warehouse, _: Any) -> None:
    _run_command(warehouse, "alter", "--set", "num-sorted-run.compaction-trigger=9")


def _print_history(warehouse: Warehouse, _: Any) -> None:
    _run_command(warehouse, "history")


def _plan_repair(warehouse: Warehouse, _: Any) -> None:
    _run_command(warehouse, "repair", "--dry-run")


def _run_command(warehouse: Warehouse, name: str, *arguments: str) -> None:
    from support.commands import invoke

    result = invoke(name, warehouse.root, NAME, *arguments)
    assert result.exit_code == 0, result.output


def _find_orphans(warehouse: Warehouse, _: Any) -> None:
    from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest, plan

    request = RemoveOrphanFilesRequest(older_than=int(time.time() * 1000))  # all files
    planned = plan(warehouse.table(), request, executor=InProcessExecutor())
    assert not planned.files


def _materialize(warehouse: Warehouse, asset: Any) -> None:
    from support.dagster.asset_runs import materialize
    from support.dagster.spark_resources import UnavailableSparkResource

    from paimon_orch.dagster import PaimonCatalogResource

    resources = {
        "paimon": PaimonCatalogResource(warehouse=warehouse.root),
        "spark": UnavailableSparkResource(),
    }
    run_config = {"ops": {asset.node_def.name: {"config": {"strategy": "full"}}}}
    assert materialize(asset, resources, PARTITIONS[0], run_config=run_config).success


def _build_asset(_: Warehouse) -> dg.AssetsDefinition:
    import dagster as dg

    from paimon_orch.dagster import build_compaction_asset

    return build_compaction_asset(NAME, partitions_def=dg.StaticPartitionsDefinition(PARTITIONS))


def verify_store(warehouse: Warehouse) -> None:
    """Let the process verify the store's conditional writes, as it does before its first commit."""
    if "://" in warehouse.root:
        io, root = resolve_warehouse(warehouse.root)
        io.create(f"{root}/verified", b"")


OPERATIONS = {
    "read one partition with a filter": Operation(run=_read_partition),
    "read all": Operation(run=_read_all),
    "count": Operation(run=_count),
    "plan of a compaction": Operation(run=_plan_compaction),
    "compact one partition": Operation(run=_compact_partition, writes=True),
    "ingest of 1,000 rows": Operation(
        prepare=_write_file, run=_ingest, writes=True, build=build_table_with_merged_manifests
    ),
    "ingest that merges 30 manifests": Operation(prepare=_write_file, run=_ingest, writes=True),
    "upsert, second in a process": Operation(warm=_upsert_once, run=_upsert, writes=True),
    "commit of this upsert": Operation(warm=_write_second, run=_commit, writes=True),
    "sensor tick, nothing new": Operation(prepare=_tick, warm=_import_dagster, run=_skip),
    "sensor tick, new snapshot": Operation(
        prepare=_tick_and_commit, warm=_import_dagster, run=_see_snapshot
    ),
    "inspect": Operation(run=_inspect, build=build_table_with_merged_manifests),
    "inspect of 30 manifests": Operation(run=_inspect),
    "doctor": Operation(run=_doctor),
    "check": Operation(run=_check),
    "expire 10 snapshots": Operation(run=_expire, writes=True),
    "orphan files, dry run": Operation(run=_find_orphans),
    "alter": Operation(run=_alter, writes=True),
    "history": Operation(run=_print_history),
    "repair, dry run": Operation(run=_plan_repair),
    "plan with 300 manifests": Operation(
        run=_plan_compaction, build=build_table_with_many_manifests
    ),
}
DAGSTER_RUN = Operation(warm=_build_asset, run=_materialize, writes=True)


def copy_local_table(original: Path, folder: Path) -> Warehouse:
    """Return a copy of the table on the local disk."""
    shutil.copytree(original, folder / "warehouse")
    return Warehouse(root=str(folder / "warehouse"), folder=folder)


def _rehearse(operation: Operation, original: Path, folder: Path) -> None:
    """Run an operation on a local copy of the table, so that its modules are imported."""
    warehouse = copy_local_table(original, folder)
    operation.prepare(warehouse)
    operation.run(warehouse, operation.warm(warehouse))


def main(name: str) -> None:
    """Run an operation for a process that reads and writes one line for each step of it."""
    operation, arguments = OPERATIONS[name], json.loads(sys.stdin.readline())
    _rehearse(operation, Path(arguments["original"]), Path(arguments["folder"]) / "rehearsal")
    warehouse = Warehouse(root=arguments["root"], folder=Path(arguments["folder"]))
    resolve_warehouse(warehouse.root)[0].exists(f"{warehouse.root}/connected")
    if operation.writes:
        verify_store(warehouse)
    state = operation.warm(warehouse)
    _print("ready")
    sys.stdin.readline()
    start = time.monotonic()
    with run_chains():
        operation.run(warehouse, state)
    _print(str(time.monotonic() - start))


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The requests of the sensor after commits, and the events that it reports."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import sqlalchemy
from support.dagster.ticks import SensorTicks
from support.faulty_server import Answer, FaultyServer, run_faulty_server
from support.tables import get_file_system

from paimon_orch import Catalog
from paimon_orch.catalog.backend import CatalogTable
from paimon_orch.catalog.file_system import FileSystemBackend
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.rest import rest_client
from paimon_orch.dagster import PaimonCatalogResource, build_latest_snapshot_sensor
from paimon_orch.errors import MissingFileError, NotFoundError
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table

DAYS = [f"2026-01-{day:02d}" for day in range(1, 10)]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
Upsert = Callable[..., None]
CompactAll = Callable[[Table], None]
RollBack = Callable[[Table, int], None]


@pytest.fixture
def ticks(paimon: PaimonCatalogResource, instance: dg.DagsterInstance) -> SensorTicks:
    sensor = build_latest_snapshot_sensor("lake.orders", partitions_def=PARTITIONS)
    return SensorTicks(sensor, paimon, instance)


@pytest.fixture
def ticks_after_compaction(
    ticks: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> SensorTicks:
    """Ticks of a table with three compacted partitions, after the first tick."""
    upsert(orders, *DAYS[:3])
    compact_all(orders)
    ticks.result()
    return ticks


def test_new_commits_request_only_the_partitions_that_they_changed(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[2], amount=2)
    upsert(orders, DAYS[0], amount=2)
    upsert(orders, DAYS[0], amount=3)

    assert ticks_after_compaction.requested_partitions() == [DAYS[0], DAYS[2]]
    assert ticks_after_compaction.requested_partitions() == []


def test_compactions_do_not_cause_requests(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    upsert(orders, DAYS[0], amount=2)
    ticks_after_compaction.requested_partitions()
    compact_all(orders)

    assert (
        ticks_after_compaction.skip_message() == "lake.orders: nothing to compact up to snapshot 4"
    )
    assert ticks_after_compaction.skip_message() == "lake.orders: snapshot 4 was already handled"


def test_a_changed_partition_with_nothing_to_compact_is_not_requested(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    upsert(orders, DAYS[0], amount=2)
    compact_all(orders)
    # The second compaction removes the file whose rows are all deleted.
    compact_all(orders)
    upsert(orders, DAYS[1], amount=2)

    assert ticks_after_compaction.requested_partitions() == [DAYS[1]]


def test_each_commit_requests_the_partition_again(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    for amount in (2, 3):
        upsert(orders, DAYS[0], amount=amount)
        assert ticks_after_compaction.requested_partitions() == [DAYS[0]]
        compact_all(orders)


def test_a_repeated_tick_requests_the_same_run_keys(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0], amount=2)
    cursor = ticks_after_compaction.cursor
    assert ticks_after_compaction.requested_partitions() == [DAYS[0]]
    # The daemon may stop before it saves the new cursor.
    ticks_after_compaction.cursor = cursor

    assert ticks_after_compaction.requested_partitions() == []


def test_run_requests_have_a_target_and_few_tags(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0], amount=2)
    result = ticks_after_compaction.result()

    [request] = result.run_requests or []
    assert request.asset_selection == [dg.AssetKey(["lake", "orders", "orders_compaction"])]
    assert set(request.tags) == {"paimon/table", "paimon/reason"}
    assert request.tags["paimon/table"] == "lake.orders"
    assert request.run_key
    for part in ("lake.orders:", orders.paths.root, ":compaction:", f":dt={DAYS[0]}:3@"):
        assert part in request.run_key


class RecordingFileIO(LocalFileIO):
    """Records each operation with the last part of its path, as requests of an object store."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def _record(self, operation: str, path: str) -> None:
        self.operations.append(f"{operation} {path.rsplit('/', 1)[-1]}")

    def read_bytes(self, path: str) -> bytes:
        self._record("read", path)
        return super().read_bytes(path)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        self._record("list", path)
        return super().list_dir(path)

    def exists(self, path: str) -> bool:
        self._record("exists", path)
        return super().exists(path)


RECORDER = RecordingFileIO()
IDLE_TICK = ["read snapshot-2", "read snapshot-3"]


class RecordedCatalogResource(PaimonCatalogResource):
    def catalog(self) -> Catalog:
        catalog = super().catalog()
        get_file_system(catalog).io = RECORDER
        return catalog


def test_a_tick_without_new_snapshots_reads_only_the_newest_snapshot(
    ticks_after_compaction: SensorTicks,
) -> None:
    ticks_after_compaction.paimon = RecordedCatalogResource(
        warehouse=ticks_after_compaction.paimon.warehouse
    )
    RECORDER.operations.clear()

    assert ticks_after_compaction.skip_message() == "lake.orders: snapshot 2 was already handled"
    assert RECORDER.operations == IDLE_TICK


@dataclass(slots=True)
class SnapshotServer(FileSystemBackend):
    """A catalog that has the newest snapshots, and counts requests."""

    requests: list[str] = field(default_factory=list)

    def load_table(self, identifier: TableIdentifier) -> CatalogTable | None:
        self.requests.append(f"table {identifier}")
        return FileSystemBackend.load_table(self, identifier)

    def load_latest_snapshot(self, identifier: TableIdentifier) -> Snapshot | None:
        self.requests.append(f"snapshot {identifier}")
        table = FileSystemBackend.load_table(self, identifier)
        if table is None:
            raise NotFoundError(f"the server has no table {identifier}")
        return SnapshotStore(LocalFileIO(), TablePaths(table.root)).latest()


REQUESTS: list[str] = []


class ServedCatalogResource(PaimonCatalogResource):
    def catalog(self) -> Catalog:
        catalog = super().catalog()
        plain = get_file_system(catalog)
        catalog.backend = SnapshotServer(plain.description, plain.io, plain.root, REQUESTS)
        return catalog


@pytest.fixture
def served_ticks(ticks_after_compaction: SensorTicks) -> SensorTicks:
    """The same ticks, with a catalog that has the newest snapshots."""
    warehouse = ticks_after_compaction.paimon.warehouse
    ticks_after_compaction.paimon = ServedCatalogResource(warehouse=warehouse)
    REQUESTS.clear()
    return ticks_after_compaction


def test_a_tick_without_new_snapshots_is_one_request_to_a_catalog_with_snapshots(
    served_ticks: SensorTicks,
) -> None:
    assert served_ticks.skip_message() == "lake.orders: snapshot 2 was already handled"
    assert REQUESTS == ["snapshot lake.orders"]


@pytest.fixture
def rest_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setattr(rest_client, "_configs", {})
    with run_faulty_server() as server:
        yield server


def test_a_tick_without_new_snapshots_is_one_request_to_a_rest_server(
    ticks_after_compaction: SensorTicks, orders: Table, rest_server: FaultyServer
) -> None:
    latest = json.loads(orders.io.read_bytes(orders.stores.snapshots.path(2)))
    rest_server.answers = [Answer(body={"snapshot": {"snapshot": latest}})]
    ticks_after_compaction.paimon = PaimonCatalogResource(
        metastore="rest", uri=rest_server.uri, warehouse="wh", token=dg.EnvVar("HOME")
    )

    for _ in range(2):
        message = ticks_after_compaction.skip_message()
        assert message == "lake.orders: snapshot 2 was already handled"

    paths = [request.path for request in rest_server.requests]
    assert paths == ["/v1/databases/lake/tables/orders/snapshot"] * 2
    assert len(rest_server.handshakes) == 1  # of the process


def test_a_server_that_does_not_serve_snapshots_is_asked_for_the_table(
    ticks_after_compaction: SensorTicks, rest_server: FaultyServer
) -> None:
    rest_server.answers = [Answer(status=501, body={"message": "not implemented"})]
    rest_server.answers += [Answer(status=404, body={"message": "gone", "resourceType": "TABLE"})]
    ticks_after_compaction.paimon = PaimonCatalogResource(
        metastore="rest", uri=rest_server.uri, warehouse="wh", token=dg.EnvVar("HOME")
    )

    with pytest.raises(NotFoundError, match="gone"):
        ticks_after_compaction.skip_message()
    table = "/v1/databases/lake/tables/orders"
    assert [request.path for request in rest_server.requests[:2]] == [f"{table}/snapshot", table]


def test_a_tick_without_new_snapshots_is_one_statement_in_a_jdbc_catalog(
    tmp_path: Path, instance: dg.DagsterInstance, upsert: Upsert
) -> None:
    paimon = PaimonCatalogResource(
        metastore="jdbc", uri=f"jdbc:sqlite:{tmp_path}/catalog.db", warehouse=str(tmp_path)
    )
    orders = paimon.catalog().create_table(
        "lake.orders", "dt STRING, id BIGINT, amount INT", primary_key=["id"]
    )
    upsert(orders, DAYS[0])
    ticks = SensorTicks(build_latest_snapshot_sensor("lake.orders"), paimon, instance)
    ticks.evaluate()
    statements: list[str] = []

    def record(*arguments: Any) -> None:
        statements.append(arguments[2])

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", record)
    try:
        assert ticks.skip_message() == "lake.orders: snapshot 1 was already handled"
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", record)
    catalog_statements = [text for text in statements if "paimon_" in text]
    assert len(catalog_statements) == 1


def test_new_snapshots_of_a_catalog_are_evaluated(
    served_ticks: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[1], amount=2)

    assert served_ticks.requested_partitions() == [DAYS[1]]
    assert REQUESTS == ["snapshot lake.orders"]


def test_a_rollback_in_a_catalog_with_snapshots_is_detected(
    served_ticks: SensorTicks, orders: Table, upsert: Upsert, roll_back: RollBack
) -> None:
    upsert(orders, DAYS[0], amount=2)
    assert served_ticks.requested_partitions() == [DAYS[0]]
    roll_back(orders, 2)
    upsert(orders, DAYS[1], amount=2)

    # The new snapshot has the id of the one that the cursor names.
    assert served_ticks.requested_partitions() == [DAYS[1]]


def test_a_recreated_table_in_a_catalog_with_snapshots_is_detected(
    served_ticks: SensorTicks, create: Callable[[], Table], upsert: Upsert
) -> None:
    served_ticks.paimon.catalog().drop_table("lake.orders")
    recreated = create()
    assert served_ticks.skip_message() == "lake.orders has no snapshot yet"
    upsert(recreated, DAYS[0])
    upsert(recreated, DAYS[0])

    assert recreated.stores.snapshots.latest_id() == 2  # as in the cursor
    assert served_ticks.requested_partitions() == [DAYS[0]]


@pytest.mark.parametrize("is_served", [False, True])
def test_a_tick_fails_and_keeps_the_cursor_if_its_table_was_dropped(
    ticks_after_compaction: SensorTicks, request: pytest.FixtureRequest, is_served: bool
) -> None:
    ticks = ticks_after_compaction
    if is_served:
        ticks = request.getfixturevalue("served_ticks")
    cursor = ticks.cursor
    ticks.paimon.catalog().drop_table("lake.orders")

    with pytest.raises(NotFoundError, match=r"^lake\.orders was dropped or renamed: .*no table"):
        ticks.skip_message()
    assert ticks.cursor == cursor


def test_a_tick_fails_if_the_warehouse_was_lost(ticks: SensorTicks, tmp_path: Path) -> None:
    ticks.paimon = PaimonCatalogResource(warehouse=str(tmp_path / "other"))

    with pytest.raises(NotFoundError, match="other"):
        ticks.skip_message()


def test_partitions_that_wait_are_evaluated_without_a_new_snapshot(
    served_ticks: SensorTicks,
) -> None:
    cursor = json.loads(str(served_ticks.cursor))
    served_ticks.cursor = json.dumps(cursor | {"waiting": {f"dt={DAYS[0]}": 0}})

    assert "nothing to compact up to snapshot 2" in served_ticks.skip_message()
    assert REQUESTS == ["table lake.orders"]


def test_the_first_tick_requests_partitions_of_existing_commits(
    ticks: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, *DAYS[:2])

    assert ticks.requested_partitions() == ["2026-01-01...2026-01-02"]
    assert ticks.requested_partitions() == []


def test_a_tick_before_the_table_is_created_is_skipped_and_keeps_the_cursor(
    ticks: SensorTicks,
) -> None:
    ticks.paimon.catalog().create_database("shop")
    ticks.cursor = "previous"

    assert "no database 'lake'" in ticks.skip_message()
    assert ticks.cursor == "previous"


def test_a_table_without_snapshots_is_skipped(ticks: SensorTicks, orders: Table) -> None:
    assert ticks.skip_message() == "lake.orders has no snapshot yet"


def test_all_partitions_are_evaluated_after_unread_snapshots_expired(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0], amount=2)
    upsert(orders, DAYS[1], amount=2)
    for expired in (1, 2, 3):
        orders.io.delete(orders.stores.snapshots.path(expired))

    assert ticks_after_compaction.requested_partitions() == ["2026-01-01...2026-01-02"]
    assert ticks_after_compaction.requested_partitions() == []


def test_an_expired_snapshot_of_the_cursor_does_not_prevent_reads_of_later_snapshots(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0], amount=2)
    orders.io.delete(orders.stores.snapshots.path(2))

    result = ticks_after_compaction.result()
    assert json.loads(str(result.cursor))["handled"]["snapshot_id"] == 3
    assert [r.partition_key for r in result.run_requests or []] == [DAYS[0]]


def test_a_partition_is_requested_again_after_a_rollback_of_its_compaction(
    ticks_after_compaction: SensorTicks,
    orders: Table,
    upsert: Upsert,
    compact_all: CompactAll,
    roll_back: RollBack,
) -> None:
    upsert(orders, DAYS[0], amount=2)
    assert ticks_after_compaction.requested_partitions() == [DAYS[0]]
    compact_all(orders)
    ticks_after_compaction.requested_partitions()
    roll_back(orders, 3)

    assert ticks_after_compaction.requested_partitions() == [DAYS[0]]
    assert ticks_after_compaction.requested_partitions() == []


def test_a_rollback_that_is_followed_by_new_commits_is_detected(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, roll_back: RollBack
) -> None:
    upsert(orders, DAYS[0], amount=2)
    ticks_after_compaction.requested_partitions()
    roll_back(orders, 2)
    upsert(orders, DAYS[1], amount=2)
    upsert(orders, DAYS[2], amount=2)

    assert ticks_after_compaction.requested_partitions() == ["2026-01-02...2026-01-03"]


def test_all_partitions_of_a_recreated_table_are_evaluated(
    ticks_after_compaction: SensorTicks, orders: Table, create: Callable[[], Table], upsert: Upsert
) -> None:
    ticks_after_compaction.paimon.catalog().drop_table("lake.orders")
    recreated = create()
    for day in DAYS[4:7]:
        upsert(recreated, day)

    assert ticks_after_compaction.requested_partitions() == ["2026-01-05...2026-01-07"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "cursor", ["41", "{", "[]", pytest.param("[" * 9999, id="deep"), '{"v": 2}', '{"v": 1}', "null"]
)
def test_an_unknown_cursor_is_ignored(
    ticks: SensorTicks, orders: Table, upsert: Upsert, cursor: str
) -> None:
    upsert(orders, DAYS[0])
    ticks.cursor = cursor

    assert ticks.requested_partitions() == [DAYS[0]]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "damage",
    [
        {"handled": {"snapshot_id": "1", "time_millis": 1}},
        {"handled": {"snapshot_id": None, "time_millis": 1}},
        {"waiting": {f"dt={DAYS[0]}": "since Monday"}},
        {"pending": {"no partition": "1"}},
        {"pending": {f"dt={DAYS[0]}": None}},
        {"table": 3},
    ],
    ids=str,
)
def test_a_damaged_cursor_is_ignored(
    ticks: SensorTicks, orders: Table, upsert: Upsert, damage: dict[str, object]
) -> None:
    upsert(orders, DAYS[0])
    ticks.result()
    ticks.cursor = json.dumps({**json.loads(str(ticks.cursor)), **damage})

    assert ticks.requested_partitions() == [DAYS[0]]


def test_requests_above_the_limit_are_postponed_to_later_ticks(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_latest_snapshot_sensor(
        "lake.orders", partitions_def=PARTITIONS, max_requests_per_tick=2, max_partitions_per_run=2
    )
    ticks = SensorTicks(sensor, paimon, instance)
    upsert(orders, *DAYS)

    assert [ticks.requested_partitions() for _ in range(4)] == [
        ["2026-01-01...2026-01-02", "2026-01-03...2026-01-04"],
        ["2026-01-05...2026-01-06", "2026-01-07...2026-01-08"],
        ["2026-01-09"],
        [],
    ]


def test_snapshots_above_the_limit_are_read_by_later_ticks(
    orders: Table, upsert: Upsert, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_latest_snapshot_sensor(
        "lake.orders", partitions_def=PARTITIONS, max_snapshots_per_tick=2
    )
    ticks = SensorTicks(sensor, paimon, instance)
    upsert(orders, DAYS[8])
    ticks.requested_partitions()
    for day in DAYS[:5]:
        upsert(orders, day)

    assert [ticks.requested_partitions() for _ in range(4)] == [
        ["2026-01-01...2026-01-02"],
        ["2026-01-03...2026-01-04"],
        ["2026-01-05"],
        [],
    ]


def test_a_partition_without_a_key_of_the_asset_is_not_requested(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, "1999-12-31", DAYS[0], amount=2)

    assert ticks_after_compaction.requested_partitions() == [DAYS[0]]


def test_observations_report_new_data_but_not_compactions(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    upsert(orders, DAYS[0], amount=2)
    result = ticks_after_compaction.result()
    [observation] = result.asset_events
    assert isinstance(observation, dg.AssetObservation)
    assert observation.asset_key == dg.AssetKey(["lake", "orders"])
    assert observation.tags == {"dagster/data_version": "3"}

    compact_all(orders)
    result = ticks_after_compaction.result()
    assert result.asset_events == []


@pytest.mark.parametrize("partition_by", [(), ("dt",)])
def test_the_sensor_requests_one_run_for_an_unpartitioned_asset(
    create: Callable[..., Table],
    upsert: Upsert,
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    partition_by: tuple[str, ...],
) -> None:
    table = create("lake.whole", partition_by)
    ticks = SensorTicks(build_latest_snapshot_sensor("lake.whole"), paimon, instance)
    for amount in (1, 2):
        upsert(table, DAYS[0], DAYS[1], amount=amount)

        assert ticks.requested_partitions() == [None]
        assert ticks.requested_partitions() == []


def test_day_numbers_in_directories_are_requested_as_daily_partitions(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    table = paimon.catalog().create_table(
        "lake.daily",
        "dt DATE, id BIGINT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    sensor = build_latest_snapshot_sensor(
        "lake.daily", partitions_def=dg.DailyPartitionsDefinition("2026-01-01")
    )
    table.upsert(pa.table({"dt": [date(2026, 1, 5)], "id": [1]}))

    assert SensorTicks(sensor, paimon, instance).requested_partitions() == ["2026-01-05"]


def test_a_sensor_is_stopped_by_default_and_targets_only_the_compaction() -> None:
    sensor = build_latest_snapshot_sensor("lake.orders", key_prefix=["prod"])

    assert sensor.name == "latest_snapshot__prod__lake__orders"
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert getattr(sensor.job, "selection", None) == dg.AssetSelection.assets(
        dg.AssetKey(["prod", "lake", "orders", "orders_compaction"])
    )


@pytest.mark.slow
def test_each_tick_reads_at_most_one_hundred_snapshots(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    for number in range(120):
        upsert(orders, DAYS[number % 2], amount=number)

    both_days = ["2026-01-01...2026-01-02"]
    assert [ticks_after_compaction.requested_partitions() for _ in range(2)] == [both_days] * 2
    assert ticks_after_compaction.skip_message() == "lake.orders: snapshot 122 was already handled"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hint", [b"2", b"1", b"rubbish", b"", None])
def test_a_wrong_or_missing_hint_is_ignored(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, hint: bytes | None
) -> None:
    upsert(orders, DAYS[0], amount=2)
    path = f"{orders.paths.snapshot_dir}/LATEST"
    orders.io.delete(path)
    if hint is not None:
        orders.io.write(path, hint)

    assert ticks_after_compaction.requested_partitions() == [DAYS[0]]
    assert ticks_after_compaction.skip_message() == "lake.orders: snapshot 3 was already handled"


def test_a_tick_fails_with_the_name_of_a_missing_newest_snapshot(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert
) -> None:
    upsert(orders, DAYS[0], amount=2)
    orders.stores.snapshots.write_hint("LATEST", 99)

    with pytest.raises(MissingFileError, match="snapshot-99"):
        ticks_after_compaction.result()


def events(ticks: SensorTicks) -> list[dg.AssetObservation | dg.AssetMaterialization]:
    result = ticks.result()
    kinds = dg.AssetObservation, dg.AssetMaterialization
    return [event for event in result.asset_events if isinstance(event, kinds)]


def test_each_snapshot_that_changed_data_is_observed(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, compact_all: CompactAll
) -> None:
    upsert(orders, DAYS[0], amount=2)
    compact_all(orders)
    upsert(orders, DAYS[1], amount=2)

    observations = events(ticks_after_compaction)

    assert [(event.tags or {})["dagster/data_version"] for event in observations] == ["3", "5"]
    assert all(isinstance(event, dg.AssetObservation) for event in observations)
    assert "paimon/decisions" not in observations[0].metadata
    assert "dagster/uri" not in observations[0].metadata
    assert observations[1].metadata["paimon/physical_rows"].value == 15
    assert next(iter(observations[1].metadata)) == "paimon/summary"
    metadata = observations[1].metadata
    assert metadata["dagster/row_count"].value == 9
    assert metadata["dagster/uri"].value == orders.paths.root
    assert metadata["paimon/files"].value == 5
    assert metadata["paimon/summary"].value == (
        "Snapshot 5 (APPEND): compaction is due in 2 of 2 partitions."
    )


def test_a_rollback_resets_the_data_version(
    ticks_after_compaction: SensorTicks, orders: Table, upsert: Upsert, roll_back: RollBack
) -> None:
    upsert(orders, DAYS[0], amount=2)
    ticks_after_compaction.result()
    roll_back(orders, 2)  # snapshot 2 is the compaction of the first one

    [event] = events(ticks_after_compaction)

    assert event.tags == {"dagster/data_version": "1"}


def test_new_data_can_be_reported_as_a_materialization(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance, orders: Table, upsert: Upsert
) -> None:
    sensor = build_latest_snapshot_sensor("lake.orders", report_as="materialization")
    upsert(orders, DAYS[0])
    upsert(orders, DAYS[0])

    [event] = events(SensorTicks(sensor, paimon, instance))

    assert isinstance(event, dg.AssetMaterialization)
    assert event.asset_key == dg.AssetKey(["lake", "orders"])
    assert (event.tags or {})["dagster/data_version"] == "2"

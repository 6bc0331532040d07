from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonIOManager,
    PaimonPySparkIOManager,
    SparkSessionResource,
)
from paimon_orch.errors import InputError
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
RANGE = {
    "dagster/asset_partition_range_start": DAYS[0],
    "dagster/asset_partition_range_end": DAYS[1],
}
Create = Callable[..., Table]
# Dagster raises this warning for a resource that contains another resource.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def rows(*ids: int, day: str = DAYS[0], amount: int = 1) -> pa.Table:
    table = pa.Table.from_pylist([{"dt": day, "id": n, "amount": amount} for n in ids])
    return table.cast(pa.schema([("dt", "string"), ("id", "int64"), ("amount", "int32")]))


@pytest.fixture
def table(paimon: PaimonCatalogResource) -> Table:
    return paimon.catalog().create_table(
        "lake.sales", "dt STRING, id BIGINT, amount INT", partition_by=["dt"]
    )


def producer(value: Any, **options: Any) -> dg.AssetsDefinition:
    def sales() -> Any:
        return value

    asset: dg.AssetsDefinition = dg.asset(key=["lake", "sales"], **options)(sales)
    return asset


def run(
    paimon: PaimonCatalogResource, *assets: dg.AssetsDefinition, key: str | None = None
) -> dg.ExecuteInProcessResult:
    manager = PaimonIOManager(paimon=paimon)
    return dg.materialize([*assets], resources={"io_manager": manager}, partition_key=key)


def consumer(
    partitions_def: dg.PartitionsDefinition[str],
) -> tuple[dg.AssetsDefinition, list[pa.Table]]:
    """An asset with the input lake/sales, and the list of the tables that it loads."""
    loaded: list[pa.Table] = []

    @dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"])}, partitions_def=partitions_def)
    def consume(sales: pa.Table) -> None:
        loaded.append(sales)

    return consume, loaded


def read_stored_rows(table: Table) -> list[tuple[str, int]]:
    return sorted((row["dt"], row["id"]) for row in table.scan().to_arrow().to_pylist())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t,
        lambda t: t.to_reader(),
        lambda t: t.to_pandas(),
        pl.from_arrow,
    ],
    ids=["arrow", "batches", "pandas", "polars"],
)
def test_the_value_of_an_asset_is_written(
    table: Table, paimon: PaimonCatalogResource, convert: Callable[[pa.Table], Any]
) -> None:
    run(paimon, producer(convert(rows(1, 2))))

    assert read_stored_rows(table) == [(DAYS[0], 1), (DAYS[0], 2)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "form",
    [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame, pd.DataFrame | None],
    ids=str,
)
def test_the_input_is_loaded_as_the_annotated_type(
    table: Table, paimon: PaimonCatalogResource, form: type
) -> None:
    loaded: list[Any] = []

    def count(sales: Any) -> None:
        loaded.append(sales)

    count.__annotations__["sales"] = form
    counted = dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"])})(count)
    run(paimon, producer(rows(1, 2)), counted)

    assert isinstance(loaded[0], form)


def test_only_the_partition_of_the_run_is_overwritten_and_loaded(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    table.append(pa.concat_tables([rows(1, 2), rows(7, day=DAYS[1])]))
    consume, loaded = consumer(PARTITIONS)

    overwriting = producer(rows(3), partitions_def=PARTITIONS, metadata={"write_mode": "overwrite"})
    run(paimon, overwriting, consume, key=DAYS[0])

    assert read_stored_rows(table) == [(DAYS[0], 3), (DAYS[1], 7)]
    assert [row["id"] for row in loaded[0].to_pylist()] == [3]


ROWS: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda t: t,
    "batches": lambda t: t.to_reader(),
    "pandas": lambda t: t.to_pandas(),
    "polars": pl.from_arrow,
    "lazy polars": lambda t: pl.DataFrame(t).lazy(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_each_type_is_written_in_each_mode(
    create: Create, paimon: PaimonCatalogResource, form: str, mode: str
) -> None:
    table = create("lake.sales")
    table.upsert(pa.concat_tables([rows(1, 2), rows(9, day=DAYS[1])]))
    value = ROWS[form](rows(2, 3, amount=5))
    asset = producer(value, partitions_def=PARTITIONS, metadata={"write_mode": mode})

    result = run(paimon, asset, key=DAYS[0])

    remaining = [] if mode == "overwrite" else [(DAYS[0], 1, 1)]
    assert contents(table) == [*remaining, (DAYS[0], 2, 5), (DAYS[0], 3, 5), (DAYS[1], 9, 1)]
    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["paimon/rows_written"].value == 2


def contents(table: Table) -> list[tuple[str, int, int]]:
    """All rows after a full compaction."""
    compact(table, InProcessExecutor(), strategy="full")
    rows = table.scan().to_arrow().to_pylist()
    return sorted((row["dt"], row["id"], row["amount"]) for row in rows)


def test_several_partitions_are_written_and_loaded_in_one_run(
    table: Table, paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    table.append(pa.concat_tables([rows(1), rows(7, day="2026-01-09")]))
    days = dg.StaticPartitionsDefinition([*DAYS, "2026-01-09"])
    consume, loaded = consumer(days)

    value = pa.concat_tables([rows(2), rows(3, day=DAYS[1])])
    overwriting = producer(value, partitions_def=days, metadata={"write_mode": "overwrite"})
    manager = PaimonIOManager(paimon=paimon)
    dg.materialize(
        [overwriting, consume], resources={"io_manager": manager}, tags=RANGE, instance=instance
    )

    assert read_stored_rows(table) == [(DAYS[0], 2), (DAYS[1], 3), ("2026-01-09", 7)]
    assert sorted(row["id"] for row in loaded[0].to_pylist()) == [2, 3]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dynamic", ["true", "false"])
def test_only_the_partitions_of_the_run_are_replaced(
    paimon: PaimonCatalogResource, instance: dg.DagsterInstance, dynamic: str
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales",
        "dt STRING, id BIGINT, amount INT",
        partition_by=["dt"],
        options={"dynamic-partition-overwrite": dynamic},
    )
    table.append(pa.concat_tables([rows(n, day=f"2026-01-0{n}") for n in (1, 2, 3)]))
    days = dg.StaticPartitionsDefinition([*DAYS, "2026-01-03"])
    metadata = {"write_mode": "overwrite"}
    resources = {"io_manager": PaimonIOManager(paimon=paimon)}

    asset = producer(rows(7), partitions_def=days, metadata=metadata)
    dg.materialize([asset], resources=resources, tags=RANGE, instance=instance)

    # The second partition is empty now.
    assert read_stored_rows(table) == [
        (DAYS[0], 7),
        ("2026-01-03", 3),
    ]

    strays = producer(rows(8, day="2026-01-03"), partitions_def=days, metadata=metadata)
    with pytest.raises(InputError, match="not all rows are in the partition"):
        dg.materialize([strays], resources=resources, tags=RANGE, instance=instance)
    assert read_stored_rows(table) == [(DAYS[0], 7), ("2026-01-03", 3)]


def test_the_input_before_the_first_partition_is_empty(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    table.append(pa.concat_tables([rows(1, 2), rows(7, day=DAYS[1])]))
    loaded: list[list[int]] = []
    day_before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        key=["lake", "sales"],
        ins={"sales": dg.AssetIn(["lake", "sales"], partition_mapping=day_before)},
        partitions_def=dg.DailyPartitionsDefinition(DAYS[0], end_date="2026-01-04"),
    )
    def daily(sales: pa.Table) -> pa.Table:
        loaded.append(sales["id"].to_pylist())
        return sales.slice(0, 0)

    for day in DAYS:
        run(paimon, daily, key=day)

    assert loaded == [[], [1, 2]]


KINDS: list[tuple[str, dg.PartitionsDefinition[str], str, list[Any]]] = [
    (
        "DATE",
        dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03"),
        "2026-01-02",
        [date(2026, 1, 1), date(2026, 1, 2), None],
    ),
    (
        "STRING",
        dg.StaticPartitionsDefinition(["a/b", "__DEFAULT_PARTITION__"]),
        "a/b",
        ["other", "a/b", None],
    ),
    (
        "STRING",
        dg.StaticPartitionsDefinition(["__DEFAULT_PARTITION__"]),
        "__DEFAULT_PARTITION__",
        ["other", None, "a/b"],
    ),
    ("INT", dg.StaticPartitionsDefinition(["7"]), "7", [6, 7, None]),
    (
        "TIMESTAMP(3)",
        dg.HourlyPartitionsDefinition(
            "2026-01-01T00:00", end_date="2026-01-01T05:00", fmt="%Y-%m-%dT%H:%M"
        ),
        "2026-01-01T03:00",
        [datetime(2026, 1, 1, 2), datetime(2026, 1, 1, 3), None],
    ),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "definition", "key", "values"), KINDS)
def test_only_the_partition_of_the_run_is_overwritten_and_loaded_for_each_type(
    paimon: PaimonCatalogResource,
    kind: str,
    definition: dg.PartitionsDefinition[str],
    key: str,
    values: list[Any],
) -> None:
    table = paimon.catalog().create_table("lake.sales", f"p {kind}, id BIGINT", partition_by=["p"])
    typed = pa.array(values, to_arrow_type(table.load().schema.fields[0].type))
    table.append(pa.table({"p": typed, "id": [1, 2, 3]}))
    consume, loaded = consumer(definition)

    new = pa.table({"p": typed[1:2], "id": [5]})
    metadata = {"write_mode": "overwrite"}
    run(paimon, producer(new, partitions_def=definition, metadata=metadata), consume, key=key)

    assert [rows["id"].to_pylist() for rows in loaded] == [[5]]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3, 5]


def test_a_partition_of_two_dimensions_is_overwritten_and_loaded(
    paimon: PaimonCatalogResource,
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales", "dt DATE, region STRING, id BIGINT", partition_by=["dt", "region"]
    )
    day = date(2026, 1, 1)
    table.append(pa.table({"dt": [day, day], "region": ["eu", "us"], "id": [1, 2]}))
    definition = dg.MultiPartitionsDefinition(
        {
            "region": dg.StaticPartitionsDefinition(["eu", "us"]),
            "dt": dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03"),
        }
    )
    consume, loaded = consumer(definition)

    new = pa.table({"dt": [day], "region": ["us"], "id": [3]})
    metadata = {"write_mode": "overwrite"}
    overwriting = producer(new, partitions_def=definition, metadata=metadata)
    run(paimon, overwriting, consume, key="2026-01-01|us")

    assert [rows["id"].to_pylist() for rows in loaded] == [[3]]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]


DAILY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
HOURLY = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-02-00:00")
NEW_YORK = dg.HourlyPartitionsDefinition(
    "2026-01-01-00:00", end_date="2026-01-02-00:00", timezone="America/New_York"
)
EXPRESSIONS = [
    pytest.param(
        "DATE",
        dg.MonthlyPartitionsDefinition("2026-01-01", end_date="2026-03-01"),
        "2026-01-01",
        [date(2026, 2, 1), date(2026, 1, 31), date(2026, 1, 1)],
        id="the days of a month",
    ),
    pytest.param(
        "DATE",
        dg.DailyPartitionsDefinition("20260101", end_date="20260301", fmt="%Y%m%d"),
        "20260102",
        [date(2026, 1, 3), date(2026, 1, 2), date(2026, 1, 2)],
        id="a day in another format",
    ),
    pytest.param(
        "TIMESTAMP(0)",
        HOURLY,
        "2026-01-01-05:00",
        [datetime(2026, 1, 1, 4), datetime(2026, 1, 1, 5), datetime(2026, 1, 1, 5)],
        id="the time of an hour",
    ),
    pytest.param(
        "TIMESTAMP(0) WITH LOCAL TIME ZONE",
        NEW_YORK,
        "2026-01-01-05:00",
        [
            datetime(2026, 1, 1, 5, tzinfo=UTC),
            datetime(2026, 1, 1, 10, tzinfo=UTC),
            datetime(2026, 1, 1, 10, tzinfo=UTC),
        ],
        id="the instant of an hour",
    ),
    pytest.param("STRING", DAILY, "2026-01-02", [DAYS[0], DAYS[1], DAYS[1]], id="text"),
    pytest.param("INT", dg.StaticPartitionsDefinition(["07", "08"]), "07", [8, 7, 7], id="number"),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "definition", "key", "values"), EXPRESSIONS)
def test_a_partition_expr_names_one_of_the_partition_columns(
    paimon: PaimonCatalogResource,
    kind: str,
    definition: dg.PartitionsDefinition[str],
    key: str,
    values: list[Any],
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales", f"region STRING, p {kind}, id BIGINT", partition_by=["region", "p"]
    )
    typed = pa.array(values, to_arrow_type(table.load().schema.fields[1].type))
    table.append(pa.table({"region": ["eu", "eu", "us"], "p": typed, "id": [1, 2, 3]}))
    consume, loaded = consumer(definition)

    new = pa.table({"region": ["de"], "p": typed[1:2], "id": [5]})
    metadata = {"write_mode": "overwrite", "partition_expr": "p"}
    run(paimon, producer(new, partitions_def=definition, metadata=metadata), consume, key=key)

    assert [rows["id"].to_pylist() for rows in loaded] == [[5]]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 5]


def test_a_partition_expr_maps_dimensions_to_columns_of_a_new_table(
    paimon: PaimonCatalogResource,
) -> None:
    definition = dg.MultiPartitionsDefinition(
        {"area": dg.StaticPartitionsDefinition(["eu", "us"]), "month": DAILY}
    )
    metadata = {
        "write_mode": "overwrite",
        "partition_expr": {"area": "region", "month": "dt"},
    }
    consume, loaded = consumer(definition)
    for area, number in (("eu", 1), ("us", 2), ("us", 3)):
        new = pa.table({"dt": [date(2026, 1, 2)], "region": [area], "id": [number]})
        overwriting = producer(new, partitions_def=definition, metadata=metadata)
        run(paimon, overwriting, consume, key=f"{area}|2026-01-02")

    table = paimon.load_table("lake.sales")
    assert table.load().schema.partition_keys == ("region", "dt")
    assert [rows["id"].to_pylist() for rows in loaded] == [[1], [2], [3]]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]


def test_an_input_of_another_run_uses_the_partition_expr_of_the_asset_or_its_own(
    paimon: PaimonCatalogResource,
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales", "made DATE, sold DATE, id BIGINT", partition_by=["made", "sold"]
    )
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    table.append(pa.table({"made": [first, second], "sold": [second, first], "id": [1, 2]}))
    upstream = producer(None, partitions_def=DAILY, metadata={"partition_expr": "made"})
    loaded: list[list[int]] = []

    def build(name: str, metadata: dict[str, str]) -> dg.AssetsDefinition:
        @dg.asset(
            name=name,
            ins={"sales": dg.AssetIn(["lake", "sales"], metadata=metadata)},
            partitions_def=DAILY,
        )
        def consume(sales: pa.Table) -> None:
            loaded.append(sales["id"].to_pylist())

        return consume

    consumers = [build("by_made", {}), build("by_sold", {"partition_expr": "sold"})]
    for each in consumers:
        dg.materialize(
            [upstream, each],
            selection=[each],
            resources={"io_manager": PaimonIOManager(paimon=paimon)},
            partition_key="2026-01-01",
        )

    assert loaded == [[1], [2]]


@pytest.mark.parametrize(
    ("definition", "key", "expr", "message"),
    [
        (DAILY, "2026-01-01", "TO_DATE(dt)", "must name partition columns of the table, which are"),
        (DAILY, "2026-01-01", {"dt": "dt"}, "must be the name of the column of the partitions"),
        (
            HOURLY,
            "2026-01-01-05:00",
            "day",
            "is a part of a day, and the column 'day' of type DATE",
        ),
        (
            dg.MultiPartitionsDefinition({"a": PARTITIONS, "b": DAILY}),
            "2026-01-01|2026-01-01",
            {"a": "dt"},
            "must name a column for each of the dimensions a, b",
        ),
    ],
    ids=["an expression", "a mapping", "an hour of a day", "a missing dimension"],
)
def test_a_wrong_partition_expr_is_refused(
    paimon: PaimonCatalogResource,
    definition: dg.PartitionsDefinition[str],
    key: str,
    expr: object,
    message: str,
) -> None:
    paimon.catalog().create_table(
        "lake.sales", "dt STRING, day DATE, id BIGINT", partition_by=["dt", "day"]
    )
    metadata = {"partition_expr": expr}

    with pytest.raises(InputError, match=message):
        run(paimon, producer(rows(1), partitions_def=definition, metadata=metadata), key=key)


def test_a_missing_partition_is_loaded_as_an_empty_table(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    table.append(rows(7, day=DAYS[1]))
    consume, loaded = consumer(PARTITIONS)

    appending = producer(rows(1).slice(0, 0), partitions_def=PARTITIONS)
    run(paimon, appending, consume, key=DAYS[0])

    assert loaded[0].num_rows == 0
    assert loaded[0].column_names == ["dt", "id", "amount"]


def test_an_unpartitioned_overwrite_replaces_the_table(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    table.append(rows(7, day=DAYS[1]))

    run(paimon, producer(rows(3), metadata={"write_mode": "overwrite"}))

    assert read_stored_rows(table) == [(DAYS[0], 3)]


def test_a_run_can_set_the_write_mode_and_reports_the_written_rows(
    create: Create, paimon: PaimonCatalogResource
) -> None:
    table = create("lake.sales")

    @dg.asset(key=["lake", "sales"])
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata({"write_mode": "upsert"})
        return rows(1, 2, amount=5)

    result = run(paimon, sales)

    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["paimon/snapshot_id"].value == "1"
    assert event.materialization.metadata["paimon/rows_written"].value == 2
    assert table.stores.snapshots.latest_id() == 1


def test_a_step_that_is_retried_after_its_commit_does_not_write_rows_again(
    table: Table, paimon: PaimonCatalogResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = Table.append, list[int]()

    def fail_first_append(self: Table, *arguments: Any, **options: Any) -> Any:
        snapshot = append(self, *arguments, **options)
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the answer was lost")
        return snapshot

    monkeypatch.setattr(Table, "append", fail_first_append)

    run(paimon, producer(rows(1), retry_policy=dg.RetryPolicy(max_retries=1)))

    assert len(calls) == 2
    assert read_stored_rows(table) == [(DAYS[0], 1)]


def test_two_outputs_of_a_step_can_be_written_to_one_table(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    outs = {name: dg.AssetOut(key=[name, "lake", "sales"]) for name in ("shop", "web")}

    @dg.multi_asset(outs=outs)
    def sales() -> tuple[pa.Table, pa.Table]:
        return rows(1), rows(2)

    run(paimon, sales)

    assert read_stored_rows(table) == [(DAYS[0], 1), (DAYS[0], 2)]


def test_an_unknown_write_mode_is_refused(table: Table, paimon: PaimonCatalogResource) -> None:
    with pytest.raises(InputError, match="'replace' must be one of append"):
        run(paimon, producer(rows(1), metadata={"write_mode": "replace"}))


def test_a_value_of_another_type_is_refused(table: Table, paimon: PaimonCatalogResource) -> None:
    with pytest.raises(InputError, match="not <class 'dict'>"):
        run(paimon, producer({"a": 1}))


def test_an_input_without_uncompacted_rows_logs_a_warning(
    paimon: PaimonCatalogResource,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    table = paimon.catalog().create_table(
        "lake.sales",
        "dt STRING, id BIGINT, amount INT",
        partition_by=["dt"],
        primary_key=["dt", "id"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    loaded = []

    @dg.asset(ins={"sales": dg.AssetIn(key=["lake", "sales"])})
    def report(sales: pa.Table) -> None:
        loaded.append(sales.num_rows)

    run(paimon, producer(rows(1, 2)), report)

    assert loaded == [0]
    assert "2 of the records written to lake.sales are not visible" in caplog.text
    assert (
        "2 records of lake.sales are not compacted yet and are left out" in capfd.readouterr().err
    )
    assert table.scan(merge_level_0=True).to_arrow().num_rows == 2


def read_with(paimon: PaimonCatalogResource, annotation: Any = pa.Table, **metadata: Any) -> Any:
    """Load the input lake/sales with metadata."""
    loaded = list[Any]()

    def consume(sales: Any) -> None:
        loaded.append(sales)

    consume.__annotations__ = {"sales": annotation, "return": None}
    asset = dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"], metadata=metadata)})(consume)
    manager, source = PaimonIOManager(paimon=paimon), dg.AssetSpec(["lake", "sales"])
    dg.materialize([asset, source], resources={"io_manager": manager}, selection=[asset])
    return loaded[0]


def test_metadata_of_an_input_selects_what_is_read(
    paimon: PaimonCatalogResource, table: Table
) -> None:
    table.append(rows(1, 2))
    table.tags.create("first")
    table.branches.create("b", tag="first")
    table.append(rows(3))

    assert read_with(paimon, columns=["id"]).column_names == ["id"]
    assert read_with(paimon, filter="id > 1", columns=["id"]).to_pydict() == {"id": [2, 3]}
    for metadata in ({"snapshot_id": 1}, {"tag": "first"}, {"branch": "b"}):
        assert sorted(read_with(paimon, **metadata)["id"].to_pylist()) == [1, 2]
    assert read_with(paimon, Scan, filter="id = 3").count() == 1
    with pytest.raises(InputError, match=r"has where; .* columns, filter, snapshot_id"):
        read_with(paimon, where="id = 3")


def test_a_filter_applies_to_the_partition_of_the_run(
    paimon: PaimonCatalogResource, table: Table
) -> None:
    table.append(pa.concat_tables([rows(1, 2), rows(2, 3, day=DAYS[1])]))
    loaded = list[pa.Table]()
    ins = {"sales": dg.AssetIn(["lake", "sales"], metadata={"filter": "id = 2"})}

    @dg.asset(ins=ins, partitions_def=PARTITIONS)
    def consume(sales: pa.Table) -> None:
        loaded.append(sales)

    source = dg.AssetSpec(["lake", "sales"], partitions_def=PARTITIONS)
    manager = PaimonIOManager(paimon=paimon)
    dg.materialize([consume, source], resources={"io_manager": manager}, partition_key=DAYS[1],
                   selection=[consume])  # fmt: skip

    assert loaded[0].select(["dt", "id"]).to_pylist() == [{"dt": DAYS[1], "id": 2}]


def test_the_first_write_creates_the_table(paimon: PaimonCatalogResource) -> None:
    metadata = {"primary_key": ["dt", "id"], "partition_by": ["dt"], "options": {"bucket": "1"}}
    asset = producer(rows(1), partitions_def=PARTITIONS, metadata=metadata)

    run(paimon, asset, key=DAYS[0])

    table = paimon.load_table("lake.sales")
    schema = table.stores.get_schema()
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert schema.options["bucket"] == "1"
    assert read_stored_rows(table) == [(DAYS[0], 1)]


def test_a_partitioned_table_is_not_created_without_its_partition_columns(
    paimon: PaimonCatalogResource,
) -> None:
    with pytest.raises(InputError, match="set the metadata partition_by"):
        run(paimon, producer(rows(1), partitions_def=PARTITIONS), key=DAYS[0])


def test_new_columns_are_added_only_if_that_is_set(
    paimon: PaimonCatalogResource, table: Table
) -> None:
    wider = rows(1).append_column("note", pa.array(["new"]))
    with pytest.raises(InputError, match="note"):
        run(paimon, producer(wider))

    manager = PaimonIOManager(paimon=paimon, schema_update_mode="add_columns")
    dg.materialize([producer(wider)], resources={"io_manager": manager})

    assert table.scan(["note"]).to_arrow().to_pydict() == {"note": ["new"]}


def test_relations_of_duckdb_are_written(paimon: PaimonCatalogResource, table: Table) -> None:
    duckdb = pytest.importorskip("duckdb")

    run(paimon, producer(duckdb.sql("select '2026-01-01' as dt, 5::bigint as id, 1 as amount")))

    assert read_stored_rows(table) == [(DAYS[0], 5)]


def test_a_materialization_has_the_metadata_and_the_version_that_the_ui_shows(
    paimon: PaimonCatalogResource, table: Table
) -> None:
    result = run(paimon, producer(rows(1, 2)))

    [event] = result.asset_materializations_for_node("lake__sales")
    assert event.metadata["dagster/table_name"].value == "lake.sales"
    assert event.metadata["dagster/uri"].value == table.paths.root
    columns = event.metadata["dagster/column_schema"]
    assert isinstance(columns, dg.TableSchemaMetadataValue)
    assert [column.name for column in columns.schema.columns] == ["dt", "id", "amount"]
    assert event.metadata["paimon/rows_written"].value == 2
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == "1"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_frames_of_spark_are_written_and_loaded(
    spark: SparkSession, paimon: PaimonCatalogResource, mode: str
) -> None:
    manager = PaimonPySparkIOManager(
        paimon=paimon,
        spark=SparkSessionResource(),
        write_mode=mode,  # type: ignore[arg-type]
    )
    frame = spark.createDataFrame([(DAYS[0], 1, 2)], "dt STRING, id BIGINT, amount INT")
    asset = producer(frame, partitions_def=PARTITIONS, metadata={"partition_by": ["dt"]})
    counts = list[Any]()

    @dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"])}, partitions_def=PARTITIONS)
    def consume(sales: DataFrame) -> None:
        counts.append((type(sales), sales.count()))

    for _ in range(2):
        dg.materialize([asset, consume], resources={"io_manager": manager}, partition_key=DAYS[0])

    assert counts == [(type(frame), 1), (type(frame), 2 if mode == "append" else 1)]
    table = paimon.load_table("lake.sales")
    assert table.stores.get_schema().partition_keys == ("dt",)


def test_the_named_index_of_a_pandas_frame_is_a_column(paimon: PaimonCatalogResource) -> None:
    frame = pd.DataFrame({"dt": ["a", "b"], "id": [1, 2], "amount": [3, 4]}).groupby("dt").sum()

    run(paimon, producer(frame))

    assert read_stored_rows(paimon.load_table("lake.sales")) == [("a", 1), ("b", 2)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "value", [pd.DataFrame(), pd.Series([1]), pl.Series([1]), 1], ids=lambda value: str(type(value))
)
def test_a_value_without_columns_is_refused(paimon: PaimonCatalogResource, value: Any) -> None:
    with pytest.raises(InputError, match=r"the value (has no|must export)|at least one column"):
        run(paimon, producer(value))
    assert paimon.catalog().databases() == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"id": [1], "dt": ["a"]}),
        pl.DataFrame({"id": [1], "dt": ["a"]}).lazy(),
        pd.DataFrame({"id": [1], "dt": pd.Categorical(["a"])}),
    ],
    ids=["polars", "lazy", "categorical"],
)
def test_frames_create_tables(paimon: PaimonCatalogResource, frame: Any) -> None:
    run(paimon, producer(frame))

    assert read_stored_rows(paimon.load_table("lake.sales")) == [("a", 1)]


def test_no_column_is_added_that_differs_only_by_case(
    paimon: PaimonCatalogResource, table: Table
) -> None:
    manager = PaimonIOManager(paimon=paimon, schema_update_mode="add_columns")
    renamed = rows(1).rename_columns(["dt", "ID", "amount"])

    with pytest.raises(InputError, match="'ID' of the rows differs from the column 'id'"):
        dg.materialize([producer(renamed)], resources={"io_manager": manager})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"write_mode": "nope"}, "write_mode 'nope'"),
        ({"write_mode": "upsert", "partition_by": ["dt"]}, "set the metadata primary_key"),
        ({"partition_by": ["dt", "id"]}, "must look like"),
    ],
)
def test_a_write_that_is_refused_creates_no_table(
    paimon: PaimonCatalogResource, metadata: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        run(paimon, producer(rows(1), partitions_def=PARTITIONS, metadata=metadata), key=DAYS[0])
    assert paimon.catalog().databases() == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metadata", [{"colums": ["id"]}, {"Filter": "id = 1"}, {"branch": ""}])
def test_misspelled_metadata_of_an_input_is_refused(
    paimon: PaimonCatalogResource, table: Table, metadata: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="an input"):
        read_with(paimon, **metadata)


@pytest.mark.slow
def test_an_input_without_annotation_is_a_frame_of_spark(
    spark: SparkSession, paimon: PaimonCatalogResource, table: Table
) -> None:
    table.append(rows(1, 2))
    loaded = list[Any]()

    def consume(sales) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        loaded.append(sales.groupBy("dt").count().collect())

    manager = PaimonPySparkIOManager(paimon=paimon, spark=SparkSessionResource())
    asset = dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"])})(consume)
    source = dg.AssetSpec(["lake", "sales"])
    dg.materialize([asset, source], resources={"io_manager": manager}, selection=[asset])

    assert [tuple(row) for row in loaded[0]] == [(DAYS[0], 2)]

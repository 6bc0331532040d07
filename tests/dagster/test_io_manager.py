from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from paimon_orch.dagster import PaimonArrowIOManager, PaimonCatalogResource
from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

DAYS = ["2026-01-01", "2026-01-02"]
PARTITIONS = dg.StaticPartitionsDefinition(DAYS)
Create = Callable[..., Table]
# Dagster does that itself where one resource holds another.
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
    manager = PaimonArrowIOManager(paimon=paimon)
    return dg.materialize([*assets], resources={"io_manager": manager}, partition_key=key)


def stored(table: Table) -> list[tuple[str, int]]:
    found = table.scan().to_arrow().to_pylist()
    return sorted((row["dt"], row["id"]) for row in found)


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
def test_what_an_asset_returns_is_stored(
    table: Table, paimon: PaimonCatalogResource, convert: Callable[[pa.Table], Any]
) -> None:
    run(paimon, producer(convert(rows(1, 2))))

    assert stored(table) == [(DAYS[0], 1), (DAYS[0], 2)]


@pytest.mark.parametrize("form", [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame])
def test_an_input_is_loaded_in_the_form_that_it_asks_for(
    table: Table, paimon: PaimonCatalogResource, form: type
) -> None:
    seen: list[Any] = []

    def count(sales: Any) -> None:
        seen.append(sales)

    count.__annotations__["sales"] = form
    counted = dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"])})(count)
    run(paimon, producer(rows(1, 2)), counted)

    assert isinstance(seen[0], form)


def test_a_partition_is_overwritten_and_loaded_alone(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    table.append(pa.concat_tables([rows(1, 2), rows(7, day=DAYS[1])]))
    seen: list[pa.Table] = []

    @dg.asset(ins={"sales": dg.AssetIn(["lake", "sales"])}, partitions_def=PARTITIONS)
    def counted(sales: pa.Table) -> None:
        seen.append(sales)

    overwriting = producer(rows(3), partitions_def=PARTITIONS, metadata={"write_mode": "overwrite"})
    run(paimon, overwriting, counted, key=DAYS[0])

    assert stored(table) == [(DAYS[0], 3), (DAYS[1], 7)]
    assert [row["id"] for row in seen[0].to_pylist()] == [3]


def test_an_unpartitioned_overwrite_replaces_the_table(
    table: Table, paimon: PaimonCatalogResource
) -> None:
    table.append(rows(7, day=DAYS[1]))

    run(paimon, producer(rows(3), metadata={"write_mode": "overwrite"}))

    assert stored(table) == [(DAYS[0], 3)]


def test_the_run_can_choose_the_mode_and_reports_what_was_written(
    create: Create, paimon: PaimonCatalogResource
) -> None:
    table = create("lake.sales")

    @dg.asset(key=["lake", "sales"])
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata({"write_mode": "upsert"})
        return rows(1, 2, amount=5)

    result = run(paimon, sales)

    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["paimon/snapshot_id"].value == 1
    assert event.materialization.metadata["paimon/rows_written"].value == 2
    assert table.snapshots.latest_id() == 1


def test_a_step_that_is_retried_after_its_commit_adds_nothing_twice(
    table: Table, paimon: PaimonCatalogResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = Table.append, list[int]()

    def failing_once(self: Table, *arguments: Any, **options: Any) -> Any:
        snapshot = append(self, *arguments, **options)
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the answer was lost")
        return snapshot

    monkeypatch.setattr(Table, "append", failing_once)

    run(paimon, producer(rows(1), retry_policy=dg.RetryPolicy(max_retries=1)))

    assert len(calls) == 2
    assert stored(table) == [(DAYS[0], 1)]


def test_a_mode_that_does_not_exist_is_refused(table: Table, paimon: PaimonCatalogResource) -> None:
    with pytest.raises(InputError, match="'replace' must be one of append"):
        run(paimon, producer(rows(1), metadata={"write_mode": "replace"}))


def test_a_value_that_is_no_table_is_refused(table: Table, paimon: PaimonCatalogResource) -> None:
    with pytest.raises(InputError, match="not from dict"):
        run(paimon, producer({"a": 1}))

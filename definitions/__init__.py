"""The code location behind ``make dev``: New York's flights of 2013, loaded and compacted month by month, and kept small.

What is computed is in ``assets``, another engine's commits in ``external_writer``; ``components/`` holds a ``defs.yaml``
for each table that is looked after. The environment variable ``PAIMON_WAREHOUSE`` names the warehouse; without it one in
the user's cache is used.
"""

from pathlib import Path

import dagster as dg

from definitions.assets import delays_by_carrier, flight_board, flights, planes_by_tail
from definitions.external_writer import external_writer, external_writer_schedule
from paimon_orch.dagster import (
    PaimonArrowIOManager,
    PaimonCatalogResource,
    SparkSessionResource,
    build_compact_manifests_job,
    build_maintenance_schedules,
)
from paimon_orch.demo.flights import FLIGHT_BOARD_TABLE
from paimon_orch.demo.warehouse import default_warehouse

warehouse = PaimonCatalogResource(
    warehouse=dg.EnvVar("PAIMON_WAREHOUSE").get_value() or default_warehouse()
)
compact_manifests_job = build_compact_manifests_job(FLIGHT_BOARD_TABLE)

python_definitions = dg.Definitions(
    assets=[flights, flight_board, planes_by_tail, delays_by_carrier],
    jobs=[external_writer, compact_manifests_job],
    schedules=[
        external_writer_schedule,
        *build_maintenance_schedules(
            [compact_manifests_job], default_status=dg.DefaultScheduleStatus.RUNNING
        ),
    ],
    sensors=[
        dg.AutomationConditionSensorDefinition(
            "automation",
            target=dg.AssetSelection.all(),
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
    ],
    resources={
        "paimon": warehouse,
        "paimon_io_manager": PaimonArrowIOManager(paimon=warehouse),
        "spark": SparkSessionResource(spark_config={"spark.sql.shuffle.partitions": "8"}),
    },
    # A run of several assets then starts Spark once.
    executor=dg.in_process_executor,
)


@dg.definitions
def defs() -> dg.Definitions:
    """Return everything: what stands in Python, and the components."""
    here = Path(__file__).parent
    return dg.Definitions.merge(
        python_definitions, dg.load_from_defs_folder(path_within_project=here)
    )

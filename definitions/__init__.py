"""The code location of the demo, for ``make dev``: flights from New York in 2013.

``assets`` has the assets, ``external_writer`` the commits of another engine, and ``components/`` a
``defs.yaml`` for each table that is maintained. The environment variable ``PAIMON_WAREHOUSE`` is
the location of the warehouse; the default is a directory in the user's cache. All sensors and
schedules are stopped until they are started in the UI.
"""

from pathlib import Path

import dagster as dg

from definitions.assets import delays_by_carrier, flight_board, flights, planes_by_tail
from definitions.external_writer import external_writer, external_writer_schedule
from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonIOManager,
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
        *build_maintenance_schedules([compact_manifests_job]),
    ],
    sensors=[dg.AutomationConditionSensorDefinition("automation", target=dg.AssetSelection.all())],
    # In one process, a run of several assets starts Spark only once.
    executor=dg.in_process_executor,
)
resources = {
    "paimon": warehouse,
    "paimon_io_manager": PaimonIOManager(paimon=warehouse),
    "spark": SparkSessionResource(spark_config={"spark.sql.shuffle.partitions": "8"}),
}


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions of the Python modules and of the components.

    A component with a warehouse of its own, such as one that ``dg scaffold`` writes, defines
    resources too; these replace those of the demo, which Dagster would refuse to merge.
    """
    components = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    own = {k: v for k, v in resources.items() if k not in (components.resources or {})}
    return dg.Definitions.merge(python_definitions, components, dg.Definitions(resources=own))

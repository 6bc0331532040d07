"""Print the wall-clock and the CPU seconds to load the definitions of many tables.

Dagster's own import is not counted. The first argument is ``database`` for one component of all
tables, or ``tables`` for a component for each; the second one is the number of tables.
"""

import sys
import time

import dagster as dg
import dagster.components  # also part of Dagster

wall_clock, cpu = time.perf_counter(), time.process_time()
from paimon_orch.dagster import PaimonDatabaseComponent, PaimonTableComponent

POLICIES = {"snapshot_expiration": {"retain_for": "24 h"}, "orphan_files": {"older_than": "3 d"}}
kind, count = sys.argv[1], int(sys.argv[2])
names = [f"t{number:03}" for number in range(count)]
if kind == "database":
    database = PaimonDatabaseComponent.from_attributes_dict(
        attributes={"database": "lake", "warehouse": "/lake", **POLICIES}
    )
    defs = database.definitions({name: ["dt"] for name in names})
else:
    attributes = {"warehouse": "/lake", "partitions": {"dynamic": True}, **POLICIES}
    tables = [
        PaimonTableComponent.from_attributes_dict(
            attributes={"table": f"lake.{name}", **attributes}
        )
        for name in names
    ]
    defs = dg.Definitions.merge(*(table.definitions() for table in tables))
defs.get_repository_def().load_all_definitions()
print(time.perf_counter() - wall_clock, time.process_time() - cpu)  # noqa: T201

"""Runs steps on a Spark Connect server in a process that has only its client.

python connect_client.py ADDRESS WAREHOUSE

Prints what it found as JSON on the last line.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import distributions

from paimon_orch import Catalog, MissingPackageError
from paimon_orch.spark import SparkExecutor, read, spark_session, stop_session, update
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.executor_choice import ChoosingExecutor
from paimon_orch.steps.compaction.compact import compact


def refuse_master() -> str:
    """Return the error of a session that is not on Spark Connect."""
    try:
        spark_session("local[1]")
    except MissingPackageError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    address, warehouse = sys.argv[1:]
    table = Catalog(warehouse).table("db.t")
    found = {
        "packages": sorted(
            each.name for each in distributions() if each.name.startswith("pyspark")
        ),
        "refusal": refuse_master(),
        "large_work_is_local": ChoosingExecutor(make_spark=InProcessExecutor).is_local(1 << 40),
    }
    session = spark_session(remote=address, ship_package=True)
    found["files_before"] = compact(table, SparkExecutor(session), strategy="full").files_before
    update(session, table, {"v": "'updated'"}, where="k = 1")
    rows = read(session, table.scan(merge_level_0=True)).orderBy("k").collect()
    found["rows"] = [row.asDict() for row in rows]
    stop_session(session)
    sys.stdout.write("\n" + json.dumps(found) + "\n")

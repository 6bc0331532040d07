"""One catalog that Airflow and Dagster maintain at the same time, in two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from support import two_orchestrators
from support.airflow_environment import Airflow
from support.light_environment import ROOT

from paimon_orch import Catalog
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.inspection.check_table import check

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("airflow"), pytest.mark.timeout(600)]

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
COMMITS, KEYS, TURNS = 40, 5, 3


def test_nothing_is_lost_if_airflow_and_dagster_maintain_a_table(
    airflow: Airflow, tmp_path: Path
) -> None:
    warehouse, stop = str(tmp_path / "lake"), tmp_path / "stop"
    orders = Catalog(warehouse).create_table(
        two_orchestrators.TABLE,
        "dt STRING, id BIGINT, amount BIGINT",
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    connection = {"conn_type": "paimon", "host": warehouse}
    variables = {
        "airflow": airflow.variables | {"AIRFLOW_CONN_PAIMON_DEFAULT": json.dumps(connection)},
        "dagster": os.environ | {"PYTHONPATH": str(ROOT)},
    }
    pythons = {"airflow": str(airflow.python), "dagster": sys.executable}
    processes = {
        name: subprocess.Popen(
            # the folder of the script has modules with the names of packages
            [python, "-P", two_orchestrators.__file__, name, warehouse, str(stop)],
            env=variables[name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, python in pythons.items()
    }
    expected = {}

    def commit(number: int) -> None:
        rows = {(day, n): number for day in DAYS for n in range(KEYS * (number % 3 + 1))}
        columns = zip(*((day, n, amount) for (day, n), amount in rows.items()), strict=True)
        orders.upsert(pa.table(dict(zip(("dt", "id", "amount"), map(list, columns), strict=True))))
        expected.update(rows)

    def count_turns() -> int:
        """Return the turns of the slower of both."""
        files = [tmp_path / f"stop.{name}" for name in processes]
        return min(int(file.read_text() or 0) if file.exists() else 0 for file in files)

    try:
        number = 0
        while number < COMMITS or count_turns() < TURNS:
            commit(number)
            number += 1
            for name, each in processes.items():
                if each.poll() is not None:
                    pytest.fail(f"{name} has ended:\n{each.communicate()[1]}")
            time.sleep(0.2)
        stop.touch()
        outputs = {name: each.communicate(timeout=120) for name, each in processes.items()}
    finally:
        for each in processes.values():
            with each:  # closes its pipes and waits
                each.kill()

    assert {name: each.returncode for name, each in processes.items()} == {
        "airflow": 0,
        "dagster": 0,
    }, outputs
    orders.compact()
    rows = orders.scan().to_arrow().to_pylist()
    assert {(row["dt"], row["id"]): row["amount"] for row in rows} == expected
    assert len(rows) == len(expected)
    assert not check(orders).findings
    assert 1 not in orders.stores.snapshots.ids()
    assert CommitKind.COMPACT in {snapshot.commit_kind for snapshot in orders.snapshots()}

"""Spark Connect in the environment of Airflow: its Spark provider requires the client without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.airflow_environment import airflow_python, build_environment, run_in_airflow
from support.light_environment import ROOT
from support.peers.downloads import PeerUnavailableError
from support.spark import connect_client
from support.spark.cluster import make_environment, run_connect_server

from paimon_orch import Catalog

pytestmark = [
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.xdist_group("airflow"),
    pytest.mark.timeout(600),
]


def test_steps_run_on_spark_connect_without_pyspark(tmp_path: Path) -> None:
    try:
        python = airflow_python()
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    warehouse = str(tmp_path / "lake")
    table = Catalog(warehouse).create_table(
        "db.t", "k BIGINT, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    for value in ("first", "second"):
        table.upsert(pa.table({"k": pa.array([1, 2]), "v": [value, value]}))

    workers = make_environment(tmp_path / "workers")
    with run_connect_server(tmp_path, workers) as address:
        finished = run_in_airflow(
            python,
            build_environment(tmp_path / "home", ROOT),
            connect_client.__file__,
            address,
            warehouse,
        )

    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[-1]) == {
        "packages": ["pyspark-client"],
        "refusal": (
            "Spark on local[1] needs the package pyspark, which is not installed; "
            "run: pip install 'paimon-orch[spark]'"
        ),
        "large_work_is_local": True,
        "files_before": 2,
        "rows": [{"k": 1, "v": "updated"}, {"k": 2, "v": "second"}],
    }

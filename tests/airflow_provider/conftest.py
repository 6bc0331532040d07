"""An environment with Airflow; the folder ``inside`` is run by its pytest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.airflow_environment import Airflow, airflow_python, build_environment, install_package
from support.peers.downloads import PeerUnavailableError

collect_ignore = ["inside"]

_DATABASE = "airflow.db"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """The environment that all modules copy, because a migration takes some seconds."""
    home, site = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("site")
    try:
        python = airflow_python()
        install_package(site)
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    prepared = Airflow(python, build_environment(home, site))
    prepared.run("-m", "airflow", "db", "migrate")
    return prepared


@pytest.fixture(scope="module")
def airflow(migrated: Airflow, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """An environment with a database and DAGs that no other module uses."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(Path(migrated.variables["AIRFLOW_HOME"]) / _DATABASE, home)
    return Airflow(migrated.python, build_environment(home, Path(migrated.variables["PYTHONPATH"])))

"""An environment with Airflow; the folder ``inside`` is run by its pytest."""

from __future__ import annotations

import pytest
from support.airflow_environment import (
    Airflow,
    airflow_python,
    build_environment,
    install_package,
)
from support.peers.downloads import PeerUnavailableError

collect_ignore = ["inside"]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    home, site = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("site")
    try:
        python = airflow_python()
        install_package(site)
    except PeerUnavailableError as error:
        pytest.skip(str(error))
    prepared = Airflow(python, build_environment(home, site))
    prepared.run("-m", "airflow", "db", "migrate")
    return prepared

"""A catalog with tables that need different kinds of maintenance."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.lake import create_lake

from paimon_orch import Catalog


@pytest.fixture(scope="session")
def lake_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a warehouse that tests copy."""
    root = tmp_path_factory.mktemp("lake")
    create_lake(root)
    return root


@pytest.fixture
def lake(tmp_path: Path, lake_directory: Path) -> Catalog:
    """Return a catalog with the tables of :func:`create_lake`."""
    shutil.copytree(lake_directory, tmp_path / "lake")
    return Catalog(str(tmp_path / "lake"))

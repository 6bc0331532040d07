"""Fixtures of all tests. Spark starts when the first test asks for it, and only then."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A slow machine is no bug. With CI set hypothesis takes its own profile "ci": the same examples each time.
settings.register_profile("local", deadline=None)
if not settings.get_current_profile_name().startswith("ci"):
    settings.load_profile("local")

# The JVM of a session, in whichever process, and of a Connect server. It runs for a minute or two: what the second
# compiler and a parallel collector gain there is less than they take.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

REPOSITORY = Path(__file__).resolve().parents[1]


# First: xdist reads the groups in this hook too, and would before a plain one of this file.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for a session: ``-m 'not spark'`` leaves it out, and one worker runs it all."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session", autouse=True)
def _without_fsync() -> Iterator[None]:
    """Nothing is synced to the disk, which takes most of the time of small tables.

    Tests kill processes, and those lose nothing that they have written: only a machine that dies does.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session for all tests. What runs on its workers is a function inside the test."""
    from paimon_orch.spark import spark_session, stop_session

    session = spark_session("local[2]", config={"spark.sql.shuffle.partitions": "2"})
    yield session
    stop_session(session)

"""Another session of the JVM of the tests."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_second_session(spark: SparkSession) -> SparkSession:
    """Return a session in which formats can be registered, or skip the test."""
    if is_remote():
        pytest.skip("only clients of Spark 4.3 create a separate session")
    if shlex.quote(sys.executable) != sys.executable:
        pytest.skip("Spark registers formats in one session only if Python's path has a blank")
    return spark.newSession()

"""Registers the format ``paimon`` with a session, and gives it the session's default catalog."""

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from paimon_orch.errors import UnsupportedError
from paimon_orch.spark.datasource.datasource_options import SESSION_PREFIX
from paimon_orch.spark.datasource.session_settings import read_default_location


def register(session: SparkSession) -> None:
    """Register the format ``paimon``, with the default catalog of the session.

    The default catalog is ``spark.paimon_orch.catalog``, a configured name, or
    ``spark.paimon_orch.warehouse``. Python data sources cannot read settings, so this call reads
    them; call it again after a change.

    Without these settings, this call is rarely needed: Spark finds :mod:`pyspark_paimon` if
    paimon-orch is installed for the workers' Python when the session first looks up a format. This
    lookup starts a worker, which takes seconds.
    """
    location = read_default_location(session)
    try:
        session.dataSource.register(_configure_source(location))
    except AnalysisException as error:
        # Spark 4.0 raises this error and keeps the registered class; later versions replace it
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if location:
            raise UnsupportedError(
                "Spark 4.0 does not replace the format paimon once a format was looked up: register "
                "it before the first use of spark.read or write, or set the catalog as an option"
            ) from None


def _configure_source(location: Mapping[str, str]) -> type[DataSource]:
    from pyspark_paimon import DefaultSource

    if not location:
        return DefaultSource
    defaults = {SESSION_PREFIX + name: value for name, value in location.items()}

    class ConfiguredSource(DefaultSource):  # Spark sends this class by value
        def __init__(self, options: Mapping[str, str]) -> None:
            super().__init__({**options, **defaults})

    return ConfiguredSource

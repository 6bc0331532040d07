"""Resources: the warehouse, and a Spark session."""

import sys
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.steps.common.executor import Executor, ForwardingExecutor, InProcessExecutor
from paimon_orch.storage.object_store_options import parse_storage_option
from paimon_orch.table.table import Table

if TYPE_CHECKING:  # sensors and checks do not need Spark, so it is imported on first use
    from pyspark.sql import SparkSession


class PaimonCatalogResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # its parameter is for subclasses that yield
    """A warehouse of Paimon tables.

    >>> PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE"))
    """

    warehouse: str = Field(
        description="Location of the tables: a local path, a file: URI, or s3://bucket/path."
    )
    storage_options: dict[str, str] = Field(
        default={},
        repr=False,
        description="Options of fsspec for an object store, such as endpoint_url. Put secrets into "
        "the environment variable PAIMON_STORAGE_OPTIONS, a JSON object, or use dg.EnvVar.",
    )
    allow_stale_external: bool = Field(
        default=False,
        description="Change tables even if this leaves Iceberg metadata, a metastore or a callback "
        "of their options stale.",
    )
    allow_unknown_options: bool = Field(
        default=False,
        description="Change tables even if they have unknown options, for example from a newer "
        "Paimon release.",
    )

    def catalog(self) -> Catalog:
        """Return the catalog; this reads nothing."""
        options = (
            parse_storage_option(f"{name}={text}") for name, text in self.storage_options.items()
        )
        allowances = Allowances(
            stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
        )
        return Catalog(self.warehouse, allowances=allowances, **dict(options))

    def load_table(self, identifier: str) -> Table:
        """Return ``database.table``.

        Raises :class:`paimon_orch.errors.NotFoundError` if it does not exist.
        """
        return self.catalog().table(identifier)


class SparkSessionResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # as above
    """A Spark session that starts on first use and is stopped after the last step of the process.

    If the process already has an active session, that session is used unchanged and is not stopped.
    """

    master: str = Field(default="local[*]", description="Spark master; ignored if 'remote' is set.")
    remote: str | None = Field(
        default=None, repr=False, description="Spark Connect address, such as sc://spark:15002."
    )
    spark_config: dict[str, str] = Field(
        default={}, repr=False, description="Spark settings of a new session."
    )
    ship_package: bool = Field(
        default=False,
        description="Send paimon_orch to the workers of a new session. Its dependencies must be "
        "installed on the nodes.",
    )

    _started_session: "SparkSession | None" = PrivateAttr(default=None)

    def session(self) -> "SparkSession":
        """Return the active session of this process; start one if there is none."""
        from paimon_orch.spark import active_session, spark_session

        active = active_session()
        if active is not None:
            return active
        self._started_session = spark_session(
            self.master, self.remote, self.spark_config, ship_package=self.ship_package
        )
        return self._started_session

    def executor(self) -> Executor:
        """Return an executor that starts the session with the first unit of work."""
        return _LazySparkExecutor(self)

    def links(self) -> dict[str, str]:
        """Return the UI links and the ids of the active session."""
        if "pyspark" not in sys.modules:
            return {}
        from paimon_orch.spark import active_session
        from paimon_orch.spark.session.ui_links import find_ui_links

        active = active_session()
        return {} if active is None else find_ui_links(active)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002 - Dagster's signature
        """Stop the session if this resource started it."""
        if self._started_session is not None:
            from paimon_orch.spark import stop_session

            stop_session(self._started_session)
            self._started_session = None


class _LazySparkExecutor(ForwardingExecutor):
    """An executor that starts the session only if there are units."""

    def __init__(self, resource: SparkSessionResource) -> None:
        self._resource = resource

    def choose_executor(self, unit_count: int) -> Executor:
        """Return an executor on Spark if there are units."""
        if not unit_count:
            return InProcessExecutor()
        from paimon_orch.spark import SparkExecutor

        return SparkExecutor(self._resource.session())

"""Resources: the warehouse, and a Spark session with the executor of runs."""

import inspect
import sys
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import dagster as dg
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.catalog_fields import check_catalog_fields, merge_catalog_options
from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.signatures import with_parameters
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.executor_choice import ChoosingExecutor, ExecutorKind
from paimon_orch.table.table import Table

if TYPE_CHECKING:  # sensors and checks do not need Spark, so it is imported on first use
    from pyspark.sql import SparkSession


P = ParamSpec("P")
R = TypeVar("R")

EXECUTOR_HELP = (
    "Where work runs: local is processes of this machine, which need no Java; auto is Spark for "
    "more than 256 MB, or with a cluster, and otherwise local."
)
RUN_EXECUTOR_HELP = f"{EXECUTOR_HELP} The attribute of the resource applies unless this is set."
MAINTENANCE_EXECUTOR_HELP = (
    f"{RUN_EXECUTOR_HELP} Small work runs in the process of the run unless this is spark."
)


class ExecutorChoice(Enum):
    """Where the work of a run is done; the launchpad shows the names."""

    auto = "auto"
    local = "local"
    spark = "spark"


class PaimonCatalogResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # its parameter is for subclasses that yield
    """A catalog of Paimon tables: a configured one, a warehouse, or one with a metastore.

    >>> PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE"))
    >>> PaimonCatalogResource(catalog="prod")
    >>> PaimonCatalogResource(metastore="rest", uri="https://...", token=dg.EnvVar("TOKEN"))

    Raises :class:`paimon_orch.errors.InputError` if the fields contradict each other.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # the input may contain secrets

    catalog_name: str | None = Field(
        default=None,
        alias="catalog",
        description="Name of a configured catalog; see docs/how-to/named-catalogs.md.",
    )
    warehouse: str | None = Field(
        default=None,
        description="Location of the tables: a local path, a file: URI, or s3://bucket/path; of a "
        "REST catalog, the name of its warehouse.",
    )
    metastore: str | None = Field(
        default=None, description="Kind of the catalog: filesystem, rest, hive or jdbc."
    )
    uri: str | None = Field(
        default=None, repr=False, description="Address of the REST server, metastore or database."
    )
    token: str | None = Field(
        default=None,
        repr=False,
        description="Bearer token of a REST catalog. Use dg.EnvVar, because the UI shows other "
        "values.",
    )
    catalog_options: dict[str, str] = Field(
        default={},
        repr=False,
        description="Other options of the catalog. Use dg.EnvVar for secrets, because the UI shows "
        "other values.",
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

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        """Check which fields are set; their values may still be names of variables."""
        check_catalog_fields(
            name=self.catalog_name, warehouse=self.warehouse, options=self.list_options()
        )
        return self

    def list_options(self) -> dict[str, str]:
        """Return the options of the catalog except its warehouse."""
        return merge_catalog_options(
            {"metastore": self.metastore, "uri": self.uri, "token": self.token},
            self.catalog_options,
        )

    def catalog(self) -> Catalog:
        """Return the catalog; this reads no table."""
        return open_catalog(
            self.warehouse,
            name=self.catalog_name,
            catalog_options=self.list_options(),
            storage_options=self.storage_options,
            allowances=Allowances(
                stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
            ),
        )

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

    executor: ExecutorChoice = Field(default=ExecutorChoice.auto, description=EXECUTOR_HELP)

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

    def build_executor(self, choice: ExecutorChoice | None = None) -> Executor:
        """Return an executor that starts the session only for work that needs it.

        ``choice`` replaces the attribute ``executor``, except ``auto``.
        """
        if choice is None or choice is ExecutorChoice.auto:
            choice = self.executor
        return ChoosingExecutor(
            make_spark=self._make_spark_executor,
            kind=ExecutorKind(choice.value),
            has_master=self.cluster is not None and choice is not ExecutorChoice.local,
        )

    @property
    def cluster(self) -> str | None:
        """The address of a cluster, or None if Spark runs in this process."""
        address = self.remote or self.master
        return None if address.startswith("local") else address

    def _make_spark_executor(self) -> Executor:
        from paimon_orch.spark.frame_executor import SparkFrameExecutor

        return SparkFrameExecutor(self.session())

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


def get_catalog(context: Any, prefix: str) -> PaimonCatalogResource:
    """Return the resource ``paimon`` of a run or a tick, whose key begins with ``prefix``."""
    catalog: PaimonCatalogResource = getattr(context.resources, f"{prefix}paimon")
    return catalog


def get_spark(context: Any, prefix: str) -> SparkSessionResource:
    """Return the resource ``spark`` of a run, whose key begins with ``prefix``."""
    spark: SparkSessionResource = getattr(context.resources, f"{prefix}spark")
    return spark


def rename_catalog_parameter(prefix: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that puts a prefix before the parameter ``paimon`` of a sensor or schedule.

    Dagster takes the key of a resource from the name of a parameter. Sensors and schedules cannot
    use ``required_resource_keys``: in a direct call, Dagster passes these as arguments too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if not prefix:
            return function
        name = f"{prefix}paimon"
        signature = inspect.signature(function)
        parameters = [
            each.replace(name=name) if each.name == "paimon" else each
            for each in signature.parameters.values()
        ]

        def call(**values: Any) -> R:
            return function(**{"paimon": values.pop(name), **values})  # type: ignore[call-arg]

        return with_parameters(function, parameters, call, returns=signature.return_annotation)

    return decorate

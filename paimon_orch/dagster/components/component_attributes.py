"""Attributes in the YAML of the table and database components."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from pydantic import ConfigDict, Field, model_validator

from paimon_orch.catalog.catalog_fields import check_catalog_fields, merge_catalog_options
from paimon_orch.dagster.components.attribute_rules import Attributes, KeyRule, TextRule
from paimon_orch.dagster.components.compaction_attributes import CompactionAttributes
from paimon_orch.dagster.components.freshness_attributes import FreshnessAttributes
from paimon_orch.dagster.components.maintenance_attributes import (
    IcebergAttributes,
    OrphanFilesAttributes,
    PartitionExpirationAttributes,
    SnapshotExpirationAttributes,
    StepAttributes,
)
from paimon_orch.dagster.components.partition_attributes import PartitionsAttributes
from paimon_orch.dagster.components.translation import TRANSLATION_HELP, Translation
from paimon_orch.dagster.health_checks import Limit
from paimon_orch.dagster.names import pool_name
from paimon_orch.dagster.op_specs import DEFAULT_OP, MAX_PARTITIONS_PER_RUN, RunTags
from paimon_orch.dagster.remote_runs import CLIENTS, RunOn
from paimon_orch.dagster.resources import (
    EXECUTOR_HELP,
    ExecutorChoice,
    PaimonCatalogResource,
    SparkSessionResource,
)
from paimon_orch.dagster.run_config import STALE_EXTERNAL_HELP, UNKNOWN_OPTIONS_HELP
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.orchestration.health_limits import CHECK_NAMES
from paimon_orch.safe_text import mask_secrets

_YamlScalar = str | bool | int | float
"""The type of a scalar; Dagster converts a rendered template that looks like a number."""
_ENV_RULE = KeyRule("key", ("env",))
RUN_ON_RULE = TextRule(
    f"a client ({', '.join(CLIENTS)}), or an object with the key client",
    f"^({'|'.join(CLIENTS)})$",
    lambda _, value: RunOn.parse(value),
    "subprocess",
)


DEFAULT_CONDITION: dg.AutomationCondition[Any] = (
    dg.AutomationCondition.eager()
    .without(dg.AutomationCondition.in_latest_time_window())
    .with_label("table_updated")
)
"""Also compacts older time partitions, which late rows change; ``eager`` ignores these."""


class SparkAttributes(Attributes):
    """The Spark session: a master, or the Connect server ``remote``."""

    master: str = Field(default="local[*]", description="Spark master of a new session.")
    remote: str | None = Field(
        default=None,
        description="Address of a Spark Connect server to use instead, such as sc://host:15002.",
    )
    config: dict[str, _YamlScalar] = Field(
        default={}, description="Spark settings of a new session."
    )
    executor: Literal["auto", "local", "spark"] = Field(default="auto", description=EXECUTOR_HELP)
    ship_package: bool = Field(
        default=False,
        description="Send paimon_orch to the workers; its dependencies must be installed there.",
    )

    def build_resource(self) -> SparkSessionResource:
        """Return the resource; components with equal attributes share one."""
        values = self.model_dump() | {"config": _to_texts(self.config)}
        key = json.dumps(values, sort_keys=True)
        if key not in _sessions:
            _sessions[key] = SparkSessionResource(
                master=self.master,
                remote=self.remote,
                spark_config=values["config"],
                ship_package=self.ship_package,
                executor=ExecutorChoice(self.executor),
            )
        return _sessions[key]


class CatalogAttributes(Attributes):
    """The attributes that all components share: a catalog, and where work runs."""

    catalog: str | None = Field(
        default=None,
        description="Name of a configured catalog. Without catalog, warehouse and metastore, the "
        "project must define the resources paimon and spark.",
    )
    warehouse: str | None = Field(
        default=None,
        description="Location of the tables; of a REST catalog, the name of its warehouse.",
    )
    metastore: Literal["filesystem", "rest", "hive", "jdbc"] | None = Field(
        default=None, description="Kind of the catalog."
    )
    uri: str | None = Field(
        default=None,
        description="Address of the REST server, metastore or database. The UI shows it.",
    )
    token: Annotated[dict[str, str] | None, _ENV_RULE] = Field(
        default=None,
        description="Bearer token of a REST catalog: {env: NAME} is the value of an environment "
        "variable, which the UI does not show.",
    )
    catalog_options: dict[str, _YamlScalar | dict[str, str]] = Field(
        default={},
        description="Other options of the catalog. The UI shows them, except values of the form "
        "{env: NAME}.",
    )
    storage_options: dict[str, _YamlScalar] = Field(
        default={},
        description="Options of the object store. The UI shows them; put secrets into the "
        "environment variable PAIMON_STORAGE_OPTIONS.",
    )
    resource_prefix: str = Field(
        default="",
        pattern="^([A-Za-z_][A-Za-z0-9_]*)?$",
        description="What the names of the resources paimon and spark begin with. Components of "
        "different catalogs need different ones, such as eu_.",
    )
    spark: SparkAttributes = Field(
        default=SparkAttributes(),
        description="The Spark session, for all components of the catalog.",
    )

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        self.check()
        if self.has_catalog:
            self._list_catalog_options()
        return self

    def resources(self) -> dict[str, Any]:
        """Return the resources of the catalog, or no resources if the project defines them."""
        if not self.has_catalog:
            return {}
        prefix, stored = self.resource_prefix, self._list_catalog_options()
        storage_options = _to_texts(self.storage_options)
        key = json.dumps([self.catalog, self.warehouse, stored, storage_options], sort_keys=True)
        if key not in _catalogs:
            options = {
                name: dg.EnvVar(value["env"]) if isinstance(value, dict) else value
                for name, value in stored.items()
            }
            _catalogs[key] = PaimonCatalogResource(
                catalog=self.catalog,
                warehouse=self.warehouse,
                metastore=options.pop("metastore", None),
                uri=options.pop("uri", None),
                token=options.pop("token", None),
                catalog_options=options,
                storage_options=storage_options,
            )
        return {f"{prefix}paimon": _catalogs[key], f"{prefix}spark": self.spark.build_resource()}

    @property
    def has_catalog(self) -> bool:
        """Whether the component defines the resources."""
        named = self.catalog, self.warehouse, self.metastore, self.uri, self.token
        return any(value is not None for value in named) or bool(self.catalog_options)

    @property
    def catalog_key(self) -> str:
        """Return a text that identifies the catalog, without secrets."""
        if self.catalog is None and self.metastore is None:
            return str(self.warehouse)
        uri = None if self.uri is None else mask_secrets(self.uri)
        parts = self.catalog, self.metastore, uri, self.warehouse
        return ":".join(part for part in parts if part is not None)

    def _list_catalog_options(self) -> dict[str, str | dict[str, str]]:
        """Return the options of the catalog except its warehouse: text, or ``{env: NAME}``."""
        fields = {"metastore": self.metastore, "uri": self.uri, "token": self.token}
        options = merge_catalog_options(fields, self.catalog_options)
        check_catalog_fields(name=self.catalog, warehouse=self.warehouse, options=options)
        return {
            name: _check_variable(name, value) if isinstance(value, dict) else _to_text(value)
            for name, value in options.items()
        }


class TableAttributes(CatalogAttributes):
    """The attributes that the components of tables and databases share.

    With ``catalog``, ``warehouse`` or ``metastore``, the component defines the resources ``paimon``
    and ``spark`` and shares them with all components of that catalog; otherwise the project must
    define them. For ``external``
    tables, it also defines the asset of the table, which Dagster does not materialize; for other
    tables, the project must define the asset. ``running`` starts the sensor and the schedules.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)  # of automation_condition

    external: bool = Field(
        default=True,
        description="True if another engine writes the table. The component then also defines "
        "the table's asset.",
    )
    key_prefix: list[str] = Field(default=[], description="Prefix of the asset keys.")
    owners: list[str] = Field(default=[], description="Owners of the assets.")
    translation: Translation | None = Field(default=None, description=TRANSLATION_HELP)
    partitions: PartitionsAttributes | None = Field(
        default=None,
        description="Partitions of the assets. Without them, each run processes the whole table.",
    )
    trigger: Literal["sensor", "schedule", "automation", "none"] = Field(
        default="sensor",
        description="Source of compaction requests: a sensor after commits, a daily schedule, an "
        "automation condition of the compaction asset, or none.",
    )
    automation_condition: Annotated[
        dg.AutomationCondition[Any] | None, dg.Resolver.default(model_field_type=str | None)
    ] = Field(
        default=None,
        description="Condition of 'trigger: automation', such as "
        "{{ dg.AutomationCondition.on_cron('0 3 * * *') }}. Default: a partition is compacted when "
        "the table asset reports an update of it.",
    )
    sensor_interval_seconds: int = Field(
        default=30, ge=1, description="Minimum interval between ticks of the sensor."
    )
    running: bool = Field(
        default=False, description="Whether the sensor and the schedules are started by default."
    )
    compaction: CompactionAttributes = Field(
        default=CompactionAttributes(), description="Thresholds at which a partition is compacted."
    )
    max_partitions_per_run: int = Field(
        default=MAX_PARTITIONS_PER_RUN,
        ge=1,
        description="Maximum number of neighboring partitions in one run, and of partitions in "
        "one commit.",
    )
    file_index: bool = Field(
        default=False,
        description="Whether to define an asset that adds missing file indexes to existing files.",
    )
    freshness: FreshnessAttributes | None = Field(
        default=None,
        description="Freshness policy of the asset of an external table, based on the commits that "
        "the sensor reports.",
    )
    snapshot_expiration: SnapshotExpirationAttributes | None = Field(
        default=None, description="Policy of the job expire_snapshots; adds a schedule."
    )
    orphan_files: OrphanFilesAttributes | None = Field(
        default=None, description="Policy of the job remove_orphan_files; adds a schedule."
    )
    partition_expiration: PartitionExpirationAttributes | None = Field(
        default=None,
        description="Policy of the job expire_partitions; adds the job and a schedule.",
    )
    iceberg: IcebergAttributes | None = Field(
        default=None,
        description="Schedule of the job sync_iceberg, which publishes stale Iceberg metadata. "
        "For tables with the option metadata.iceberg.storage.",
    )
    steps: dict[str, StepAttributes] = Field(
        default={},
        description="Jobs of other declared steps by their names, such as analyze; those with a "
        "cron have a schedule.",
    )
    op: OpSpec | None = Field(
        default=None,
        description="Tags, description, pool and backfill policy of the ops of each table. A name "
        "is that of the op of the compaction, of a component of one table.",
    )
    run_tags: Annotated[
        RunTags | None,
        dg.Resolver.default(model_field_type=dict[str, str] | str | None),
    ] = Field(
        default=None,
        description="Tags of all runs that the component requests. For runs of compactions also a "
        "template with a function of what the run will do.",
    )
    run_on: Annotated[
        RunOn | str | None,
        dg.Resolver(
            lambda context, value: RunOn.parse(context.resolve_value(value)),
            model_field_type=str | dict[str, Any] | None,
        ),
        RUN_ON_RULE,
    ] = Field(
        default=None,
        description="Where compactions, rewrites of file indexes and jobs run, by a client of "
        "Dagster Pipes: subprocess, or an object with the key client (k8s, ecs, emr, "
        "emr_containers, emr_serverless, glue, databricks or dataproc) and the arguments of the "
        "client's run. Default: the process of the run.",
    )
    allow_stale_external: bool = Field(default=False, description=STALE_EXTERNAL_HELP)
    allow_unknown_options: bool = Field(default=False, description=UNKNOWN_OPTIONS_HELP)
    checks: Annotated[dict[str, Limit] | None, KeyRule("check", CHECK_NAMES)] = Field(
        default={}, description="Limits by check name; null disables the checks."
    )

    def freshness_policy(self) -> dg.FreshnessPolicy | None:
        """Return the policy of the asset.

        Raises :class:`InputError` if no sensor reports the commits of the table.
        """
        if self.freshness is None:
            return None
        if not self.external:
            raise InputError(
                "freshness requires 'external: true'; for a table that Dagster loads, set it on "
                "the asset: build_table_asset(..., freshness_policy=...)"
            )
        if self.trigger not in ("sensor", "automation"):
            raise InputError(
                "freshness requires 'trigger: sensor' or 'trigger: automation', since their sensor "
                "reports the commits of an external table"
            )
        return self.freshness.policy()

    def compaction_condition(self) -> dg.AutomationCondition[Any] | None:
        """Return the condition of the compaction asset, which is None for other triggers.

        Raises :class:`InputError` for a condition that another trigger would ignore.
        """
        if self.trigger == "automation":
            return self.automation_condition or DEFAULT_CONDITION
        if self.automation_condition is not None:
            raise InputError(
                f"automation_condition requires 'trigger: automation', but trigger is "
                f"{self.trigger!r}"
            )
        return None

    @property
    def allowances(self) -> Allowances:
        """The allowances of all runs."""
        return Allowances(
            stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
        )

    @property
    def compaction_op(self) -> OpSpec:
        """The op of the compaction asset."""
        return self.op or DEFAULT_OP

    @property
    def other_ops(self) -> OpSpec:
        """The other ops, which have the name that is the default, and no backfill policy."""
        return self.compaction_op.model_copy(update={"name": None, "backfill_policy": None})

    def partitions_def(self, table: str) -> dg.PartitionsDefinition[str] | None:
        """Return the partitions definition of a table's assets."""
        if self.partitions is None:
            return None
        name = pool_name(table, self.key_prefix)
        return self.partitions.build_partitions_def(name, include_current=self.external)


_catalogs: dict[str, PaimonCatalogResource] = {}
_sessions: dict[str, SparkSessionResource] = {}
"""The resources by the values that define them: Dagster only merges identical resources."""


def _to_texts(options: Mapping[str, _YamlScalar]) -> dict[str, str]:
    return {name: _to_text(value) for name, value in options.items()}


def _to_text(value: _YamlScalar) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check_variable(name: str, value: dict[str, str]) -> dict[str, str]:
    """Return ``{env: NAME}``."""
    if set(value) != {"env"} or not value["env"]:
        raise InputError(f"{name}: a mapping must be {{env: NAME}}, the name of a variable")
    return value

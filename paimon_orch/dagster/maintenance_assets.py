"""Factories of the compaction and file index assets of a table."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Generic, TypeVar

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from pydantic import Field

from paimon_orch.dagster.error_conversion import (
    RETRY_TRANSIENT,
    get_op_context,
    raise_dagster_errors,
)
from paimon_orch.dagster.health_checks import Limit, TableChecks
from paimon_orch.dagster.names import (
    TableAssetKind,
    check_table_name,
    compaction_asset_key,
    file_index_asset_key,
    group_name,
    pool_name,
    table_asset_key,
)
from paimon_orch.dagster.op_specs import DEFAULT_OP, get_backfill_policy
from paimon_orch.dagster.partitions_definitions import build_partition_keys
from paimon_orch.dagster.remote_runs import RemoteSteps, RunOn, list_resources
from paimon_orch.dagster.resources import (
    RUN_EXECUTOR_HELP,
    ExecutorChoice,
    SparkSessionResource,
    get_catalog,
    get_spark,
)
from paimon_orch.dagster.run_config import (
    AllowanceConfig,
    build_allowance_config,
    build_config_class,
)
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.dagster.spark_links import (
    build_executor,
    build_spark_link_metadata,
)
from paimon_orch.errors import (
    CancelledError,
    CorruptFileError,
    InputError,
    UnsupportedError,
)
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.orchestration.error_handling import may_succeed_again
from paimon_orch.orchestration.partition_keys import PartitionKeys
from paimon_orch.safe_text import escape_name, format_names
from paimon_orch.steps.common.executor import Executor
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

C = TypeVar("C", bound="AssetRunConfig")

MAX_PARTITIONS_PER_RUN = 8
_KIND_PREFIX = "dagster/kind/"
"""The prefix of the tags in which a spec keeps its kinds."""


class StrategyChoice(Enum):
    """The files that a compaction rewrites; the launchpad shows the names."""

    minor = "minor"
    full = "full"


class AssetRunConfig(AllowanceConfig):
    """Run config of the maintenance assets."""

    executor: ExecutorChoice = Field(
        default=ExecutorChoice.auto,
        description=RUN_EXECUTOR_HELP,
    )


class CompactionConfig(AssetRunConfig):
    """Run config of a compaction."""

    strategy: StrategyChoice = Field(
        default=StrategyChoice.minor,
        description="minor: compact what the table's options select. "
        "full: rewrite all files into the highest level.",
    )


class FileIndexConfig(AssetRunConfig):
    """Run config of a rewrite of file indexes."""


def build_compaction_spec(
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    owners: Sequence[str] = (),
) -> dg.AssetSpec:
    """Return the spec of the asset that :func:`build_compaction_asset` returns."""
    return _build_spec(
        table,
        key=compaction_asset_key(table, key_prefix),
        deps=[table_asset_key(table, key_prefix)],
        description=f"Compacts `{table}`: merges level-0 files into higher levels. With deletion "
        "vectors, files of higher levels are not rewritten; their outdated rows are marked as "
        "deleted. Small files of an append table are merged.",
        partitions_def=partitions_def,
        owners=owners,
    )


def build_file_index_spec(
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    deps: Iterable[dg.AssetDep | dg.AssetKey | dg.AssetSpec] | None = None,
    owners: Sequence[str] = (),
) -> dg.AssetSpec:
    """Return the spec of the asset that :func:`build_file_index_asset` returns."""
    return _build_spec(
        table,
        key=file_index_asset_key(table, key_prefix),
        deps=[compaction_asset_key(table, key_prefix)] if deps is None else deps,
        description=f"Adds file indexes to files of `{table}` that do not have all indexes of the "
        "table's options.",
        partitions_def=partitions_def,
        owners=owners,
    )


def _build_spec(table: str, **attributes: Any) -> dg.AssetSpec:
    check_table_name(table)
    return dg.AssetSpec(**build_shared_attributes(table), **attributes)


def build_compaction_asset(  # noqa: PLR0913 - keywords of a factory
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    owners: Sequence[str] = (),
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN,
    retry_policy: dg.RetryPolicy = RETRY_TRANSIENT,
    allowances: Allowances = NO_ALLOWANCES,
    checks: Mapping[str, Limit] | None = None,
    execute: "ExecuteFunction | None" = None,
    op: OpSpec = DEFAULT_OP,
    run_on: RunOn | str | None = None,
    spec: dg.AssetSpec | None = None,
    resource_prefix: str = "",
) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table, <table>_compaction]``.

    It is downstream of the asset of the table. A run compacts its partitions, or the whole table
    without ``partitions_def``. Each commit covers at most ``max_partitions_per_run`` partitions. If
    there are no files to compact, the run logs this and commits nothing. ``allowances`` are the
    defaults of the run config. With ``checks``, the limits of
    :func:`~paimon_orch.dagster.build_paimon_table_checks`, a run evaluates these checks of the
    table, except ``file_references``. ``execute`` replaces
    :func:`execute_asset_run`, which it may call. ``op`` has the name, tags, description, pool and
    backfill policy of the op, and ``spec`` replaces that of :func:`build_compaction_spec`.
    ``run_on`` is where the compaction runs; by default, in the process of the run. Runs require the
    resources ``paimon`` and ``spark``, whose names begin with ``resource_prefix``, for a project
    with several catalogs.
    """
    return _build_maintenance_asset(
        TableAssetKind.COMPACTION,
        table,
        spec
        or build_compaction_spec(
            table, partitions_def=partitions_def, key_prefix=key_prefix, owners=owners
        ),
        _RunOptions(
            max_partitions_per_run=max_partitions_per_run,
            retry_policy=retry_policy,
            allowances=allowances,
            checks=None if checks is None else TableChecks.of(table, checks, key_prefix),
            execute=execute or execute_asset_run,
            op=op,
            run_on=RunOn.parse(run_on),
            resource_prefix=resource_prefix,
        ),
        config_class=CompactionConfig,
    )


def build_file_index_asset(  # noqa: PLR0913 - keywords of a factory
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    deps: Iterable[dg.AssetDep | dg.AssetKey | dg.AssetSpec] | None = None,
    owners: Sequence[str] = (),
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN,
    retry_policy: dg.RetryPolicy = RETRY_TRANSIENT,
    allowances: Allowances = NO_ALLOWANCES,
    checks: Mapping[str, Limit] | None = None,
    execute: "ExecuteFunction | None" = None,
    op: OpSpec = DEFAULT_OP,
    run_on: RunOn | str | None = None,
    spec: dg.AssetSpec | None = None,
    resource_prefix: str = "",
) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table, <table>_file_index]``.

    It is downstream of the compaction unless ``deps`` are given. A run adds the indexes that the
    table's options configure to the files of its partitions, or of the whole table without
    ``partitions_def``. If all files have these indexes, the run commits nothing. ``allowances`` are
    the defaults of the run config; ``checks``, ``execute``, ``op``, ``run_on``, ``spec`` and
    ``resource_prefix`` are those of :func:`build_compaction_asset`. Runs require the resources
    ``paimon`` and ``spark``.
    """
    return _build_maintenance_asset(
        TableAssetKind.FILE_INDEX,
        table,
        spec
        or build_file_index_spec(
            table, partitions_def=partitions_def, key_prefix=key_prefix, deps=deps, owners=owners
        ),
        _RunOptions(
            max_partitions_per_run=max_partitions_per_run,
            retry_policy=retry_policy,
            allowances=allowances,
            checks=None if checks is None else TableChecks.of(table, checks, key_prefix),
            execute=execute or execute_asset_run,
            op=op,
            run_on=RunOn.parse(run_on),
            resource_prefix=resource_prefix,
        ),
        config_class=FileIndexConfig,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceAssetRun(Generic[C]):
    """A run of the compaction or the file index asset of a table."""

    kind: TableAssetKind
    context: dg.AssetExecutionContext
    config: C
    """The run config; a copy of the run may have another one."""
    table: Table
    state: TableState
    """The table when the run, or the group of partitions, started."""
    spark: SparkSessionResource
    partitions_def: dg.PartitionsDefinition[str] | None
    max_partitions_per_commit: int
    checks: TableChecks | None
    max_retries: int
    """How often a run is retried after an error that another attempt may fix."""
    work: "Work[C]"
    remote: RemoteSteps | None = None
    """Runs the steps in another process; by default, this process runs them."""

    def execute(self) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        """Process the partitions of the run, evaluate the checks, and return the result.

        The checks are also evaluated if the run fails, unless it will be retried.
        """
        with _evaluating_after_failure(self.context, self.checks, self.table, self.max_retries):
            metadata = _run_in_groups(self)
        _evaluate_checks(self.context, self.checks, self.table)
        return dg.MaterializeResult(metadata=metadata)

    def refresh(self) -> "MaintenanceAssetRun[C]":
        """Return the run with the present state of the table, for its next group of partitions."""
        return replace(self, state=self.state.refresh())

    @property
    def executor(self) -> Executor:
        """The executor of the run's work units."""
        return build_executor(self.context, self.spark, self.config.executor)

    def get_partition_keys(self, keys: Sequence[str]) -> PartitionKeys | None:
        """Return the converter of partition keys, or None if the asset has no partition keys."""
        return build_partition_keys(self.state.schema, self.partitions_def) if keys else None


def _evaluate_checks(
    context: dg.AssetExecutionContext,
    checks: TableChecks | None,
    table: Table,
    failure: Exception | None = None,
) -> None:
    if checks is not None:
        for evaluation in checks.build_evaluations(table, context.log, context.instance, failure):
            context.log_event(evaluation)


@contextmanager
def _evaluating_after_failure(
    context: dg.AssetExecutionContext, checks: TableChecks | None, table: Table, max_retries: int
) -> Iterator[None]:
    """Evaluate the checks after an error that is not retried and is no termination."""
    try:
        yield
    except CancelledError:
        raise
    except Exception as error:
        is_last = get_op_context(context).retry_number >= max_retries
        if is_last or not may_succeed_again(error):
            _evaluate_checks(context, checks, table, error)
        raise


ExecuteFunction = Callable[
    [dg.AssetExecutionContext, MaintenanceAssetRun[Any]],
    Iterable[dg.MaterializeResult],  # type: ignore[type-arg]  # as above
]
"""Executes a run of a maintenance asset, and yields its result."""


def execute_asset_run(
    context: dg.AssetExecutionContext,  # noqa: ARG001 - for functions that replace this one
    run: MaintenanceAssetRun[Any],
) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # as above
    """Process the partitions of the run; the default of the factories."""
    yield run.execute()


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunOptions:
    """How the runs of a maintenance asset are executed."""

    max_partitions_per_run: int
    retry_policy: dg.RetryPolicy
    allowances: Allowances
    checks: TableChecks | None
    execute: ExecuteFunction
    op: OpSpec
    run_on: RunOn | None
    resource_prefix: str


Work = Callable[[MaintenanceAssetRun[C], Sequence[str]], dict[str, Metadata]]
"""Processes the partitions with the given keys, or the whole table if there are no keys.

Returns metadata by partition key; the key of the whole table is empty.
"""


def _build_maintenance_asset(
    kind: TableAssetKind,
    table: str,
    spec: dg.AssetSpec,
    options: _RunOptions,
    *,
    config_class: type[C],
) -> dg.AssetsDefinition:
    """Return an asset whose runs process groups of partitions of an existing table."""
    run_config_class = _get_run_config(config_class, options.allowances)

    @asset_decorator(
        table,
        spec,
        options.op,
        options.max_partitions_per_run,
        config=run_config_class,
        resources=list_resources(options.run_on, options.resource_prefix),
    )
    def maintenance_asset(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # there is no value
        from paimon_orch.dagster.asset_work import WORK  # definitions load without the steps

        run_config = run_config_class(**context.op_execution_context.op_config)
        with raise_dagster_errors(table, context, options.retry_policy):
            prefix = options.resource_prefix
            paimon, spark = get_catalog(context, prefix), get_spark(context, prefix)
            opened = run_config.load_table(paimon, table)
            max_retries = options.retry_policy.max_retries
            with _evaluating_after_failure(context, options.checks, opened, max_retries):
                state = opened.load()
            run = MaintenanceAssetRun(
                kind=kind,
                context=context,
                config=run_config,
                table=opened,
                state=state,
                spark=spark,
                partitions_def=spec.partitions_def,
                max_partitions_per_commit=options.max_partitions_per_run,
                checks=options.checks,
                max_retries=max_retries,
                work=WORK[kind],
                remote=RemoteSteps.of(options.run_on, context, paimon, spark),
            )
            yield from options.execute(context, run)

    return maintenance_asset


@cache
def _get_run_config(config_class: type[C], allowances: Allowances) -> type[C]:
    """Return the class of the run config with these defaults."""
    return build_config_class(config_class, build_allowance_config(allowances))


@cache
def _get_config_schema(config_class: type[dg.Config]) -> Any:
    """Return a schema for the assets of all tables; Dagster takes milliseconds to derive it."""
    return config_class.to_config_schema()


def _run_in_groups(run: MaintenanceAssetRun[C]) -> Metadata:
    """Process the partitions of the run in groups, so that a failure loses at most one group.

    Returns the metadata of the whole table; the metadata of partitions is added to the run. If a
    partition cannot be processed, the other partitions of its group are processed one by one, and
    the run fails after the last group.
    """
    if run.partitions_def is None:
        [metadata] = run.work(run, ()).values()
        return metadata | build_spark_link_metadata(run.spark)
    keys, group_size = run.context.partition_keys, run.max_partitions_per_commit
    metadata_by_key, errors = dict[str, Metadata](), list[Exception]()
    for start in range(0, len(keys), group_size):
        group = keys[start : start + group_size]
        run = run.refresh() if start else run
        try:
            metadata_by_key |= run.work(run, group)
        except _PARTITION_ERRORS as error:
            run.context.log.warning("%s: %s: %s", run.table.identifier, format_names(group), error)
            is_single = len(group) == 1
            errors += [error] if is_single else _process_separately(run, group, metadata_by_key)
    if errors:
        _report_processed_partitions(run, metadata_by_key)
        raise errors[0]
    # Metadata of the run would precede the summary of each partition.
    links = build_spark_link_metadata(run.spark)
    for key, metadata in metadata_by_key.items():
        run.context.add_asset_metadata(metadata | links, partition_key=key)
    return {}


_PARTITION_ERRORS = (CorruptFileError, InputError, UnsupportedError)
"""Errors that the files of one partition can cause, and that a retry cannot fix."""


def _process_separately(
    run: MaintenanceAssetRun[C], keys: Sequence[str], metadata_by_key: dict[str, Metadata]
) -> list[Exception]:
    """Process partitions one by one, add their metadata, and return the errors."""
    errors = list[Exception]()
    for key in keys:
        run = run.refresh()
        try:
            metadata_by_key |= run.work(run, [key])
        except _PARTITION_ERRORS as error:
            run.context.log.warning("%s: %s: %s", run.table.identifier, escape_name(key), error)
            errors.append(error)
    return errors


def _report_processed_partitions(
    run: MaintenanceAssetRun[C], metadata_by_key: Mapping[str, Metadata]
) -> None:
    """Record the partitions that a failing run has processed; a failed step has no result."""
    for key, metadata in metadata_by_key.items():
        run.context.log_event(
            dg.AssetMaterialization(run.context.asset_key, partition=key, metadata=metadata)
        )


def build_shared_attributes(table: str) -> dict[str, Any]:
    """Return the attributes that the specs of all assets of a table share."""
    return {
        "group_name": group_name(table),
        "kinds": {"paimon", "spark"},
        "code_version": "1",
        "metadata": {"dagster/table_name": table, "dagster/storage_kind": "paimon"},
    }


def asset_decorator(
    table: str,
    spec: dg.AssetSpec,
    op: OpSpec = DEFAULT_OP,
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN,
    config: type[dg.Config] | None = None,
    resources: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return the decorator of the function that computes an asset of a table."""
    check_table_name(table)
    policy = get_backfill_policy(op, max_partitions_per_run)
    arguments: dict[str, Any] = {
        "op_tags": op.tags,
        "pool": op.pool or pool_name(table),
        "required_resource_keys": set(resources) or None,
        "backfill_policy": None if spec.partitions_def is None else policy,
    }
    with warnings.catch_warnings():
        # backfill_policy is a beta feature; users of these definitions cannot act on the warning.
        warnings.simplefilter("ignore", dg.BetaWarning)
        if op.name is not None:
            return dg.multi_asset(
                name=op.name,
                specs=[spec],
                description=op.description,
                config_schema=None if config is None else config.to_fields_dict(),
                **arguments,
            )
        # It accepts a schema that all tables share, and has the name of the asset.
        decorator: Callable[..., dg.AssetsDefinition] = dg.asset(
            key=spec.key,
            deps=spec.deps,
            description=spec.description,
            owners=spec.owners,
            group_name=spec.group_name,
            kinds=spec.kinds,
            tags={k: v for k, v in spec.tags.items() if not k.startswith(_KIND_PREFIX)},
            metadata=spec.metadata,
            code_version=spec.code_version,
            automation_condition=spec.automation_condition,
            freshness_policy=spec.freshness_policy,
            partitions_def=spec.partitions_def,
            config_schema=None if config is None else _get_config_schema(config),
            **{k: v for k, v in arguments.items() if v is not None},
        )
        return decorator

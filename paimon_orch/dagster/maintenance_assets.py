"""Factories of the compaction and file index assets of a table."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import dagster as dg
from dagster.components.resolved.core_models import OpSpec

from paimon_orch.dagster.asset_runs.asset_run import (
    AssetRunConfig,
    CompactionConfig,
    ExecuteFunction,
    FileIndexConfig,
    MaintenanceAssetRun,
    evaluating_after_failure,
    execute_asset_run,
)
from paimon_orch.dagster.error_conversion import RETRY_TRANSIENT, raise_dagster_errors
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
from paimon_orch.dagster.op_specs import (
    DEFAULT_OP,
    MAX_PARTITIONS_PER_RUN,
    PartitionedSettings,
    get_backfill_policy,
    take_settings,
)
from paimon_orch.dagster.remote_runs import RemoteSteps, RunOn, list_resources
from paimon_orch.dagster.resources import get_catalog, get_spark
from paimon_orch.dagster.run_config import build_allowance_config, build_config_class
from paimon_orch.format.options.blocking_options import Allowances

C = TypeVar("C", bound=AssetRunConfig)

_KIND_PREFIX = "dagster/kind/"
"""The prefix of the tags in which a spec keeps its kinds."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetSettings(PartitionedSettings):
    """A maintenance asset of a table, and how its runs are executed."""

    owners: Sequence[str] = ()
    retry_policy: dg.RetryPolicy = RETRY_TRANSIENT
    checks: Mapping[str, Limit] | None = None
    execute: ExecuteFunction | None = None
    run_on: RunOn | str | None = None
    spec: dg.AssetSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexAssetSettings(AssetSettings):
    """The file index asset of a table."""

    deps: Iterable[dg.AssetDep | dg.AssetKey | dg.AssetSpec] | None = None


@take_settings(AssetSettings)
def build_compaction_asset(settings: AssetSettings) -> dg.AssetsDefinition:
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
    spec = settings.spec or build_compaction_spec(
        settings.table,
        partitions_def=settings.partitions_def,
        key_prefix=settings.key_prefix,
        owners=settings.owners,
    )
    return _build_maintenance_asset(
        TableAssetKind.COMPACTION, spec, settings, config_class=CompactionConfig
    )


@take_settings(FileIndexAssetSettings)
def build_file_index_asset(settings: FileIndexAssetSettings) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table, <table>_file_index]``.

    It is downstream of the compaction unless ``deps`` are given. A run adds the indexes that the
    table's options configure to the files of its partitions, or of the whole table without
    ``partitions_def``. If all files have these indexes, the run commits nothing. ``allowances`` are
    the defaults of the run config; ``checks``, ``execute``, ``op``, ``run_on``, ``spec`` and
    ``resource_prefix`` are those of :func:`build_compaction_asset`. Runs require the resources
    ``paimon`` and ``spark``.
    """
    spec = settings.spec or build_file_index_spec(
        settings.table,
        partitions_def=settings.partitions_def,
        key_prefix=settings.key_prefix,
        deps=settings.deps,
        owners=settings.owners,
    )
    return _build_maintenance_asset(
        TableAssetKind.FILE_INDEX, spec, settings, config_class=FileIndexConfig
    )


def _build_maintenance_asset(
    kind: TableAssetKind, spec: dg.AssetSpec, settings: AssetSettings, *, config_class: type[C]
) -> dg.AssetsDefinition:
    """Return an asset whose runs process groups of partitions of an existing table."""
    run_config_class = _get_run_config(config_class, settings.allowances)
    table, place = settings.table, RunOn.parse(settings.run_on)
    checks = settings.checks
    table_checks = None if checks is None else TableChecks.of(table, checks, settings.key_prefix)

    @asset_decorator(
        table,
        spec,
        settings.key_prefix,
        settings.op,
        settings.max_partitions_per_run,
        config=run_config_class,
        resources=list_resources(place, settings.resource_prefix),
    )
    def maintenance_asset(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # there is no value
        from paimon_orch.dagster.asset_runs.asset_work import (
            WORK,  # definitions load without the steps
        )

        run_config = run_config_class(**context.op_execution_context.op_config)
        with raise_dagster_errors(table, context, settings.retry_policy):
            prefix = settings.resource_prefix
            paimon, spark = get_catalog(context, prefix), get_spark(context, prefix)
            opened = run_config.load_table(paimon, table)
            max_retries = settings.retry_policy.max_retries
            with evaluating_after_failure(context, table_checks, opened, max_retries):
                state = opened.load()
            run = MaintenanceAssetRun(
                kind=kind,
                context=context,
                config=run_config,
                table=opened,
                state=state,
                spark=spark,
                partitions_def=spec.partitions_def,
                max_partitions_per_commit=settings.max_partitions_per_run,
                checks=table_checks,
                max_retries=max_retries,
                work=WORK[kind],
                remote=RemoteSteps.of(place, context, paimon, spark),
            )
            yield from (settings.execute or execute_asset_run)(context, run)

    return maintenance_asset


@cache
def _get_run_config(config_class: type[C], allowances: Allowances) -> type[C]:
    """Return the class of the run config with these defaults."""
    return build_config_class(config_class, build_allowance_config(allowances))


@cache
def _get_config_schema(config_class: type[dg.Config]) -> Any:
    """Return a schema for the assets of all tables; Dagster takes milliseconds to derive it."""
    return config_class.to_config_schema()


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
    key_prefix: Sequence[str],
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
        "pool": op.pool or pool_name(table, key_prefix),
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

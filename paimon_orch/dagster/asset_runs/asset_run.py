"""A run of the compaction or the file index asset: its partitions in groups, and its checks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar, get_args

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.error_conversion import get_op_context
from paimon_orch.dagster.health_checks import TableChecks
from paimon_orch.dagster.names import TableAssetKind
from paimon_orch.dagster.partitions_definitions import build_partition_keys
from paimon_orch.dagster.remote_runs import RemoteSteps
from paimon_orch.dagster.resources import RUN_EXECUTOR_HELP, ExecutorChoice, SparkSessionResource
from paimon_orch.dagster.run_config import AllowanceConfig
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.dagster.spark_links import build_executor, build_spark_link_metadata
from paimon_orch.errors import CancelledError, CorruptFileError, InputError, UnsupportedError
from paimon_orch.orchestration.error_handling import may_succeed_again
from paimon_orch.orchestration.partition_keys import PartitionKeys
from paimon_orch.safe_text import escape_name, format_names
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

C = TypeVar("C", bound="AssetRunConfig")


StrategyChoice = Enum(  # type: ignore[misc]  # mypy wants literal members
    "StrategyChoice", {name: name for name in get_args(CompactionStrategy)}
)
"""The files that a compaction rewrites; the launchpad shows the names."""


class AssetRunConfig(AllowanceConfig):
    """Run config of the maintenance assets."""

    executor: ExecutorChoice = Field(
        default=ExecutorChoice.auto,
        description=RUN_EXECUTOR_HELP,
    )


class CompactionConfig(AssetRunConfig):
    """Run config of a compaction."""

    strategy: StrategyChoice = Field(
        default=StrategyChoice("minor"),
        description="minor: compact what the table's options select. "
        "full: rewrite all files into the highest level.",
    )


class FileIndexConfig(AssetRunConfig):
    """Run config of a rewrite of file indexes."""


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
        with evaluating_after_failure(self.context, self.checks, self.table, self.max_retries):
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
def evaluating_after_failure(
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


Work = Callable[[MaintenanceAssetRun[C], Sequence[str]], dict[str, Metadata]]
"""Processes the partitions with the given keys, or the whole table if there are no keys.

Returns metadata by partition key; the key of the whole table is empty.
"""


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

"""Run requests for compactions, and requests that synchronize dynamic partitions with the table."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import dagster as dg

from paimon_orch.dagster.names import TABLE_TAG, compaction_asset_key, pool_name, table_label
from paimon_orch.dagster.op_specs import RequestSettings, build_run_tags
from paimon_orch.dagster.partition_groups import group_partition_keys
from paimon_orch.dagster.partitions_definitions import (
    DynamicPartitionsRequest,
    PartitionsDef,
    build_partition_keys,
    find_dynamic_definitions,
    list_dimensions,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.orchestration.partition_keys import DIMENSION_SEPARATOR
from paimon_orch.orchestration.planned_runs import PlannedRun, plan_partition_runs
from paimon_orch.safe_text import clean_line, format_names
from paimon_orch.steps.compaction.policy import CompactionDecision
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_RANGE_START_TAG = "dagster/asset_partition_range_start"
_RANGE_END_TAG = "dagster/asset_partition_range_end"


@dataclass(frozen=True, slots=True)
class CompactionTarget:
    """The compaction asset of a table, in one evaluation of a sensor or schedule."""

    settings: RequestSettings
    """The settings of the definition that is evaluated."""
    table: Table
    state: TableState
    evaluation_context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext

    @property
    def partitions_def(self) -> PartitionsDef | None:
        """The partitions of the asset."""
        return self.settings.partitions_def

    @property
    def pool(self) -> str:
        """The pool of the runs."""
        settings = self.settings
        return settings.op.pool or pool_name(self.table.identifier, settings.key_prefix)

    @property
    def can_compact_fully(self) -> bool:
        """Whether runs compact single partitions, so that one of them can be rewritten fully."""
        return self.partitions_def is not None or not self.state.schema.partition_keys

    def plan_runs(
        self,
        decisions: Sequence[CompactionDecision],
        partitions_requests: Sequence[DynamicPartitionsRequest] = (),
    ) -> list[PlannedRun]:
        """Return the runs for decisions to compact; for an asset without partitions, one run.

        A run has at most ``max_partitions_per_run`` partitions, which are neighbors in the order of
        the definition and have the same strategy. ``partitions_requests`` are the changes of the
        definition before the runs start. Logs the paths that have no partition key.
        """
        if self.partitions_def is None:
            return [PlannedRun((), tuple(decisions))] if decisions else []
        instance = self.evaluation_context.instance
        dimensions = list_dimensions(self.partitions_def, instance, partitions_requests)
        paths = [decision.partition for decision in decisions]
        keys = self._find_partition_keys(paths, self.partitions_def, dimensions)
        return plan_partition_runs(
            decisions,
            keys,
            lambda keys: group_partition_keys(
                keys, dimensions, self.settings.max_partitions_per_run
            ),
        )

    def find_partition_keys(
        self, paths: Collection[str], partitions_requests: Sequence[DynamicPartitionsRequest]
    ) -> dict[str, str]:
        """Return the partition key of each path that has one, and log the other paths.

        ``partitions_requests`` are applied to the definition first.
        """
        assert self.partitions_def is not None
        instance = self.evaluation_context.instance
        dimensions = list_dimensions(self.partitions_def, instance, partitions_requests)
        return self._find_partition_keys(paths, self.partitions_def, dimensions)

    def _find_partition_keys(
        self,
        paths: Collection[str],
        partitions_def: PartitionsDef,
        dimensions: Sequence[Sequence[str]],
    ) -> dict[str, str]:
        keys = build_partition_keys(self.state.schema, partitions_def).find_keys(paths, dimensions)
        if unknown := [path for path in paths if path not in keys]:
            self.evaluation_context.log.warning(
                "%s: the asset has no partition for %s",
                self.table.identifier,
                format_names(unknown),
            )
        return keys

    def build_run_request(self, run: PlannedRun, run_key: str) -> dg.RunRequest:
        """Return the request of a run.

        The decisions set the strategy, and their reasons become a tag. The tags are few, because
        the page of runs shows all of them; the run's log has the snapshot.
        """
        decision = run.decision
        tags = build_run_tags(self.settings.run_tags, run)
        tags |= {
            TABLE_TAG: table_label(self.table.identifier, self.settings.key_prefix),
            "paimon/reason": clean_line(decision.reason),
        }
        if len(run.keys) > 1:
            tags |= {_RANGE_START_TAG: run.keys[0], _RANGE_END_TAG: run.keys[-1]}
        key = compaction_asset_key(self.table.identifier, self.settings.key_prefix)
        op = self.settings.op.name or key.to_python_identifier()
        config = {"ops": {op: {"config": {"strategy": decision.strategy}}}}
        return dg.RunRequest(
            run_key,
            config if decision.strategy != "minor" else None,
            tags,
            partition_key=run.keys[0] if len(run.keys) == 1 else None,
            asset_selection=[key],  # the page of runs shows it as the target
        )

    def build_partitions_requests(
        self, present: Collection[str], touched: Collection[str] | None
    ) -> list[DynamicPartitionsRequest]:
        """Return requests that make dynamic partitions those of the table.

        See :func:`build_partitions_requests`.
        """
        if self.partitions_def is None:
            return []
        return build_partitions_requests(
            self.state.schema,
            self.partitions_def,
            self.evaluation_context.instance,
            present=present,
            touched=touched,
        )


def build_partitions_requests(
    schema: TableSchema,
    partitions_def: PartitionsDef,
    instance: dg.DagsterInstance,
    *,
    present: Collection[str],
    touched: Collection[str] | None,
) -> list[DynamicPartitionsRequest]:
    """Return requests that add and delete dynamic partitions to match the table.

    ``present`` are the paths of the partitions that have files. Other partitions are deleted
    only if they are in ``touched``, because users may have added partitions before their first
    rows. If ``touched`` is None, all other partitions and also the unused values of dynamic
    dimensions are deleted. New keys are sorted, since Dagster keeps the order of additions.
    """
    partition_keys = build_partition_keys(schema, partitions_def)
    present_keys = partition_keys.keys_of(present)
    lost_keys = None if touched is None else partition_keys.keys_of(touched) - present_keys
    is_multi = isinstance(partitions_def, dg.MultiPartitionsDefinition)
    requests = list[DynamicPartitionsRequest]()
    for index, definition in find_dynamic_definitions(partitions_def):
        values = (
            {key.split(DIMENSION_SEPARATOR)[index] for key in present_keys}
            if is_multi
            else present_keys
        )
        existing = set(definition.get_partition_keys(dynamic_partitions_store=instance))
        if lost_keys is None:
            outdated = existing - values
        else:
            outdated = set() if is_multi else existing & lost_keys
        if new := values - existing:
            requests.append(definition.build_add_request(sorted(new)))
        if outdated:
            requests.append(definition.build_delete_request(sorted(outdated)))
    return requests


def limit_pools(instance: dg.DagsterInstance, pools: Collection[str]) -> None:
    """Give pools the default limit of the instance, if they are new.

    Dagster 1.13 does this when it starts the first runs of a pool. With ``granularity: run``, it
    starts all of them together.
    """
    storage = instance.event_log_storage
    if (
        not pools
        or not instance.global_op_concurrency_default_limit
        or not storage.supports_global_concurrency_limits
    ):
        return
    existing = storage.get_concurrency_keys()  # a user may have set other limits
    for pool in pools:
        if pool not in existing:
            storage.initialize_concurrency_limit_to_default(pool)

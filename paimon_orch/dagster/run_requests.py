"""Run requests for compactions, and requests that synchronize dynamic partitions with the table."""

import hashlib
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import dagster as dg

from paimon_orch.dagster.names import COMPACTION, TABLE_TAG, compaction_asset_key, pool_name
from paimon_orch.dagster.partitions import (
    DIMENSION_SEPARATOR,
    PartitionKeys,
    group_partition_keys,
)
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.safe_text import clean_line, format_names
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionMetrics
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

DynamicPartitionsRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest
PartitionsDef = dg.PartitionsDefinition[str]

_RANGE_START_TAG = "dagster/asset_partition_range_start"
_RANGE_END_TAG = "dagster/asset_partition_range_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTarget:
    """The compaction asset of a table, in one evaluation of a sensor or schedule."""

    table: Table
    state: TableState
    partitions_def: PartitionsDef | None
    key_prefix: Sequence[str]
    max_partitions_per_run: int
    evaluation_context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext

    @property
    def can_compact_fully(self) -> bool:
        """Whether runs compact single partitions, so that one of them can be rewritten fully."""
        return self.partitions_def is not None or not self.state.schema.partition_keys

    def find_refusal(self) -> str:
        """Return why the table's options forbid compaction, or an empty string if they allow it."""
        try:
            self.state.check_step(StepKind.COMPACT)
        except UnsupportedError as error:
            return str(error)
        return ""

    def plan_runs(
        self,
        decisions: Sequence[CompactionDecision],
        partitions_requests: Sequence[DynamicPartitionsRequest] = (),
    ) -> list["PlannedRun"]:
        """Return the runs for decisions to compact; for an asset without partitions, one run.

        A run has at most ``max_partitions_per_run`` partitions, which are neighbors in the order of
        the definition and have the same strategy. ``partitions_requests`` are the changes of the
        definition before the runs start. Logs the paths that have no partition key.
        """
        if self.partitions_def is None:
            return [PlannedRun((), tuple(decisions))] if decisions else []
        dimensions = self._list_dimensions(self.partitions_def, partitions_requests)
        paths = [decision.partition for decision in decisions]
        keys = self._find_partition_keys(paths, self.partitions_def, dimensions)
        decisions_by_key = {
            keys[decision.partition]: decision
            for decision in decisions
            if decision.partition in keys
        }
        runs = list[PlannedRun]()
        for strategy in dict.fromkeys(d.strategy for d in decisions_by_key.values()):
            chosen = [key for key, d in decisions_by_key.items() if d.strategy == strategy]
            groups = group_partition_keys(chosen, dimensions, self.max_partitions_per_run)
            runs += [
                PlannedRun(group, tuple(decisions_by_key[key] for key in group)) for group in groups
            ]
        return runs

    def find_partition_keys(
        self, paths: Collection[str], partitions_requests: Sequence[DynamicPartitionsRequest]
    ) -> dict[str, str]:
        """Return the partition key of each path that has one, and log the other paths.

        ``partitions_requests`` are applied to the definition first.
        """
        assert self.partitions_def is not None
        dimensions = self._list_dimensions(self.partitions_def, partitions_requests)
        return self._find_partition_keys(paths, self.partitions_def, dimensions)

    def _list_dimensions(
        self, partitions_def: PartitionsDef, requests: Sequence[DynamicPartitionsRequest]
    ) -> list[list[str]]:
        return _list_dimensions(partitions_def, self.evaluation_context.instance, requests)

    def _find_partition_keys(
        self,
        paths: Collection[str],
        partitions_def: PartitionsDef,
        dimensions: Sequence[Sequence[str]],
    ) -> dict[str, str]:
        partition_keys = PartitionKeys.of(self.state.schema, partitions_def)
        values = [set(dimension) for dimension in dimensions]
        candidates = {path: _find_key(partition_keys, path) for path in paths}
        keys = {
            path: key
            for path, key in candidates.items()
            if key is not None and _has_key(values, key)
        }
        if partition_keys.multi_spelling_fields and len(keys) < len(paths):
            all_keys = (DIMENSION_SEPARATOR.join(parts) for parts in product(*dimensions))
            keys_by_path = {_find_path(partition_keys, key): key for key in all_keys}
            keys |= {path: keys_by_path[path] for path in paths if path in keys_by_path}
        if unknown := [path for path in paths if path not in keys]:
            self.evaluation_context.log.warning(
                "%s: the asset has no partition for %s",
                self.table.identifier,
                format_names(unknown),
            )
        return keys

    def build_run_request(self, run: "PlannedRun", run_key: str) -> dg.RunRequest:
        """Return the request of a run.

        The decisions set the strategy, and their reasons become a tag. The tags are few, because
        the page of runs shows all of them; the run's log has the snapshot.
        """
        decision = run.decisions[0] if len(run.keys) == 1 else _merge_decisions(run.decisions)
        tags = {TABLE_TAG: self.table.identifier, "paimon/reason": clean_line(decision.reason)}
        if len(run.keys) > 1:
            tags |= {_RANGE_START_TAG: run.keys[0], _RANGE_END_TAG: run.keys[-1]}
        key = compaction_asset_key(self.table.identifier, self.key_prefix)
        config = {"ops": {key.to_python_identifier(): {"config": {"strategy": decision.strategy}}}}
        return dg.RunRequest(
            run_key,
            config if decision.strategy != "minor" else None,
            tags,
            partition_key=run.keys[0] if len(run.keys) == 1 else None,
            asset_selection=[key],  # the page of runs shows it as the target
        )

    def limit_pool(self) -> None:
        """Give the table's pool the default limit of the instance, if the pool is new.

        Dagster 1.13 does this when it starts the first runs of a pool. With ``granularity: run``,
        it starts all of them together.
        """
        instance, pool = self.evaluation_context.instance, pool_name(self.table.identifier)
        storage = instance.event_log_storage
        if (
            instance.global_op_concurrency_default_limit
            and storage.supports_global_concurrency_limits
            and pool not in storage.get_concurrency_keys()  # a user may have set another limit
        ):
            storage.initialize_concurrency_limit_to_default(pool)

    def build_partitions_requests(
        self, present: Collection[str], touched: Collection[str] | None
    ) -> list[DynamicPartitionsRequest]:
        """Return requests that add and delete dynamic partitions to match the table.

        ``present`` are the paths of the partitions that have files. Other partitions are deleted
        only if they are in ``touched``, because users may have added partitions before their first
        rows. If ``touched`` is None, all other partitions and also the unused values of dynamic
        dimensions are deleted. New keys are sorted, since Dagster keeps the order of additions.
        """
        if self.partitions_def is None:
            return []
        partition_keys = PartitionKeys.of(self.state.schema, self.partitions_def)
        present_keys = _find_keys(partition_keys, present)
        lost_keys = None if touched is None else _find_keys(partition_keys, touched) - present_keys
        is_multi = isinstance(self.partitions_def, dg.MultiPartitionsDefinition)
        requests = list[DynamicPartitionsRequest]()
        for index, definition in _find_dynamic_definitions(self.partitions_def):
            values = {key.split("|")[index] for key in present_keys} if is_multi else present_keys
            existing = set(
                definition.get_partition_keys(
                    dynamic_partitions_store=self.evaluation_context.instance
                )
            )
            if lost_keys is None:
                outdated = existing - values
            else:
                outdated = set() if is_multi else existing & lost_keys
            if new := values - existing:
                requests.append(definition.build_add_request(sorted(new)))
            if outdated:
                requests.append(definition.build_delete_request(sorted(outdated)))
        return requests


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The partitions of one run, in the order of the partitions definition."""

    keys: tuple[str, ...]
    """The partition keys, or no keys for an asset without partitions."""
    decisions: tuple[CompactionDecision, ...]
    """The decisions about the partitions; for partition keys, in their order."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the partitions, or an empty path for the whole table."""
        return tuple(decision.partition for decision in self.decisions) if self.keys else ("",)

    def build_run_key(self, table: Table, origin: str, suffixes: Mapping[str, str]) -> str:
        """Return the run key; Dagster starts no second run with the same key.

        ``origin`` identifies the table (see :func:`get_table_identity`), and ``suffixes`` the
        evaluations of the paths.
        """
        path = self.paths[0] if len(self.paths) == 1 else f"{self.paths[0]}...{self.paths[-1]}"
        distinct = dict.fromkeys(suffixes[path] for path in self.paths)
        suffix = " ".join(distinct)
        if len(distinct) > 1:
            pairs = [(path, suffixes[path]) for path in self.paths]
            suffix = hashlib.sha256(repr(pairs).encode()).hexdigest()
        return f"{table.identifier}:{origin}:{COMPACTION}:{path}:{suffix}"


def _merge_decisions(decisions: Sequence[CompactionDecision]) -> CompactionDecision:
    """Return one decision for partitions that one run compacts."""
    first = decisions[0]
    if len(decisions) == 1 and not first.partition:
        return first
    suffix = f", and {len(decisions) - 1} other partitions" if len(decisions) > 1 else ""
    return CompactionDecision(
        partition="",
        compact=True,
        reason=f"{first.partition}: {first.reason}{suffix}",
        metrics=CompactionMetrics(),
        strategy=first.strategy,
    )


def _find_keys(partition_keys: PartitionKeys, paths: Collection[str]) -> set[str]:
    keys = (_find_key(partition_keys, path) for path in paths)
    return {key for key in keys if key is not None}


def _find_key(partition_keys: PartitionKeys, path: str) -> str | None:
    """Return the partition key of a path, or None if the definition cannot have one."""
    try:
        return partition_keys.key_of(path)
    except InputError:
        return None


def _find_path(partition_keys: PartitionKeys, key: str) -> str | None:
    """Return the path of a partition key, or None if the table cannot have such a partition."""
    try:
        return partition_keys.path_of(key)
    except InputError:
        return None


def _find_dynamic_definitions(
    partitions_def: PartitionsDef,
) -> Iterator[tuple[int, dg.DynamicPartitionsDefinition]]:
    """Yield the dynamic definition, or the dynamic dimensions with their positions in keys."""
    parts = [partitions_def]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [dimension.partitions_def for dimension in partitions_def.partitions_defs]
    for index, part in enumerate(parts):
        if isinstance(part, dg.DynamicPartitionsDefinition):
            yield index, part


def _list_dimensions(
    partitions_def: PartitionsDef,
    instance: dg.DagsterInstance,
    requests: Sequence[DynamicPartitionsRequest],
) -> list[list[str]]:
    """Return the values of each dimension after the requests, in the order of the definition."""
    parts = [partitions_def]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [dimension.partitions_def for dimension in partitions_def.partitions_defs]
    dimensions = [[*part.get_partition_keys(dynamic_partitions_store=instance)] for part in parts]
    for index, definition in _find_dynamic_definitions(partitions_def):
        for request in requests:
            if request.partitions_def_name != definition.name:
                continue
            outdated = {*request.partition_keys}
            dimensions[index] = [key for key in dimensions[index] if key not in outdated]
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                dimensions[index] += request.partition_keys
    return dimensions


def _has_key(values: Sequence[Collection[str]], key: str) -> bool:
    parts = key.split(DIMENSION_SEPARATOR) if len(values) > 1 else [key]
    return len(parts) == len(values) and all(map(operator.contains, values, parts))

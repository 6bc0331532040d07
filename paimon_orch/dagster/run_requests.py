"""Run requests for compactions, and requests that synchronize dynamic partitions with the table."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from paimon_orch.dagster.names import COMPACTION, compaction_asset_key
from paimon_orch.dagster.partitions import PartitionKeys
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.compaction.policy import CompactionDecision
from paimon_orch.table.table import Table

DynamicPartitionsRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest
PartitionsDef = dg.PartitionsDefinition[str]


@dataclass(frozen=True, slots=True)
class CompactionTarget:
    """The compaction asset of a table, in one evaluation of a sensor or schedule."""

    table: Table
    partitions_def: PartitionsDef | None
    key_prefix: Sequence[str]
    evaluation_context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext

    @property
    def can_compact_fully(self) -> bool:
        """Whether runs compact single partitions, so that one of them can be rewritten fully."""
        return self.partitions_def is not None or not self.table.schema.partition_keys

    def find_refusal(self) -> str:
        """Return why the table's options forbid compaction, or an empty string if they allow it."""
        try:
            self.table.stores.check_step(StepKind.COMPACT)
        except UnsupportedError as error:
            return str(error)
        return ""

    def build_run_requests(
        self,
        run_keys: Mapping[str, str],
        decisions: Mapping[str, CompactionDecision],
        latest_id: int | None,
    ) -> list[dg.RunRequest]:
        """Return a run request for each partition path in ``run_keys``.

        For an asset without partitions, returns one request, whose path is empty. Logs paths that
        have no partition key. The decision about a path sets the strategy, and its reason becomes a
        tag. ``latest_id`` is the newest snapshot that the decisions are based on.
        """
        if self.partitions_def is None:
            keys: dict[str, str | None] = dict.fromkeys(run_keys)
        else:
            keys = self._find_partition_keys(run_keys, self.partitions_def)
        if unknown := [path for path in run_keys if path not in keys]:
            self.evaluation_context.log.warning(
                "%s: the asset has no partition for %s", self.table.identifier, ", ".join(unknown)
            )
        return [
            self._build_run_request(
                path, run_keys[path], key=key, decision=decisions.get(path), latest_id=latest_id
            )
            for path, key in keys.items()
        ]

    def _find_partition_keys(
        self, paths: Collection[str], partitions_def: PartitionsDef
    ) -> dict[str, str | None]:
        """Return the partition key of each path that has one in the definition."""
        instance = self.evaluation_context.instance
        partition_keys = PartitionKeys.of(self.table.schema, partitions_def)
        is_valid = _build_key_test(partitions_def, instance)
        candidates = {path: _find_key(partition_keys, path) for path in paths}
        keys: dict[str, str | None] = {
            path: key for path, key in candidates.items() if key is not None and is_valid(key)
        }
        if partition_keys.multi_spelling_fields and len(keys) < len(paths):
            all_keys = partitions_def.get_partition_keys(dynamic_partitions_store=instance)
            keys_by_path = {_find_path(partition_keys, key): key for key in all_keys}
            keys |= {path: keys_by_path[path] for path in paths if path in keys_by_path}
        return keys

    def _build_run_request(
        self,
        path: str,
        run_key: str,
        key: str | None,
        decision: CompactionDecision | None,
        latest_id: int | None,
    ) -> dg.RunRequest:
        tags = {"paimon/table": self.table.identifier, "paimon/action": COMPACTION}
        if latest_id is not None:
            tags["paimon/snapshot_id"] = str(latest_id)
        if path:
            tags["paimon/partition"] = path
        strategy = "minor"
        if decision is not None:
            tags["paimon/reason"], strategy = decision.reason, decision.strategy
        op = compaction_asset_key(self.table.identifier, self.key_prefix).to_python_identifier()
        config = {"ops": {op: {"config": {"strategy": strategy}}}} if strategy != "minor" else None
        return dg.RunRequest(run_key, config, tags, partition_key=key)

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
        partition_keys = PartitionKeys.of(self.table.schema, self.partitions_def)
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


def build_run_key(table: Table, origin: str, path: str, suffix: str) -> str:
    """Return the run key of a compaction; Dagster starts no second run with the same key.

    ``origin`` identifies the table (see :func:`get_table_identity`), and ``suffix`` the evaluation.
    """
    return f"{table.identifier}:{origin}:{COMPACTION}:{path}:{suffix}"


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


def _build_key_test(
    partitions_def: PartitionsDef, instance: dg.DagsterInstance
) -> Callable[[str], bool]:
    """Return a function that tests whether a definition has a key or can add it dynamically."""
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        tests = [
            _build_key_test(part.partitions_def, instance)
            for part in partitions_def.partitions_defs
        ]
        return lambda key: all(test(part) for test, part in zip(tests, key.split("|"), strict=True))
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return lambda _: True
    return set(partitions_def.get_partition_keys(dynamic_partitions_store=instance)).__contains__

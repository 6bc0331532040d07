"""Run requests for the compaction of single partitions, and what makes dynamic partitions follow the table."""

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
    """The compaction asset of a table, as a tick asks for it: ``partitions_def`` and ``key_prefix`` are those of the asset."""

    table: Table
    partitions_def: PartitionsDef | None
    key_prefix: Sequence[str]
    tick: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext

    @property
    def alone(self) -> bool:
        """Tell whether partitions are compacted by themselves, so that one of them may be rewritten."""
        return self.partitions_def is not None or not self.table.schema.partition_keys

    def refusal(self) -> str:
        """Return why the table's options forbid its compaction, an empty string if they do not."""
        try:
            self.table.stores.check_step(StepKind.COMPACT)
        except UnsupportedError as error:
            return str(error)
        return ""

    def requests(
        self,
        run_keys: Mapping[str, str],
        decisions: Mapping[str, CompactionDecision],
        seen: int | None,
    ) -> list[dg.RunRequest]:
        """Return a request for each partition path; those that the asset has no partition for, nor can have, are logged.

        ``run_keys`` maps paths to run keys; without partitions the one path is empty and stands for the table. What the
        policy says of the path gives the strategy and, as a tag, the reason. ``seen`` is the newest snapshot that was
        looked at.
        """
        if self.partitions_def is None:
            keys: dict[str, str | None] = dict.fromkeys(run_keys)
        else:
            keys = self._find_partition_keys(run_keys, self.partitions_def)
        if unknown := [path for path in run_keys if path not in keys]:
            named = ", ".join(unknown)
            self.tick.log.warning(
                "%s: the asset has no partition for %s", self.table.identifier, named
            )
        return [
            self._build_run_request(
                path, run_keys[path], key=key, decision=decisions.get(path), seen=seen
            )
            for path, key in keys.items()
        ]

    def _find_partition_keys(
        self, paths: Collection[str], partitions_def: PartitionsDef
    ) -> dict[str, str | None]:
        """Return the keys of the paths that the asset has a partition for."""
        translate = PartitionKeys.of(self.table.schema, partitions_def)
        takes = _build_key_test(partitions_def, self.tick.instance)
        keys = {path: _find_key(translate, path) for path in paths}
        taken: dict[str, str | None] = {
            path: key for path, key in keys.items() if key is not None and takes(key)
        }
        if translate.multi_spelling_fields and len(taken) < len(keys):
            known = partitions_def.get_partition_keys(dynamic_partitions_store=self.tick.instance)
            spelled = {_find_path(translate, key): key for key in known}
            taken |= {path: spelled[path] for path in keys if path in spelled}
        return taken

    def _build_run_request(
        self,
        path: str,
        run_key: str,
        key: str | None,
        decision: CompactionDecision | None,
        seen: int | None,
    ) -> dg.RunRequest:
        tags = {"paimon/table": self.table.identifier, "paimon/action": COMPACTION}
        if seen is not None:
            tags["paimon/snapshot_id"] = str(seen)
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
        """Return what makes dynamic definitions have the partitions of the table.

        ``present`` are paths of partitions that have files. Of the others those go that were ``touched``: without files
        they may be waiting for their first rows; None says that ``present`` are all there are, and everything else goes.
        New keys are sorted, for Dagster keeps them in the order in which they come. Of the values of a dynamic dimension
        only those go that no partition has.
        """
        if self.partitions_def is None:
            return []
        translate = PartitionKeys.of(self.table.schema, self.partitions_def)
        there = {key for path in present if (key := _find_key(translate, path)) is not None}
        left = None if touched is None else {_find_key(translate, path) for path in touched} - there
        found = list[DynamicPartitionsRequest]()
        for index, dynamic in _find_dynamic_definitions(self.partitions_def):
            several = isinstance(self.partitions_def, dg.MultiPartitionsDefinition)
            wanted = {key.split("|")[index] for key in there} if several else there
            known = set(dynamic.get_partition_keys(dynamic_partitions_store=self.tick.instance))
            gone = known - wanted if left is None else known & left if not several else set()
            if wanted - known:
                found.append(dynamic.build_add_request(sorted(wanted - known)))
            if gone:
                found.append(dynamic.build_delete_request(sorted(gone)))
        return found


def build_run_key(table: Table, origin: str, path: str, occasion: str) -> str:
    """Return what is the same for the same work alone: Dagster never runs a key twice."""
    return f"{table.identifier}:{origin}:{COMPACTION}:{path}:{occasion}"


def _find_key(translate: PartitionKeys, path: str) -> str | None:
    """Return the key of a path, None if it cannot have one in this definition."""
    try:
        return translate.key_of(path)
    except InputError:
        return None


def _find_path(translate: PartitionKeys, key: str) -> str | None:
    """Return the path of a key, None if the table can have no such partition."""
    try:
        return translate.path_of(key)
    except InputError:
        return None


def _find_dynamic_definitions(
    partitions_def: PartitionsDef,
) -> Iterator[tuple[int, dg.DynamicPartitionsDefinition]]:
    """Yield a dynamic definition, or the dynamic dimensions of one, with their places in keys."""
    parts = [partitions_def]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [dimension.partitions_def for dimension in partitions_def.partitions_defs]
    for index, part in enumerate(parts):
        if isinstance(part, dg.DynamicPartitionsDefinition):
            yield index, part


def _build_key_test(
    partitions_def: PartitionsDef, instance: dg.DagsterInstance
) -> Callable[[str], bool]:
    """Return a test of keys that a definition has, or gets because it is dynamic."""
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        tests = [
            _build_key_test(part.partitions_def, instance)
            for part in partitions_def.partitions_defs
        ]
        return lambda key: all(test(part) for test, part in zip(tests, key.split("|"), strict=True))
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return lambda _: True
    return set(partitions_def.get_partition_keys(dynamic_partitions_store=instance)).__contains__

"""Run requests for the compaction of single partitions."""

from collections.abc import Collection, Mapping

import dagster as dg

from paimon_orch.dagster.names import COMPACTION
from paimon_orch.dagster.partitions import PartitionKeys
from paimon_orch.table.table import Table


def compaction_requests(
    table: Table,
    run_keys: Mapping[str, str],
    partitions_def: dg.PartitionsDefinition[str] | None,
    instance: dg.DagsterInstance,
) -> tuple[list[dg.RunRequest], list[str]]:
    """Return a request for each partition path, and the paths that the asset has no partition for, nor can have.

    ``run_keys`` maps paths to run keys; without ``partitions_def`` the one path is empty and stands for the table.
    """
    tags = {"paimon/table": table.identifier, "paimon/action": COMPACTION}
    if partitions_def is None:
        return [dg.RunRequest(run_key, tags=tags) for run_key in run_keys.values()], []
    translate = PartitionKeys.of(table.schema)
    can_grow = isinstance(partitions_def, dg.DynamicPartitionsDefinition)
    known = set(partitions_def.get_partition_keys(dynamic_partitions_store=instance))
    requests, unknown = [], []
    for path, run_key in run_keys.items():
        key = translate.key_of(path)
        if key in known or can_grow:
            tagged = {**tags, "paimon/partition": path}
            requests.append(dg.RunRequest(run_key, partition_key=key, tags=tagged))
        else:
            unknown.append(path)
    return requests, unknown


def partition_changes(
    table: Table,
    partitions_def: dg.PartitionsDefinition[str] | None,
    instance: dg.DagsterInstance,
    present: Collection[str],
    touched: Collection[str],
) -> tuple[list[str], list[str]]:
    """Return keys to add to, and to delete from, a dynamic definition, so that it has the partitions of the table.

    Only partitions that were touched and are gone are deleted: others may be waiting for their first rows. New keys are
    sorted, for Dagster keeps them in the order in which they come.
    """
    if not isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return [], []
    translate = PartitionKeys.of(table.schema)
    known = set(partitions_def.get_partition_keys(dynamic_partitions_store=instance))
    there = {translate.key_of(path) for path in present}
    gone = {translate.key_of(path) for path in touched} - there
    return sorted(there - known), sorted(gone & known)


def run_key(table: Table, origin: str, path: str, occasion: str) -> str:
    """Return what is the same for the same work alone: Dagster never runs a key twice."""
    return f"{table.identifier}:{origin}:{COMPACTION}:{path}:{occasion}"

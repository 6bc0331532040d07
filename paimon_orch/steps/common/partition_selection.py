"""Selects the partitions for a step, by partition specs and a filter on partition columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.predicate import collect_columns
from paimon_orch.table.filter.partition_spec import (
    build_any_partition_matcher,
    parse_partition_spec,
)
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_pruner import build_spec_manifest_selector, filter_partitions
from paimon_orch.table.scan.scan_planner import ScanPlanner, build_bucket_splits
from paimon_orch.table.table import Table

PartitionSpecs = Sequence[str | Mapping[str, object]]
"""Partition specs, full or partial: ``"dt=a/hour=1"`` or mappings of column to value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRequest:
    """Base class of requests that select partitions."""

    partitions: PartitionSpecs | None = None
    """The partitions to select; None selects all."""
    where: str | None = None
    """A filter on partition columns, in addition to ``partitions``."""


def plan_splits(
    table: Table, schema: TableSchema, snapshot: Snapshot, request: PartitionRequest
) -> list[BucketSplit]:
    """Return the buckets of the selected partitions; opens only manifests with their files.

    Raises :class:`InputError` if the filter tests columns that are not partition columns.
    """
    if request.partitions is None:
        splits = ScanPlanner(table.stores.manifests, schema).splits(snapshot)
    else:
        splits = _plan_partition_splits(table, schema, snapshot, request.partitions)
    return splits if request.where is None else _filter_splits(splits, schema, request.where)


def _filter_splits(
    splits: Sequence[BucketSplit], schema: TableSchema, where: str
) -> list[BucketSplit]:
    from paimon_orch.table.filter.sql_parser import parse_filter

    predicate = parse_filter(where, schema)
    other_columns = collect_columns(predicate) - set(schema.partition_keys)
    if other_columns:
        raise InputError(
            f"filter {where!r}: not a partition column: "
            f"{', '.join(sorted(other_columns))}. "
            "The filter selects whole partitions; the partition columns are: "
            f"{', '.join(schema.partition_keys) or 'none'}"
        )
    selected = filter_partitions((split.partition for split in splits), schema, predicate)
    return [split for split in splits if split.partition in selected]


def open_reader(table: Table, schema: TableSchema, splits: Iterable[BucketSplit]) -> FileReader:
    """Return a reader with the schemas of all files of the splits."""
    ids = (file.schema_id for split in splits for file in split.files)
    schemas = table.stores.schemas.get_all(ids)
    return FileReader(table.io, table.paths, schema, schemas, batch_sizes=table.batch_sizes)


def _plan_partition_splits(
    table: Table, schema: TableSchema, snapshot: Snapshot, partitions: PartitionSpecs
) -> list[BucketSplit]:
    specs = [
        parse_partition_spec(spec, schema) if isinstance(spec, str) else spec for spec in partitions
    ]
    matches = build_any_partition_matcher(specs, schema)
    live = table.stores.manifests.read_live_entries(
        snapshot,
        manifests=build_spec_manifest_selector(specs, schema),
        partitions=lambda candidates: [each for each in candidates if matches(each)],
    )
    return build_bucket_splits(live, table.stores.manifests.read_index_entries(snapshot))

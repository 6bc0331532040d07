"""Selects partitions by partition specs and a filter on partition columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict

from paimon_orch.errors import InputError
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import DataType, is_blob
from paimon_orch.format.types.predicate import Predicate, collect_columns
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.filter.partition_spec import (
    build_any_partition_matcher,
    convert_partition_specs,
)
from paimon_orch.table.metadata.live_buckets import LiveBuckets, group_vectors
from paimon_orch.table.metadata.manifest_io import ManifestSelector, PartitionSelector
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.scan.partition_pruner import build_spec_manifest_selector, filter_partitions
from paimon_orch.table.scan.scan_planner import build_bucket_splits
from paimon_orch.table.table_stores import TableStores

if TYPE_CHECKING:  # reports of metadata select partitions without reading data files
    from paimon_orch.files.data_file_reader import FileReader

PartitionSpecs = Sequence[str | Mapping[str, object]]
"""Partition specs, full or partial: ``"dt=a/hour=1"`` or mappings of column to value."""


class SelectsPartitions(Protocol):
    """What selects partitions, such as the request of a step."""

    @property
    def partitions(self) -> PartitionSpecs | None:
        """Return full or partial specs; None selects all partitions."""

    @property
    def where(self) -> str | None:
        """Return an SQL filter over partition columns."""


def plan_live_buckets(
    stores: TableStores,
    schema: TableSchema,
    snapshot: Snapshot,
    request: SelectsPartitions,
    *,
    metas: Sequence[ManifestFileMeta] | None = None,
    with_indexed: bool = False,
) -> LiveBuckets:
    """Return the buckets of the selected partitions; opens only manifests with their files.

    ``metas`` are these manifests, if the caller has selected them. With ``with_indexed``, includes
    which files have a file index.
    Raises :class:`InputError` if the filter tests columns that are not partition columns.
    """
    selection = PartitionSelection(schema, request)
    manifests = stores.manifests
    read_index = start_call(stores.io, lambda: manifests.read_index_entries(snapshot))
    files = manifests.read_live_files(
        snapshot,
        manifests=selection.build_manifest_selector(stores) if metas is None else metas,
        partitions=selection.partition_selector,
        with_indexed=with_indexed,
        **list_requested_columns(schema, snapshot),
    )
    return LiveBuckets(
        snapshot, manifests, schema, files.group_by_bucket(), group_vectors(read_index())
    )


class RequestedColumns(TypedDict):
    """Optional columns of live files; see :func:`collect_live_files`."""

    with_names: bool
    with_row_ids: bool
    key_types: list[DataType] | None


def list_requested_columns(schema: TableSchema, snapshot: Snapshot) -> RequestedColumns:
    """Return the optional columns that compactions of a table need."""
    evolves = schema.typed_options.get(DATA_EVOLUTION_ENABLED)
    has_blobs = any(is_blob(field.type) for field in schema.fields)
    return RequestedColumns(
        with_names=evolves and (snapshot.index_manifest is not None or has_blobs),
        with_row_ids=evolves,
        key_types=[field.type for field in schema.key_fields] or None,
    )


def plan_splits(
    stores: TableStores, schema: TableSchema, snapshot: Snapshot, request: SelectsPartitions
) -> list[BucketSplit]:
    """Return the buckets of the selected partitions with the objects of all their files."""
    selection = PartitionSelection(schema, request)
    manifests = stores.manifests
    read_index = start_call(stores.io, lambda: manifests.read_index_entries(snapshot))
    live = manifests.read_live_entries(
        snapshot,
        manifests=selection.build_manifest_selector(stores),
        partitions=selection.partition_selector,
    )
    return build_bucket_splits(live, read_index())


class PartitionSelection:
    """Selects manifests and partitions by a request."""

    def __init__(self, schema: TableSchema, request: SelectsPartitions) -> None:
        """Parse a request; raises :class:`InputError` for an invalid one."""
        self._schema = schema
        self._matches: Callable[[bytes], bool] | None = None
        self._specs = (
            None
            if request.partitions is None
            else convert_partition_specs(request.partitions, schema)
        )
        if self._specs is not None:
            self._matches = build_any_partition_matcher(self._specs, schema)
        self._predicate = None if request.where is None else _parse_where(schema, request.where)

    @property
    def partition_selector(self) -> PartitionSelector | None:
        """Return a function that selects partitions; None if all are selected."""
        selects_all = self._specs is None and self._predicate is None
        return None if selects_all else self._select_partitions

    def build_manifest_selector(self, stores: TableStores) -> ManifestSelector:
        """Return a function that selects the manifests that may have files of the partitions."""

        def select(manifests: Sequence[ManifestFileMeta]) -> Sequence[ManifestFileMeta]:
            if self._specs is not None:
                manifests = build_spec_manifest_selector(self._specs, self._schema)(manifests)
            if self._predicate is not None:
                pruner = FilePruner(self._schema, self._predicate, stores.schemas.get)
                manifests = pruner.select_manifests(manifests)
            return manifests

        return select

    def _select_partitions(self, partitions: Sequence[bytes]) -> set[bytes]:
        selected = set(partitions)
        if self._matches is not None:
            selected = set(filter(self._matches, selected))
        if self._predicate is not None:
            selected = filter_partitions(selected, self._schema, self._predicate)
        return selected


def _parse_where(schema: TableSchema, where: str) -> Predicate:
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
    return predicate


def open_reader(
    stores: TableStores, schema: TableSchema, buckets: LiveBuckets | Iterable[BucketSplit]
) -> "FileReader":
    """Return a reader with the schemas of all files of the buckets or splits."""
    from paimon_orch.files.data_file_reader import FileReader

    if isinstance(buckets, LiveBuckets):
        ids: Iterable[int] = buckets.schema_ids
    else:
        ids = (file.schema_id for split in buckets for file in split.files)
    schemas = stores.schemas.get_all(ids)
    return FileReader(stores.io, stores.paths, schema, schemas, batch_sizes=stores.batch_sizes)

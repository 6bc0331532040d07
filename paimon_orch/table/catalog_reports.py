"""Reports partitions and tags of a table to its catalog, such as a Hive metastore.

See docs/format/catalogs.md#partitions-of-a-metastore.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.options.core_options import (
    METASTORE_PARTITIONED_TABLE,
    METASTORE_TAG_TO_PARTITION,
    METASTORE_TAG_TO_PARTITION_PREVIEW,
    PARTITION_IDLE_TIME_TO_REPORT_STATISTIC,
)
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.catalog_environment import (
    CatalogEnvironment,
    CatalogPartitions,
    PartitionStatistics,
)
from paimon_orch.table.commit.partition_statistics import (
    count_partition_changes,
    format_partition_row,
)
from paimon_orch.table.metadata.branches import Branches
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.metadata.tag_periods import TagPeriods, compute_tag_time, parse_tag_time_zone

logger = get_logger(__name__)

PartitionNames = Mapping[str, str]
"""The text of a partition's values by column; see :class:`CatalogPartitions`."""

_DONE_SUFFIX = ".done"
_PREVIEW_MODES = ("process-time", "watermark")


@dataclass(frozen=True, slots=True)
class PartitionDifference:
    """The difference between the partitions of a table and those of its catalog."""

    missing: tuple[PartitionNames, ...]
    """Partitions with rows, or tags, that the catalog lacks."""
    surplus: tuple[PartitionNames, ...]
    """Partitions of the catalog without rows in any branch, or without a tag."""


def mark_name(partition: PartitionNames) -> dict[str, str]:
    """Return the partition that marks another one as done: its last value ends with ``.done``."""
    last = list(partition)[-1]
    return {**partition, last: partition[last] + _DONE_SUFFIX}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogReports:
    """Reports to the catalog of one table or branch; without partitions there, they do nothing.

    Reports after a change of the table only log a warning if they fail, because the change exists.
    The step ``sync-partitions`` repeats what failed.
    """

    identifier: str
    environment: CatalogEnvironment
    schema: TableSchema
    snapshots: SnapshotStore
    manifests: ManifestReader

    @property
    def partitions(self) -> CatalogPartitions | None:
        """Return the partitions of the catalog if it lists those of this table, else None."""
        schema = self.schema
        is_listed = schema.typed_options.get(METASTORE_PARTITIONED_TABLE)
        return self.environment.partitions if is_listed and schema.partition_keys else None

    @property
    def tag_partitions(self) -> CatalogPartitions | None:
        """Return the partitions of the catalog if it shows tags as partitions, else None."""
        return self.environment.partitions if self._tag_column else None

    @property
    def _tag_column(self) -> str | None:
        column: str | None = self.schema.typed_options.get(METASTORE_TAG_TO_PARTITION)
        return column

    def report_commit(self, snapshot: Snapshot) -> None:
        """Add the partitions to which a snapshot added files, and the preview of the next tag."""
        catalog = self.partitions
        if catalog is not None:
            with self._warn_on_failure("does not list all partitions of the table"):
                added = self.read_added_partitions(snapshot)
                if added:
                    catalog.add(added)
        catalog = self.tag_partitions
        if catalog is not None and not self.schema.partition_keys:
            with self._warn_on_failure("does not show the preview of the next tag"):
                preview = self._find_preview(snapshot)
                if preview is not None:
                    catalog.add([self._name_tag(preview)])

    def report_statistics(self, snapshot: Snapshot) -> None:
        """Replace the statistics of all partitions whose files a snapshot changed.

        Only with the option ``partition.idle-time-to-report-statistic``. As in Spark, the time to
        wait does not matter: batch writes report at once.
        """
        catalog = self.partitions
        wait = self.schema.typed_options.get(PARTITION_IDLE_TIME_TO_REPORT_STATISTIC)
        if catalog is None or wait.total_seconds() <= 0:
            return
        with self._warn_on_failure("has old statistics of partitions"):
            changed = {entry.partition for entry in self.manifests.read_delta_entries(snapshot)}
            if changed:
                catalog.update_statistics(self._read_statistics(snapshot, changed))

    def _read_statistics(
        self, snapshot: Snapshot, partitions: set[bytes]
    ) -> list[PartitionStatistics]:
        """Return the totals of some partitions in the newest snapshot, at the time of a commit."""
        latest = self.snapshots.latest() or snapshot
        live = self.manifests.read_live_entries(latest, partitions=lambda _: partitions)
        totals = {
            tuple(total.spec.items()): total for total in count_partition_changes(live, self.schema)
        }
        result = []
        for partition in sorted(partitions):
            spec = format_partition_row(partition, self.schema)
            total = totals.get(tuple(spec.items()))
            result.append(
                PartitionStatistics(
                    spec=spec,
                    record_count=total.record_count if total else 0,
                    file_size=total.file_size if total else 0,
                    file_count=total.file_count if total else 0,
                    last_file_creation_millis=snapshot.time_millis,
                    total_buckets=total.total_buckets if total else 0,
                )
            )
        return result

    def read_added_partitions(self, snapshot: Snapshot) -> list[dict[str, str]]:
        """Return the partitions to which a snapshot added files."""
        added = dict.fromkeys(
            entry.partition
            for entry in self.manifests.read_delta_entries(snapshot)
            if entry.kind is FileKind.ADD
        )
        return [format_partition_row(partition, self.schema) for partition in added]

    def drop_partitions(self, partitions: Iterable[PartitionNames]) -> Callable[[], None]:
        """Drop partitions whose rows are about to be deleted; return a function that undoes it.

        Partitions with rows in other branches are kept. As in Java Paimon, the catalog changes
        first: readers that find partitions there do not see a partition without files.
        """
        catalog, names = self.partitions, list(partitions)
        if catalog is None or not names:
            return lambda: None
        kept = self._read_names_of_other_branches()
        dropped = [spec for spec in names if _to_key(spec) not in kept]
        if dropped:
            catalog.drop(dropped)

        def undo() -> None:
            with self._warn_on_failure("does not list all partitions of the table"):
                catalog.add(dropped)

        return undo if dropped else lambda: None

    def drop_marks(self, partitions: Iterable[PartitionNames]) -> None:
        """Drop the partitions that mark dropped partitions as done."""
        catalog, marks = self.partitions, [mark_name(partition) for partition in partitions]
        if catalog is not None and marks:
            with self._warn_on_failure("lists marks of dropped partitions"):
                catalog.drop(marks)

    def find_listed(self, specs: Sequence[PartitionNames]) -> list[dict[str, str]]:
        """Return the partitions in the catalog that match any full or partial spec."""
        if self.partitions is None:
            return []
        return [
            listed
            for listed in self._list_partitions(self.partitions)
            if any(all(listed.get(k) == v for k, v in spec.items()) for spec in specs)
        ]

    def _list_partitions(self, catalog: CatalogPartitions) -> list[dict[str, str]]:
        """Return the partitions of a catalog, which may have changed the case of column names."""
        columns = self.schema.partition_keys
        return [dict(zip(columns, spec.values(), strict=True)) for spec in catalog.list()]

    def report_new_tag(self, name: str) -> None:
        """Add a tag that the catalog shows as a partition."""
        catalog = self.tag_partitions
        if catalog is not None:
            with self._warn_on_failure(f"does not show the tag {name!r}"):
                catalog.add([self._name_tag(name)])

    def report_deleted_tag(self, name: str) -> None:
        """Drop a tag that the catalog shows as a partition."""
        catalog = self.tag_partitions
        if catalog is not None:
            with self._warn_on_failure(f"still shows the tag {name!r}"):
                catalog.drop([self._name_tag(name)])

    def _name_tag(self, tag: str) -> dict[str, str]:
        assert self._tag_column is not None
        return {self._tag_column: tag}

    def _find_preview(self, snapshot: Snapshot) -> str | None:
        """Return the tag that the current period will get, or None without a preview."""
        options = self.schema.typed_options
        mode = options.get(METASTORE_TAG_TO_PARTITION_PREVIEW).strip().lower()
        if mode not in _PREVIEW_MODES:
            return None
        millis = int(time.time() * 1000) if mode == "process-time" else snapshot.watermark
        moment = compute_tag_time(millis, parse_tag_time_zone(options, mode))
        if moment is None:
            return None
        periods = TagPeriods.of(options)
        return periods.current(moment).strftime(periods.name)

    def compare(self) -> PartitionDifference:
        """Compare the newest snapshot, or the tags, with the partitions in the catalog.

        Raises :class:`InputError` if the catalog does not list partitions of this table.
        """
        if self.partitions is not None:
            return self._compare_partitions(self.partitions)
        if self.tag_partitions is not None:
            return self._compare_tags(self.tag_partitions)
        if self.environment.partitions is None:
            raise InputError(
                f"{self.identifier} was not opened through a catalog that lists partitions, such "
                "as a Hive metastore"
            )
        raise InputError(
            f"{self.identifier} has no partitions in its catalog: set "
            f"{METASTORE_PARTITIONED_TABLE.key!r} for a partitioned table, or "
            f"{METASTORE_TAG_TO_PARTITION.key!r} to show tags"
        )

    def _compare_partitions(self, catalog: CatalogPartitions) -> PartitionDifference:
        listed = {_to_key(spec): spec for spec in self._list_partitions(catalog)}
        own = _read_names(self.snapshots, self.manifests, self.schema)
        used = own.keys() | self._read_names_of_other_branches()
        used |= {_to_key(mark_name(dict(key))) for key in used}
        return PartitionDifference(
            tuple(own[key] for key in sorted(own.keys() - listed.keys())),
            tuple(listed[key] for key in sorted(listed.keys() - used)),
        )

    def _compare_tags(self, catalog: CatalogPartitions) -> PartitionDifference:
        listed = {_to_key(spec): spec for spec in catalog.list()}
        tags = {
            _to_key(self._name_tag(name)): self._name_tag(name) for name in self.snapshots.tags()
        }
        latest = self.snapshots.latest()
        preview = None if latest is None else self._find_preview(latest)
        used = tags.keys() | ({_to_key(self._name_tag(preview))} if preview else set())
        return PartitionDifference(
            tuple(tags[key] for key in sorted(tags.keys() - listed.keys())),
            tuple(listed[key] for key in sorted(listed.keys() - used)),
        )

    def _read_names_of_other_branches(self) -> set[tuple[tuple[str, str], ...]]:
        """Return the partitions with rows in the table's other branches."""
        io, paths = self.snapshots.io, self.snapshots.paths
        branches = sorted({MAIN_BRANCH, *Branches(io, paths.root).names()} - {paths.branch})

        def read_names(branch: str) -> Iterable[tuple[tuple[str, str], ...]]:
            other = TablePaths(paths.root, branch)
            schemas = SchemaStore(io, other)
            ids = schemas.ids()
            if not ids:
                return ()
            store, manifests = SnapshotStore(io, other), ManifestReader(io, other)
            return _read_names(store, manifests, schemas.get(ids[-1]))

        return {key for keys in map_concurrently(io, read_names, branches) for key in keys}

    @contextmanager
    def _warn_on_failure(self, consequence: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the table has changed, which is no error
            logger.warning(
                "%s: the catalog %s: %s. Run sync-partitions to repeat the report.",
                self.identifier,
                consequence,
                error,
            )


def _to_key(spec: PartitionNames) -> tuple[tuple[str, str], ...]:
    return tuple(spec.items())


def _read_names(
    snapshots: SnapshotStore, manifests: ManifestReader, schema: TableSchema
) -> dict[tuple[tuple[str, str], ...], dict[str, str]]:
    """Return the partitions with rows in the newest snapshot."""
    latest = snapshots.latest()
    if latest is None:
        return {}
    partitions = {entry.partition for entry in manifests.read_live_entries(latest)}
    specs = [format_partition_row(partition, schema) for partition in partitions]
    return {_to_key(spec): spec for spec in specs}

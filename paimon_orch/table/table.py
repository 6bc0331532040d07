"""A table as users hold it: read, write, look inside."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.reader import FileReader
from paimon_orch.files.writer import FileWriterFactory
from paimon_orch.format.manifest import ManifestEntry
from paimon_orch.format.options import Options
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.predicate import Predicate
from paimon_orch.format.row_kind import RowKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.commit import Changes, PartitionFilter, TableCommit, new_commit_user
from paimon_orch.table.filter import parse_filter
from paimon_orch.table.manifests import ManifestReader
from paimon_orch.table.partitions import partition_matcher
from paimon_orch.table.plan import BucketSplit, Planner
from paimon_orch.table.scan import Scan
from paimon_orch.table.schemas import SchemaStore
from paimon_orch.table.snapshots import SnapshotStore
from paimon_orch.table.write import BucketId, TableWriter, conform_rows

_TIME_KEYS = ("snapshot_id", "tag", "timestamp")


@dataclass(frozen=True, slots=True)
class Table:
    """One table (and branch). Cheap to make and to pickle: it holds no open files and no data.

    >>> table.upsert(pa.table({"id": [1], "status": ["PENDING"]}))
    >>> table.scan(filter="status = 'PENDING'").to_arrow()
    """

    identifier: str
    io: FileIO
    paths: TablePaths

    @property
    def schemas(self) -> SchemaStore:
        """Return access to the schema versions."""
        return SchemaStore(self.io, self.paths)

    @property
    def snapshots(self) -> SnapshotStore:
        """Return access to snapshots, tags and hints."""
        return SnapshotStore(self.io, self.paths)

    @property
    def manifests(self) -> ManifestReader:
        """Return access to the manifests."""
        return ManifestReader(self.io, self.paths)

    @property
    def schema(self) -> TableSchema:
        """Read the newest schema."""
        return self.schemas.latest()

    @property
    def options(self) -> Options:
        """Read the options of the newest schema."""
        return self.schema.typed_options

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot | None:
        """Read a snapshot, by default the newest; None if the table has none yet."""
        return self.snapshots.latest() if snapshot_id is None else self.snapshots.get(snapshot_id)

    def scan(
        self,
        columns: list[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        limit: int | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: int | None = None,
    ) -> Scan:
        """Describe a read of one snapshot; nothing is read before the scan is asked for rows.

        ``filter`` is SQL-like text; ``timestamp`` is epoch milliseconds, the newest snapshot not after it counts. At
        most one of ``snapshot_id``, ``tag`` and ``timestamp`` is given. Raises :class:`NotFoundError` for a column,
        snapshot or tag that does not exist.
        """
        given = [
            name
            for name, value in zip(_TIME_KEYS, (snapshot_id, tag, timestamp), strict=True)
            if value
        ]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other; name one")
        snapshot = self._snapshot_at(snapshot_id, tag, timestamp)
        # time travel reads with the schema of that time
        schema = self.schemas.get(snapshot.schema_id) if given and snapshot else self.schema
        predicate = parse_filter(filter, schema) if isinstance(filter, str) else filter
        fields = schema.fields if columns is None else tuple(schema.select(columns))
        return Scan(self.io, self.paths, self.schemas, schema, snapshot, fields, predicate, limit)

    def _snapshot_at(
        self, snapshot_id: int | None, tag: str | None, timestamp: int | None
    ) -> Snapshot | None:
        if snapshot_id is not None:
            return self.snapshots.get(snapshot_id)
        if tag is not None:
            return self.snapshots.tag(tag)
        if timestamp is not None:
            return self.snapshots.at_time(timestamp)
        return self.snapshots.latest()

    def files(self, snapshot: Snapshot | None = None) -> list[BucketSplit]:
        """Return all live files of a snapshot (by default the newest) by bucket, level 0 included."""
        return Planner(self.manifests, self.schema).splits(snapshot or self.snapshots.latest())

    def reader(self) -> FileReader:
        """Return a reader of data files in the shape of the newest schema."""
        schemas = self.schemas
        return FileReader(self.io, self.paths, schemas.latest(), schemas.get_all(schemas.ids()))

    def writer_factory(self) -> FileWriterFactory:
        """Return what makes writers of data files."""
        return FileWriterFactory(self.io, self.paths, self.schema)

    def next_sequences(self) -> dict[BucketId, int]:
        """Return the next sequence number of every bucket that has files (section 8.2)."""
        return {
            (split.partition, split.bucket): 1 + max(f.max_sequence_number for f in split.files)
            for split in self.files()
        }

    def new_commit(self, user: str | None = None) -> TableCommit:
        """Return a committer for one job."""
        schemas = self.schemas
        return TableCommit(
            schemas, self.snapshots, self.manifests, user or new_commit_user(schemas.latest())
        )

    def upsert(self, rows: pa.Table, *, row_kind: str | None = None) -> Snapshot | None:
        """Insert or update rows by primary key in one snapshot; the last row of a key wins.

        ``row_kind`` names a text column of ``+I``, ``-U``, ``+U``, ``-D``. Returns the snapshot, None without rows.
        """
        if not self.schema.primary_keys:
            raise InputError(f"{self.identifier} has no primary key: use append, not upsert")
        return self._write(rows, row_kind=row_kind)

    def append(self, rows: pa.Table) -> Snapshot | None:
        """Add rows in one snapshot; on a primary-key table this is :meth:`upsert`."""
        return self._write(rows)

    def delete(self, rows: pa.Table) -> Snapshot | None:
        """Delete rows of a primary-key table by key; columns beyond the key may be missing."""
        schema = self.schema
        if not schema.primary_keys:
            raise InputError(
                f"{self.identifier} has no primary key, so there is no key to delete by"
            )
        for name in schema.names:
            if name not in rows.column_names and name not in schema.primary_keys:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return self._write(rows, kind=RowKind.DELETE)

    def overwrite(
        self, rows: pa.Table, partitions: Mapping[str, object] | None = None
    ) -> Snapshot | None:
        """Replace whole partitions by rows: those that receive rows, or those that match ``partitions``.

        An empty mapping replaces the whole table. Without partition columns the whole table is replaced.
        """
        return self._write(rows, overwrite=True, partitions=partitions)

    def _write(
        self,
        rows: pa.Table,
        *,
        row_kind: str | None = None,
        kind: RowKind = RowKind.INSERT,
        overwrite: bool = False,
        partitions: Mapping[str, object] | None = None,
    ) -> Snapshot | None:
        conformed = conform_rows(rows, self.schema, row_kind=row_kind, kind=kind)
        writer = TableWriter(self.writer_factory(), {} if overwrite else self.next_sequences())
        try:
            writer.write(conformed)
            entries = writer.close()
            return self.commit_entries(entries, overwrite=overwrite, partitions=partitions)
        except BaseException:
            writer.abort()
            raise

    def commit_entries(
        self,
        entries: list[ManifestEntry],
        *,
        overwrite: bool = False,
        partitions: Mapping[str, object] | None = None,
    ) -> Snapshot | None:
        """Commit newly written files as an APPEND, or as an OVERWRITE of the partitions they replace."""
        if not overwrite:
            if not entries:
                return None
            return self.new_commit().commit(Changes(CommitKind.APPEND, tuple(entries)))
        replaced = self._replaced(entries, partitions)
        if replaced is None:
            return None
        changes = Changes(CommitKind.OVERWRITE, tuple(entries), overwrite=replaced)
        return self.new_commit().commit(changes)

    def _replaced(
        self, entries: list[ManifestEntry], spec: Mapping[str, object] | None
    ) -> PartitionFilter | None:
        """Return which partitions an overwrite replaces (section 10.6); None for none at all."""
        schema = self.schema
        dynamic = schema.typed_options.boolean("dynamic-partition-overwrite", default=True)
        if not schema.partition_keys or (spec is None and not dynamic) or spec == {}:
            return lambda _: True
        if spec is None:
            written = {entry.partition for entry in entries}
            return written.__contains__ if written else None
        matches = partition_matcher(spec, schema)
        for entry in entries:
            if not matches(entry.partition):
                raise InputError(
                    f"the rows do not all lie in the partition {dict(spec)} to overwrite"
                )
        return matches

"""A read of one snapshot: columns, filter, limit; rows as Arrow, record batches or pandas."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.reader import FileReader
from paimon_orch.files.row_tracking import tracking_fields
from paimon_orch.format.arrow import arrow_schema
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.predicate import Predicate, columns_of, restrict
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types import Field
from paimon_orch.storage import FileIO
from paimon_orch.table.evolved_rows import is_evolving
from paimon_orch.table.explain import ScanReport, explain
from paimon_orch.table.manifests import ManifestReader
from paimon_orch.table.plan import ALL_LEVELS, BucketSplit, Planner
from paimon_orch.table.pruning import Pruner
from paimon_orch.table.read import BucketReader
from paimon_orch.table.rows import Rows, filtered, limited
from paimon_orch.table.schemas import SchemaStore


@dataclass(frozen=True, slots=True)
class Scan(Rows):
    """What to read; made by :meth:`Table.scan`.

    ``levels`` are those of the merge tree that are read. With ``audit`` the last change of a key that is deleted is
    a row too, and a column ``rowkind`` may be among ``fields``.
    """

    io: FileIO
    paths: TablePaths
    schemas: SchemaStore
    schema: TableSchema
    snapshot: Snapshot | None
    fields: tuple[Field, ...]
    predicate: Predicate | None = None
    limit: int | None = None
    levels: range = ALL_LEVELS
    audit: bool = False

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return arrow_schema(self.fields)

    def plan(self, *, asks_indexes: bool = True) -> list[BucketSplit]:
        """Return the files to read by bucket; what batch readers leave out is left out (11.3).

        With ``asks_indexes`` the file indexes in manifests leave out files too.
        """
        options, levels = self.schema.typed_options, self.levels
        if self.schema.primary_keys and options.batch_scan_skips_level0:
            levels = range(max(1, levels.start), levels.stop)
        predicate, pruner = self._on_columns(), None
        if predicate is not None:
            pruner = Pruner(self.schema, predicate, self.schemas.get, asks_indexes)
        planner = Planner(ManifestReader(self.io, self.paths), self.schema)
        splits = planner.splits(self.snapshot, pruner, levels=levels)
        return [split for split in splits if split.bucket >= 0]

    def explain(self) -> ScanReport:
        """Say what file indexes save: files skipped, rows selected, bytes not read. No rows are read."""
        splits = self.plan(asks_indexes=False)
        schemas = self.schemas.get_all(file.schema_id for split in splits for file in split.files)
        reader = FileReader(self.io, self.paths, self.schema, schemas)
        return explain(reader, splits, self.plan(), self._on_columns())

    def _on_columns(self) -> Predicate | None:
        """Return the part of the filter that work can be saved by: it looks at stored columns of whole rows."""
        names = self.schema.partition_keys if is_evolving(self.schema) else self.schema.names
        return None if self.predicate is None else restrict(self.predicate, set(names))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, one bucket after the other, in bounded memory."""
        batches = (batch for split in self.plan() for batch in self.read_split(split))
        return limited(batches, self.limit)

    def read_split(self, split: BucketSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bucket that the filter keeps."""
        names = {field.name for field in self.fields}
        if self.predicate is not None:
            names |= columns_of(self.predicate)
        stored = (*self.schema.fields, *tracking_fields(self.schema))
        wanted = [field for field in stored if field.name in names]
        schemas = self.schemas.get_all(file.schema_id for file in split.files)
        reader = FileReader(self.io, self.paths, self.schema, schemas)
        bucket = BucketReader(reader, split, wanted, self._on_columns())
        batches = bucket.audited() if self.audit else bucket.batches()
        yield from filtered(batches, self.predicate, self.arrow_schema)

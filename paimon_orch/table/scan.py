"""A read of one snapshot: columns, filter, limit; rows as Arrow, record batches or pandas."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.reader import FileReader
from paimon_orch.format.arrow import arrow_schema
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.predicate import Predicate, columns_of
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types import Field
from paimon_orch.storage import FileIO
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

    def plan(self) -> list[BucketSplit]:
        """Return the files to read by bucket; what batch readers leave out is left out (11.3)."""
        options, levels = self.schema.typed_options, self.levels
        if self.schema.primary_keys and options.batch_scan_skips_level0:
            levels = range(max(1, levels.start), levels.stop)
        pruner = None
        if self.predicate is not None:
            pruner = Pruner(self.schema, self.predicate, self.schemas.get)
        planner = Planner(ManifestReader(self.io, self.paths), self.schema)
        splits = planner.splits(self.snapshot, pruner, levels=levels)
        return [split for split in splits if split.bucket >= 0]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, one bucket after the other, in bounded memory."""
        batches = (batch for split in self.plan() for batch in self.read_split(split))
        return limited(batches, self.limit)

    def read_split(self, split: BucketSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bucket that the filter keeps."""
        names = {field.name for field in self.fields}
        if self.predicate is not None:
            names |= columns_of(self.predicate)
        wanted = [field for field in self.schema.fields if field.name in names]
        schemas = self.schemas.get_all(file.schema_id for file in split.files)
        reader = FileReader(self.io, self.paths, self.schema, schemas)
        bucket = BucketReader(reader, split, wanted, self.predicate)
        batches = bucket.audited() if self.audit else bucket.batches()
        yield from filtered(batches, self.predicate, self.arrow_schema)

"""A read of one snapshot: columns, filter, limit; rows as Arrow, record batches or pandas."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from paimon_orch.files.reader import FileReader
from paimon_orch.format.arrow import arrow_schema
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.predicate import Predicate, columns_of, to_arrow
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types import Field
from paimon_orch.storage import FileIO
from paimon_orch.table.manifests import ManifestReader
from paimon_orch.table.plan import BucketSplit, Planner
from paimon_orch.table.read import BucketReader
from paimon_orch.table.schemas import SchemaStore


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read; made by :meth:`Table.scan`."""

    io: FileIO
    paths: TablePaths
    schemas: SchemaStore
    schema: TableSchema
    snapshot: Snapshot | None
    fields: tuple[Field, ...]
    predicate: Predicate | None = None
    limit: int | None = None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return arrow_schema(self.fields)

    def plan(self) -> list[BucketSplit]:
        """Return the files to read by bucket; what batch readers leave out is left out (11.3)."""
        options = self.schema.typed_options
        skip_level0 = bool(self.schema.primary_keys) and options.batch_scan_skips_level0
        splits = Planner(ManifestReader(self.io, self.paths), self.schema).splits(
            self.snapshot,
            self.predicate,
            keep=(lambda file: file.level > 0) if skip_level0 else None,
        )
        return [split for split in splits if split.bucket >= 0]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, one bucket after the other, in bounded memory."""
        if self.limit is None:
            for split in self.plan():
                yield from self.read_split(split)
        else:
            yield from self._limited(self.limit)

    def _limited(self, left: int) -> Iterator[pa.RecordBatch]:
        for split in self.plan():
            for batch in self.read_split(split):
                if left <= 0:
                    return
                yield batch.slice(0, left)
                left -= batch.num_rows

    def read_split(self, split: BucketSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bucket that the filter keeps."""
        wanted = list(self.fields)
        if self.predicate is not None:
            shown = {field.name for field in wanted}
            hidden = columns_of(self.predicate) - shown
            wanted += [field for field in self.schema.fields if field.name in hidden]
        schemas = self.schemas.get_all(file.schema_id for file in split.files)
        reader = FileReader(self.io, self.paths, self.schema, schemas)
        target = self.arrow_schema
        for batch in BucketReader(reader, split, wanted).batches():
            if self.predicate is not None:
                table = pa.Table.from_batches([batch]).filter(to_arrow(self.predicate))
                batches = table.select(target.names).combine_chunks().to_batches()
            else:
                batches = [batch]
            for kept in batches:
                yield pa.RecordBatch.from_arrays(kept.columns, schema=target)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a record batch reader, which Polars and DuckDB take as it is."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Read everything into one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.arrow_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read everything into pandas."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

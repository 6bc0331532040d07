"""Reads the JSON files of VECTOR columns (``vector.file.format`` = ``json``).

Java Paimon writes an object per line, with the elements as text. JSON files with other columns are
not supported.

See docs/format/data-files.md#parquet.
"""

from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
from pyarrow import json

from paimon_orch.files.nested_arrays import with_values
from paimon_orch.format.types.arrow import build_record_batch, to_arrow_type
from paimon_orch.format.types.data_types import Field, VectorType

_BLOCK_BYTES = 16 << 20  # a line must be shorter
_ELEMENTS = pa.list_(pa.field("element", pa.string()))


def is_vector_file(path: str) -> bool:
    """Return whether a data file has only VECTOR columns."""
    return ".vector." in path.rpartition("/")[2]


class JsonVectorReader:
    """One open JSON file of VECTOR columns."""

    def __init__(self, source: IO[bytes], fields: Sequence[Field]) -> None:
        self._source = source
        self._types = {
            field.name: field.type for field in fields if isinstance(field.type, VectorType)
        }
        self.num_rows: int | None = None
        self.names: Sequence[str] = list(self._types)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the named columns of all rows; raises ``ArrowInvalid`` for other content."""
        self._source.seek(0)
        if not self._source.read(1):
            return
        self._source.seek(0)
        schema = pa.schema([(name, _ELEMENTS) for name in self._types])
        reader = json.open_json(
            self._source,
            json.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
        for batch in reader:
            arrays = [self._convert(batch.column(name), self._types[name]) for name in columns]
            for start in range(0, batch.num_rows, batch_rows):
                parts = [array.slice(start, batch_rows) for array in arrays]
                rows = min(batch_rows, batch.num_rows - start)
                yield build_record_batch(parts, columns, rows)

    def _convert(self, texts: pa.ListArray, data_type: VectorType) -> pa.Array:
        elements = texts.values.cast(to_arrow_type(data_type.element))
        return with_values(texts, pa.list_(pa.field("element", elements.type)), elements)

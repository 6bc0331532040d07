"""The reader and the writer of data files by format: Parquet, ORC or Avro."""

from collections.abc import Iterator, Sequence
from typing import IO, Protocol

import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.avro_reader import AvroFileReader
from paimon_orch.files.avro_writer import AvroFileWriter, build_avro_schema
from paimon_orch.files.blob.blob_file import BlobFileReader
from paimon_orch.files.json_vectors import JsonVectorReader, is_vector_file
from paimon_orch.files.orc import OrcFileReader, OrcFileWriter, to_orc_type
from paimon_orch.files.parquet import SMALL_PAGES, ParquetFileReader, ParquetFileWriter
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    CHANGELOG_FILE_FORMAT,
    FILE_BLOCK_SIZE,
    FILE_FORMAT_PER_LEVEL,
    ICEBERG_STORAGE,
)
from paimon_orch.format.paths import parse_file_format
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, VectorType, is_blob

_MAX_STRIPE_BYTES, _MIN_STRIPE_BYTES = 64 << 20, 64 << 10


class FormatReader(Protocol):
    """One open data file."""

    num_rows: int | None
    """The number of rows, or None if the format does not store it."""

    names: Sequence[str]

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the named columns in file order, as the file's Arrow types."""
        ...


class FormatWriter(Protocol):
    """Writes one data file to an open sink; the sink remains open."""

    def write(self, table: pa.Table) -> None:
        """Write rows in the columns of the file."""
        ...

    def close(self) -> None:
        """Write the pending rows and the end of the file."""
        ...


def open_reader(
    source: IO[bytes],
    path: str,
    fields: Sequence[Field],
    *,
    legacy_instants: bool = True,
    remote: bool = False,
) -> FormatReader:
    """Open a data file, whose name gives its format; ``fields`` are the columns it may have.

    ``legacy_instants`` is the option ``orc.timestamp-ltz.legacy.type`` of its writer. ``remote``
    means that each read of ``source`` is a network request. Raises :class:`UnsupportedError` for
    unknown formats.
    """
    match parse_file_format(path):
        case "parquet":
            return ParquetFileReader(source, remote=remote)
        case "orc":
            return OrcFileReader(source, fields, legacy_instants=legacy_instants)
        case "avro":
            return AvroFileReader(source, fields)
        case "blob":
            return BlobFileReader(source, path, fields)
        case "json" if is_vector_file(path):
            return JsonVectorReader(source, fields)
        case kind:
            raise UnsupportedError(f"{path}: data files of format {kind!r} are not supported")


def open_writer(
    sink: IO[bytes],
    kind: str,
    fields: Sequence[Field],
    options: Options,
    level: int,
    target: int,
    *,
    small_pages: bool = False,
) -> FormatWriter:
    """Create a writer of a data file of format ``kind``, for a level and about ``target`` bytes.

    ``small_pages`` makes reads of a few rows of a Parquet file cheaper. Raises
    :class:`UnsupportedError` for columns that the format cannot hold.
    """
    codec, zstd_level = options.file_compression(level), options.zstd_level
    match kind:
        case "parquet":
            pages = SMALL_PAGES if small_pages else None
            for_iceberg = options.get(ICEBERG_STORAGE) != "disabled"
            return ParquetFileWriter(
                sink, fields, codec, zstd_level, pages=pages, for_iceberg=for_iceberg
            )
        case "orc":
            # The size of a file is known only after a stripe is written, so stripes must be smaller
            # than files.
            stripe = max(_MIN_STRIPE_BYTES, min(_MAX_STRIPE_BYTES, target // 4))
            return OrcFileWriter(sink, fields, codec, options.get(FILE_BLOCK_SIZE, stripe))
        case "avro":
            return AvroFileWriter(sink, fields, codec, zstd_level)
    raise InputError(f"'file.format' = {kind!r}: use parquet, orc or avro")


def check_file_formats(schema: TableSchema) -> None:
    """Raise :class:`UnsupportedError` for a column that a file format of the table cannot hold.

    The values of a BLOB, and of a VECTOR with ``vector.file.format``, are in other files.
    """
    options = schema.typed_options
    formats = {
        options.file_format(),
        *(kind.lower() for kind in options.get(FILE_FORMAT_PER_LEVEL).values()),
        options.get(CHANGELOG_FILE_FORMAT),
    }
    has_vector_files = "vector.file.format" in schema.options
    fields = [
        field
        for field in schema.fields
        if not is_blob(field.type) and not (has_vector_files and isinstance(field.type, VectorType))
    ]
    if "avro" in formats:
        build_avro_schema(fields)
    if "orc" in formats:
        for field in fields:
            to_orc_type(field)

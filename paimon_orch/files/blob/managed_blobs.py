"""Reads the BLOB values of primary-key tables, whose data files have descriptors of them.

See docs/format/blob.md#primary-key-tables.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import IO

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, UnsupportedError, wrap_decode_errors
from paimon_orch.files.blob.blob_descriptor import BlobDescriptor, is_descriptor
from paimon_orch.files.blob.blob_file import HEADER_BYTES, MAX_BLOB_BYTES, RECORD_BYTES, read_blobs
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.external_paths import parse_store_scheme, strip_file_scheme
from paimon_orch.format.options.core_options import BLOB_AS_DESCRIPTOR
from paimon_orch.format.paths import MANAGED_BLOB_SUFFIX
from paimon_orch.format.types.arrow import build_record_batch
from paimon_orch.format.types.data_types import Field, is_blob

_BATCH_BYTES = 32 << 20  # values of a batch; the next batch begins after it has more


def resolve_blobs(
    reader: FileReader,
    bucket_files: Sequence[BucketFile],
    fields: Iterable[Field],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Replace descriptors of BLOB columns by their values, unless the table reads descriptors."""
    names = {field.name for field in fields if is_blob(field.type)}
    if not names or not bucket_files or reader.schema.typed_options.get(BLOB_AS_DESCRIPTOR):
        yield from batches
        return
    directory = reader.path(bucket_files[0]).rpartition("/")[0]

    @cache
    def find_path(uri: str) -> str:
        """Return the path of a file; a copied table has the files of its values in its buckets."""
        path = strip_file_scheme(uri)
        copied = f"{directory}/{path.rpartition('/')[2]}"
        if uri.endswith(MANAGED_BLOB_SUFFIX) and reader.io.exists(copied):
            return copied
        if parse_store_scheme(path) != parse_store_scheme(directory):
            raise UnsupportedError(
                f"a BLOB value is in {uri}, in a different store from the table; this is not "
                "supported; set 'blob-as-descriptor' = true to read its descriptor, also in other "
                "readers of the table"
            )
        return path

    def read(encoded: bytes | None) -> bytes | None:
        if encoded is None or not is_descriptor(encoded):
            return encoded  # Java Paimon takes other bytes as the value
        with wrap_decode_errors(directory):
            descriptor = BlobDescriptor.decode(encoded)
        path = find_path(descriptor.uri)
        with wrap_decode_errors(path), reader.io.open_input(path) as source:
            return _read_value(source, path, descriptor)

    for batch in batches:
        blobs = [index for index, name in enumerate(batch.schema.names) if name in names]
        for start, columns in _read_columns([batch.column(index) for index in blobs], read):
            part = batch.slice(start, len(columns[0]))
            arrays = part.columns
            for index, column in zip(blobs, columns, strict=True):
                arrays[index] = pa.array(column, pa.binary())
            yield build_record_batch(arrays, batch.schema.names, part.num_rows)


def _read_columns(
    columns: Sequence[pa.Array], read: Callable[[bytes | None], bytes | None]
) -> Iterator[tuple[int, list[list[bytes | None]]]]:
    """Yield the first row and the values of parts, which are limited by bytes."""
    start, size = 0, 0
    part: list[list[bytes | None]] = [[] for _ in columns]
    for row in range(len(columns[0])):
        for values, column in zip(part, columns, strict=True):
            value = read(column[row].as_py())
            values.append(value)
            size += len(value or b"")
        if size >= _BATCH_BYTES:
            yield start, part
            start, size, part = row + 1, 0, [[] for _ in columns]
    if part[0]:
        yield start, part


def _read_value(source: IO[bytes], path: str, descriptor: BlobDescriptor) -> bytes:
    """Return the bytes of a file that a descriptor names.

    In a pack they must be the value of a record, whose checksum is compared.
    """
    size = source.seek(0, os.SEEK_END)
    offset, length = descriptor.offset, descriptor.length
    length = size - offset if length < 0 else length
    is_pack = path.endswith(MANAGED_BLOB_SUFFIX)
    first = HEADER_BYTES if is_pack else 0
    if not first <= offset <= offset + length <= size:
        raise CorruptFileError(
            path, f"has {size} bytes, but a BLOB descriptor names {length} bytes at {offset}"
        )
    if is_pack:
        starts, lengths = np.array([offset - HEADER_BYTES]), np.array([length + RECORD_BYTES])
        value: bytes = read_blobs(source, path, starts, lengths)[0].as_py()
        return value
    if length > MAX_BLOB_BYTES:
        raise UnsupportedError(
            f"{path}: a BLOB of {length} bytes is too large to be read as bytes; set "
            "'blob-as-descriptor' = true to read its descriptor, also in other readers of the table"
        )
    source.seek(offset)
    return source.read(length)

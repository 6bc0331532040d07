"""Reads the BLOB values of primary-key tables, whose data files have descriptors of them.

See docs/format/blob.md#primary-key-tables.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pyarrow as pa

from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.files.blob.blob_descriptor import BlobDescriptor, is_descriptor
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.external_paths import parse_store_scheme, strip_file_scheme
from paimon_orch.format.options.core_options import BLOB_AS_DESCRIPTOR
from paimon_orch.format.paths import MANAGED_BLOB_SUFFIX
from paimon_orch.format.types.data_types import Field, is_blob


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
        descriptor = BlobDescriptor.decode(encoded)
        path = find_path(descriptor.uri)
        with reader.io.open_input(path) as source:
            source.seek(descriptor.offset)
            value: bytes = source.read(descriptor.length)
        if 0 <= descriptor.length != len(value):
            raise CorruptFileError(path, f"ends within the BLOB at position {descriptor.offset}")
        return value

    for batch in batches:
        arrays = [
            pa.array(map(read, column.to_pylist()), pa.binary()) if name in names else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, batch.schema.names)

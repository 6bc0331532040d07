"""Indexes of new data files: their builder, bitmap version, names, and where they are stored.

See docs/format/file-index.md.
"""

import re
from collections.abc import Callable, Iterable

from paimon_orch.files.file_index_reader import INDEX_SUFFIX, read_bitmap_version
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.index_keys import BITMAP
from paimon_orch.format.file_index.index_options import (
    BITMAP_VERSION,
    LATEST_BITMAP_VERSION,
    parse_index_specs,
    set_default_bitmap_version,
)
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import FILE_INDEX_IN_MANIFEST_THRESHOLD
from paimon_orch.format.schema import TableSchema
from paimon_orch.storage import FileIO

_NUMBERED_INDEX_NAME = re.compile(r"(.*)-(\d+)\.index")


def create_index_builder(
    schema: TableSchema, bitmap_version: int = LATEST_BITMAP_VERSION
) -> FileIndexBuilder | None:
    """Return a builder of the indexes of a new data file, or None if the table has none.

    ``bitmap_version`` applies to bitmap indexes whose options do not set a version. Raises
    :class:`InputError` for options with columns that cannot be indexed.
    """
    specs = set_default_bitmap_version(parse_index_specs(schema.options), bitmap_version)
    return FileIndexBuilder(specs, schema.fields) if specs else None


def find_bitmap_version(
    io: FileIO,
    path_of: Callable[[DataFileMeta], str],
    files: Iterable[DataFileMeta],
    schema: TableSchema,
) -> int:
    """Return the version of the bitmap indexes in ``files``, so that new indexes get it too.

    Java Paimon 0.9 writes version 1 and fails on files with version 2. A table without bitmap
    indexes gets the default of newer releases.
    """
    if is_bitmap_version_configured(schema):
        return LATEST_BITMAP_VERSION
    versions = (read_bitmap_version(io, path_of(file), file) for file in files)
    return next((version for version in versions if version is not None), LATEST_BITMAP_VERSION)


def is_bitmap_version_configured(schema: TableSchema) -> bool:
    """Return whether the options name the version of every bitmap index."""
    specs = parse_index_specs(schema.options)
    return all(spec.index != BITMAP or spec.options.has(BITMAP_VERSION) for spec in specs)


def should_embed_index(container: bytes, schema: TableSchema) -> bool:
    """Return whether the indexes of a file are embedded in the manifest."""
    return len(container) <= schema.typed_options.get(FILE_INDEX_IN_MANIFEST_THRESHOLD)


def next_index_name(name: str) -> str:
    """Return the next name of an index file: ``x.index``, ``x-1.index``, ``x-2.index``."""
    match = _NUMBERED_INDEX_NAME.fullmatch(name)
    if match is None:
        return f"{name.removesuffix(INDEX_SUFFIX)}-1{INDEX_SUFFIX}"
    return f"{match.group(1)}-{int(match.group(2)) + 1}{INDEX_SUFFIX}"

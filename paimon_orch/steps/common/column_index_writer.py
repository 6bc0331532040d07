"""Writes btree and bitmap index files of a column.

See docs/format/global-index-files.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.global_index.bitmap_file import encode_bitmaps
from paimon_orch.format.global_index.btree_file import encode_btree
from paimon_orch.format.global_index.sorted_column import SortedColumn
from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind

_ENCODERS: Mapping[str, Callable[[SortedColumn], bytes]] = {
    "btree": encode_btree,
    "bitmap": encode_bitmaps,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIndexFile:
    """An index file to write."""

    bucket: PartitionBucket
    index_type: str
    field_id: int
    name: str
    source: AdditionalFields
    """States what the index was built from."""
    first_row: int = 0
    """The row id of position 0."""


def write_column_index(
    reader: FileReader, file: NewIndexFile, column: SortedColumn, created: list[str]
) -> IndexManifestEntry:
    """Write an index file and return its entry; add its path to ``created``."""
    data = _ENCODERS[file.index_type](column)
    location = reader.paths.new_index_file(reader.schema, *file.bucket, file.name)
    created.append(location.path)
    with reader.io.open_output(location.path) as sink:
        sink.write(data)
    return IndexManifestEntry(
        kind=FileKind.ADD,
        partition=file.bucket.partition,
        bucket=file.bucket.bucket,
        index_type=file.index_type,
        file_name=file.name,
        file_size=len(data),
        row_count=column.row_count,
        external_path=location.external,
        global_index=GlobalIndexMeta(
            row_range_start=file.first_row,
            row_range_end=file.first_row + column.row_count - 1,
            index_field_id=file.field_id,
            extra_field_ids=None,
            index_meta=column.encode_meta(),
        ),
        additional=file.source,
    )

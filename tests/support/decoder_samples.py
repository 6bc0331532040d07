"""One encoded sample for each decoder of metadata, for tests on damaged bytes."""

from collections.abc import Callable

from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    DeletionVectorRange,
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    decode_manifest,
    encode_manifest,
)
from paimon_orch.format.manifest.manifest_format import ManifestEncoding
from paimon_orch.format.manifest.manifest_list import (
    ManifestFileMeta,
    decode_manifest_list,
    encode_manifest_list,
)
from paimon_orch.format.row.simple_stats import EMPTY_STATS, SimpleStats
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

STATS = SimpleStats(b"\0" * 12, b"\1" * 20, (0, None, 5))
ENTRIES = [
    ManifestEntry(
        kind=FileKind(number % 2),
        partition=b"\0\0\0\0" + bytes(8),
        bucket=number,
        total_buckets=4,
        file=DataFileMeta(
            file_name=f"data-{number}.parquet",
            file_size=9,
            row_count=9,
            min_key=b"k",
            max_key=b"l",
            key_stats=STATS,
            value_stats=STATS,
            extra_files=("a", "b"),
        ),
    )
    for number in range(4)
]
RANGES = (DeletionVectorRange(data_file="data-0.parquet", offset=1, length=22, cardinality=1),)
INDEXES = [
    IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type=DELETION_VECTORS_INDEX,
        file_name="index-0",
        file_size=31,
        row_count=1,
        ranges=RANGES,
    )
]
LISTED = [
    ManifestFileMeta(
        file_name=f"manifest-{number}",
        file_size=9,
        num_added_files=1,
        num_deleted_files=0,
        partition_stats=EMPTY_STATS,
        schema_id=0,
    )
    for number in range(3)
]
SNAPSHOT = Snapshot(
    id=3,
    schema_id=0,
    base_manifest_list="base",
    delta_manifest_list="delta",
    commit_user="user",
    commit_identifier=7,
    commit_kind=CommitKind.APPEND,
    time_millis=1_700_000_000_000,
    total_record_count=5,
    delta_record_count=5,
)
SCHEMA = TableSchema(
    id=0,
    fields=(Field(id=0, name="id", type=AtomicType(False, TypeRoot.BIGINT)),),
    highest_field_id=0,
    partition_keys=(),
    primary_keys=("id",),
    options={"bucket": "1"},
    comment=None,
    time_millis=7,
)

FILE = "db.db/t/some/file"
Decoder = Callable[[bytes], object]
DECODERS: dict[str, tuple[bytes, Decoder]] = {
    "manifest": (encode_manifest(ENTRIES), lambda data: decode_manifest(data, FILE)),
    "plain manifest": (
        encode_manifest(ENTRIES, ManifestEncoding(codec="null")),
        lambda data: decode_manifest(data, FILE),
    ),
    "manifest list": (encode_manifest_list(LISTED), lambda data: decode_manifest_list(data, FILE)),
    "plain manifest list": (
        encode_manifest_list(LISTED, ManifestEncoding(codec="null")),
        lambda data: decode_manifest_list(data, FILE),
    ),
    "index manifest": (
        encode_index_manifest(INDEXES, ManifestEncoding(codec="null")),
        lambda data: decode_index_manifest(data, FILE),
    ),
    "snapshot": (SNAPSHOT.to_json(), lambda data: Snapshot.from_json(data, FILE)),
    "schema": (SCHEMA.to_json(), lambda data: TableSchema.from_json(data, FILE)),
}

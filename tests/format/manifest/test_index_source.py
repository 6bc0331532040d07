"""An index states whether it has positions in data files or row ids."""

from dataclasses import replace

import pytest

from paimon_orch.format.manifest.additional_fields import AdditionalFields
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import (
    IndexSource,
    covers_data_files,
    encode_source_snapshot,
)
from paimon_orch.format.manifest.manifest_entry import FileKind

_SNAPSHOT = encode_source_snapshot(7)
_NEWER_SNAPSHOT = replace(
    _SNAPSHOT, values={key: data[:7] + b"\x09" + data[8:] for key, data in _SNAPSHOT.values.items()}
)


@pytest.mark.parametrize(
    ("source", "covers_files"),
    [
        (IndexSource(level=5, files=(("data-1.parquet", 3),)).to_additional_fields(), True),
        (_SNAPSHOT, False),
        (_NEWER_SNAPSHOT, False),  # of a version that a newer release may write
        (None, False),
    ],
)
def test_only_an_index_that_lists_data_files_covers_them(
    source: AdditionalFields | None, covers_files: bool
) -> None:
    entry = IndexManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        index_type="btree",
        file_name="index-1",
        file_size=1,
        row_count=3,
        additional=source,
    )
    assert covers_data_files(entry) is covers_files

"""Fields of files are equal whether read from objects or directly from a manifest."""

from __future__ import annotations

import numpy as np
import pytest

from paimon_orch.format.manifest.columnar_manifest import ColumnarManifest, open_manifest
from paimon_orch.format.manifest.file_fields import (
    _ATTRIBUTE_BY_FIELD,
    ManifestFileFields,
    ObjectFileFields,
    build_file_fields,
)
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    encode_manifest,
)
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.format.types.data_types import parse_type

TYPES = [parse_type("BIGINT"), parse_type("STRING")]


def entries(count: int) -> list[ManifestEntry]:
    result = []
    for number in range(count):
        bounds = [ColumnStats(number, number + 9, 0), ColumnStats("a", None, None)]
        file = DataFileMeta(
            file_name=f"data-{number}.parquet", file_size=100, row_count=10 + number, value_stats=SimpleStats.of(bounds, TYPES),
            embedded_index=None if number % 3 else bytes([number % 256]) * number,
            value_stats_cols=("k", "s") if number % 5 else None,
            schema_id=number % 2,
        )  # fmt: skip
        result.append(
            ManifestEntry(
                kind=FileKind.ADD, partition=b"\0" * 12, bucket=0, total_buckets=1, file=file
            )
        )
    return result


@pytest.mark.parametrize("count", [3, 400])
def test_objects_and_columns_return_the_same_fields(count: int) -> None:
    written = entries(count)
    manifest = open_manifest(encode_manifest(written), "manifest")
    rows = np.arange(1, count, 2)

    columns = build_file_fields(manifest, rows)

    expected = ObjectFileFields([written[row].file for row in rows.tolist()])
    assert isinstance(columns, ManifestFileFields) == isinstance(manifest, ColumnarManifest)
    for field in _ATTRIBUTE_BY_FIELD:
        assert columns.get(field) == expected.get(field), field
        assert columns.take(rows[:1] - 1).get(field) == expected.get(field)[:1]
    assert columns.names == expected.names

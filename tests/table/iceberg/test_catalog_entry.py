"""Which files of an external catalog belong to the table, by their paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import new_table

from paimon_orch.format.iceberg.iceberg_metadata import IcebergMetadata
from paimon_orch.table.iceberg.catalog_entry import PublishedMetadata

OF_TABLE = "s3://lake/shop.db/orders/metadata"
IN_CATALOG = "s3://lake/iceberg/shop/orders/metadata"


@pytest.mark.parametrize(
    ("path", "is_in_store", "is_in_directory"),
    [
        (f"{OF_TABLE}/v1.metadata.json", True, True),
        (f"{OF_TABLE.replace('s3:', 's3a:')}/v1.metadata.json", True, True),
        (f"{IN_CATALOG}/v1.metadata.json", True, True),
        (f"{OF_TABLE}/more/v1.metadata.json", True, False),
        ("s3://lake/shop.db/carts/metadata/v1.metadata.json", True, False),
        (f"{OF_TABLE.replace('lake', 'pond')}/v1.metadata.json", False, False),
        (f"{OF_TABLE.replace('s3:', 'gs:')}/v1.metadata.json", False, False),
        (OF_TABLE.removeprefix("s3:/"), False, False),
    ],
)
def test_files_are_found_in_the_store_and_in_the_directories_of_the_table(
    tmp_path: Path, path: str, *, is_in_store: bool, is_in_directory: bool
) -> None:
    metadata = IcebergMetadata(
        format_version=2,
        table_uuid="",
        location="s3://lake/shop.db/orders",
        last_updated_millis=0,
        last_column_id=0,
        schemas=[],
        current_schema_id=0,
        partition_spec=[],
        snapshots=[],
    )
    published = PublishedMetadata(
        path=f"{OF_TABLE}/v2.metadata.json",
        metadata=metadata,
        schema=new_table(tmp_path).load().schema,
        is_of_table=lambda _: True,
    )

    assert published.is_in_store(path) == is_in_store
    assert published.is_in_metadata_directory(path) == is_in_directory

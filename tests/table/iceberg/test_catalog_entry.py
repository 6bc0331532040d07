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
    published = published_at(tmp_path, "s3://lake/shop.db/orders")

    assert published.is_in_store(path) == is_in_store
    assert published.is_in_metadata_directory(path) == is_in_directory


@pytest.mark.parametrize(
    ("stored", "location"),
    [
        ("s3a://lake/t", "s3://lake/t"),
        ("gcs://lake/t", "gs://lake/t"),
        ("abfss://lake@account.dfs.core.windows.net/t", "abfss://lake@account.dfs.core.windows.net/t"),
        ("file:/lake/t", "/lake/t"),
    ],
)  # fmt: skip
def test_a_catalog_gets_a_location_that_it_knows(
    tmp_path: Path, stored: str, location: str
) -> None:
    """A catalog that allows abfss:// refuses abfs://."""
    assert published_at(tmp_path, stored).location == location


def published_at(root: Path, location: str) -> PublishedMetadata:
    metadata = IcebergMetadata(
        format_version=2,
        table_uuid="",
        location=location,
        last_updated_millis=0,
        last_column_id=0,
        schemas=[],
        current_schema_id=0,
        partition_spec=[],
        snapshots=[],
    )
    return PublishedMetadata(
        path=f"{OF_TABLE}/v2.metadata.json",
        metadata=metadata,
        schema=new_table(root).load().schema,
        is_of_table=lambda _: True,
    )

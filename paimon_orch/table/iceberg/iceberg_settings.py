"""The options ``metadata.iceberg.*`` of a table, and where its Iceberg metadata is.

See docs/format/iceberg-metadata.md#options.
"""

from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.manifest.manifest_format import AVRO_CODECS
from paimon_orch.format.options.core_options import (
    AVRO_SETTING,
    ICEBERG_COMPACTION_MAX_FILE_NUM,
    ICEBERG_COMPACTION_MIN_FILE_NUM,
    ICEBERG_DELETE_AFTER_COMMIT,
    ICEBERG_FORMAT_VERSION,
    ICEBERG_MANIFEST_COMPRESSION,
    ICEBERG_MANIFEST_LEGACY_VERSION,
    ICEBERG_PREVIOUS_VERSIONS_MAX,
    ICEBERG_STORAGE,
    ICEBERG_STORAGE_LOCATION,
    MANIFEST_TARGET_FILE_SIZE,
)
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema

DISABLED, TABLE_LOCATION, CATALOG_LOCATION = "disabled", "table-location", "catalog-location"
HIVE_CATALOG, REST_CATALOG = "hive-catalog", "rest-catalog"
_STORAGES = (TABLE_LOCATION, "hadoop-catalog", HIVE_CATALOG, REST_CATALOG)
"""Storages for which this library publishes."""
_DATABASE_SUFFIX = ".db"
_CODEC_ALIASES = {"zstd": "zstandard", "none": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSettings:
    """How the Iceberg metadata of a table is written."""

    directory: str
    """The directory of the metadata, manifest lists and manifests."""
    format_version: int
    publishes_vectors: bool
    """Whether readers get the deletion vectors of the table."""
    codec: str
    """The Avro codec of manifests and manifest lists."""
    level: int
    """The compression level of the codec ``zstandard``."""
    legacy_lists: bool
    """Whether manifest lists have the old names of their counts."""
    target_manifest_size: int
    """Bytes."""
    min_small_manifests: int
    max_small_manifests: int
    previous_versions: int
    """The number of older metadata files to keep."""
    deletes_old_versions: bool


def is_iceberg_enabled(schema: TableSchema) -> bool:
    """Return whether the options of a table ask for Iceberg metadata."""
    return bool(schema.typed_options.get(ICEBERG_STORAGE) != DISABLED)


def build_iceberg_settings(schema: TableSchema, paths: TablePaths) -> IcebergSettings | None:
    """Return the settings of a table, or None if no Iceberg metadata is written for it.

    None is written for branches. Raises :class:`InputError` if the location of the metadata cannot
    be derived from the path of the table.
    """
    options = schema.typed_options
    if options.get(ICEBERG_STORAGE) not in _STORAGES or paths.branch != MAIN_BRANCH:
        return None
    codec = options.get(AVRO_SETTING.named("codec")) or options.get(ICEBERG_MANIFEST_COMPRESSION)
    codec = _CODEC_ALIASES.get(codec.lower(), codec.lower())
    if codec not in AVRO_CODECS:
        raise InputError(
            f"the compression {codec!r} of '{ICEBERG_MANIFEST_COMPRESSION.key}' or 'avro.codec' "
            f"must be one of {', '.join(AVRO_CODECS)}"
        )
    version = options.get(ICEBERG_FORMAT_VERSION)
    return IcebergSettings(
        directory=find_metadata_directory(schema, paths),
        format_version=version,
        publishes_vectors=publishes_vectors(schema),
        codec=codec,
        level=options.zstd_level,
        legacy_lists=options.get(ICEBERG_MANIFEST_LEGACY_VERSION),
        target_manifest_size=options.get(MANIFEST_TARGET_FILE_SIZE),
        min_small_manifests=options.get(ICEBERG_COMPACTION_MIN_FILE_NUM),
        max_small_manifests=options.get(ICEBERG_COMPACTION_MAX_FILE_NUM),
        previous_versions=options.get(ICEBERG_PREVIOUS_VERSIONS_MAX),
        deletes_old_versions=options.get(ICEBERG_DELETE_AFTER_COMMIT),
    )


def find_external_directory(schema: TableSchema, paths: TablePaths) -> str | None:
    """Return the directory of a table's Iceberg metadata if it is outside of the table."""
    settings = build_iceberg_settings(schema, paths)
    if settings is None or settings.directory.startswith(f"{paths.root}/"):
        return None
    return settings.directory


def publishes_vectors(schema: TableSchema) -> bool:
    """Return whether Iceberg readers get the deletion vectors: 64-bit ones, in version 3."""
    options = schema.typed_options
    version = options.get(ICEBERG_FORMAT_VERSION)
    return options.has_deletion_vectors and options.bitmap64 and version >= 3


def find_metadata_directory(schema: TableSchema, paths: TablePaths) -> str:
    """Return the directory of the Iceberg metadata.

    See docs/format/iceberg-metadata.md#location-and-file-names.
    """
    options = schema.typed_options
    location = options.get(ICEBERG_STORAGE_LOCATION)
    if location is None:
        in_table = options.get(ICEBERG_STORAGE) == TABLE_LOCATION
        location = TABLE_LOCATION if in_table else CATALOG_LOCATION
    table_location, *in_catalog = list_metadata_directories(paths.root)
    if location == TABLE_LOCATION:
        return table_location
    if not in_catalog:
        raise InputError(
            f"{paths.root}: Iceberg metadata in a catalog location needs a table directory "
            f"<warehouse>/<database>{_DATABASE_SUFFIX}/<table>. Set "
            f"'{ICEBERG_STORAGE_LOCATION.key}' = '{TABLE_LOCATION}'."
        )
    return in_catalog[0]


def list_metadata_directories(root: str) -> list[str]:
    """Return the location in the table, and that in the catalog if the path has the form for it."""
    database_path, _, table = root.rpartition("/")
    warehouse, _, database = database_path.rpartition("/")
    if not database.endswith(_DATABASE_SUFFIX):
        return [f"{root}/metadata"]
    name = database.removesuffix(_DATABASE_SUFFIX)
    return [f"{root}/metadata", f"{warehouse}/iceberg/{name}/{table}/metadata"]

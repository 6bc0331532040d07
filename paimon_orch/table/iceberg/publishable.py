"""Which tables can be published as Iceberg metadata; others are refused before a commit.

See docs/format/iceberg-metadata.md#options.
"""

from collections.abc import Callable, Iterable, Iterator

from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_avro_fields,
)
from paimon_orch.format.iceberg.type_promotion import check_promotable
from paimon_orch.format.options.core_options import (
    DATA_EVOLUTION_ENABLED,
    FILE_FORMAT_PER_LEVEL,
    ICEBERG_STORAGE,
)
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import (
    Field,
    TypeRoot,
    has_atom,
    list_nested_fields,
    type_to_sql,
)
from paimon_orch.table.iceberg.iceberg_settings import DISABLED, build_iceberg_settings
from paimon_orch.table.iceberg.open_catalog_entry import open_catalog_entry
from paimon_orch.table.iceberg.visible_files import (
    ALL_LEVELS,
    AVRO,
    FILE_FORMATS,
    PARQUET,
    find_visible_levels,
)


def check_publishable(table: str, schema: TableSchema, paths: TablePaths) -> None:
    """Refuse a table with Iceberg metadata that Iceberg readers could not read correctly.

    Raises :class:`UnsupportedError` with the reason and advice.
    """
    try:
        check_readable(table, schema, paths)
    except PaimonError as error:
        raise UnsupportedError(
            f"cannot change {table}: option '{ICEBERG_STORAGE.key}' = "
            f"{schema.options[ICEBERG_STORAGE.key]!r} asks for Iceberg metadata, but {str(error).rstrip('.')}. "
            f"Otherwise set the option to {DISABLED!r}, or allow one run without new Iceberg metadata: "
            "--allow-stale-external, in Python Table.allow(stale_external=True), in Dagster "
            "allow_stale_external: true. Readers of the old Iceberg metadata then see old rows, and "
            "fail when the files of these rows expire. Nothing was changed."
        ) from error


def check_readable(identifier: str, schema: TableSchema, paths: TablePaths) -> None:
    """Raise an error if Iceberg readers could not read a table with these options and columns.

    Does not connect to an external catalog.
    """
    options = schema.typed_options
    settings = build_iceberg_settings(schema, paths)
    if settings is None:  # a branch other than main is never published
        return
    if settings.format_version not in (2, 3):
        raise InputError(f"the format version {settings.format_version} is neither 2 nor 3")
    open_catalog_entry(identifier, schema, paths)
    _check_file_formats(schema)
    build_iceberg_schema(schema, settings.format_version)
    build_partition_avro_fields(schema)
    if options.get(DATA_EVOLUTION_ENABLED):
        raise UnsupportedError("Iceberg has no files with part of the columns (data evolution)")
    shows_deleted_rows = options.has_deletion_vectors and not settings.publishes_vectors
    if shows_deleted_rows and find_visible_levels(schema) == ALL_LEVELS:
        raise UnsupportedError(
            "Iceberg readers see deletion vectors of append tables only with "
            "'metadata.iceberg.format-version' = '3' and 'deletion-vectors.bitmap64' = 'true'"
        )


def _check_file_formats(schema: TableSchema) -> None:
    options = schema.typed_options
    formats = {options.file_format(), *options.get(FILE_FORMAT_PER_LEVEL).values()}
    if unknown := sorted(formats - FILE_FORMATS):
        raise UnsupportedError(f"Iceberg has no data files of the format {', '.join(unknown)}")
    if AVRO in formats:
        check_avro_types(schema)


def check_avro_types(schema: TableSchema) -> None:
    """Refuse types whose form in Avro files no Iceberg reader knows: with one, it reads no column.

    Raises :class:`UnsupportedError`.
    """
    for field in schema.fields:
        if has_atom(field.type, TypeRoot.TIMESTAMP_LTZ):
            raise UnsupportedError(
                f"column {field.name!r} has type {type_to_sql(field.type)}, which Iceberg readers "
                "cannot read in Avro files; set 'file.format' to 'parquet' and compact the table "
                "fully with 'compaction.force-rewrite-all-files' = true"
            )


def check_files_readable(
    schema: TableSchema,
    schemas: Iterable[TableSchema],
    read_files: Callable[[], set[tuple[int, str]]],
) -> None:
    """Refuse to publish a schema with which Iceberg cannot read existing data files.

    ``read_files`` returns the schema ids and formats of all visible files; it is called only if
    files of some older schema cannot be read. Raises :class:`UnsupportedError`.
    """
    errors: dict[tuple[int, str], UnsupportedError] = {}
    for older in schemas:
        for file_format in FILE_FORMATS:
            try:
                check_promotable(older, schema)
                if file_format != PARQUET:
                    check_same_names(older, schema)
                if file_format == AVRO:
                    check_avro_types(older)
            except UnsupportedError as error:
                errors[older.id, file_format] = error
    for file in read_files() if errors else ():
        if file in errors:
            raise errors[file]


def check_same_names(older: TableSchema, schema: TableSchema) -> None:
    """Refuse renamed columns, which Iceberg can only find by the field ids of Parquet files.

    Raises :class:`UnsupportedError`.
    """
    names = dict(_iterate_names(older.fields))
    ids = {name: field_id for field_id, name in names.items()}
    for field_id, name in _iterate_names(schema.fields):
        if names.get(field_id, name) != name or ids.get(name, field_id) != field_id:
            raise UnsupportedError(
                f"column {name[1]!r} has another name in ORC or Avro files of schema {older.id}, "
                "and Iceberg finds their columns by name; compact the table fully with "
                "'compaction.force-rewrite-all-files' = true, so that all files have the newest "
                "schema"
            )


def _iterate_names(
    fields: Iterable[Field], parent: int | None = None
) -> Iterator[tuple[int, tuple[int | None, str]]]:
    """Yield the ids of columns and nested fields, each with its parent's id and its name."""
    for field in fields:
        yield field.id, (parent, field.name)
        yield from _iterate_names(list_nested_fields(field.type), field.id)

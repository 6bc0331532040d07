"""The objects of a Hive metastore that describe Paimon tables, as Java Paimon writes them.

See docs/format/catalogs.md#tables-of-a-metastore.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from paimon_orch.catalog.hive.hive_settings import LOCATION_IN_PROPERTIES, SYNC_ALL_PROPERTIES
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    METASTORE_PARTITIONED_TABLE,
    METASTORE_TAG_TO_PARTITION,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field
from paimon_orch.metastore.hive_client import import_thrift_types
from paimon_orch.metastore.hive_types import to_hive_type

EXTERNAL_TABLE, MANAGED_TABLE = "EXTERNAL_TABLE", "MANAGED_TABLE"
PATH_DIRECTORY = "data-file.path-directory"
LOCATION_PROPERTY = "paimon_location"

_INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
_OUTPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
_SERIALIZATION_LIBRARY = "org.apache.paimon.hive.PaimonSerDe"
_STORAGE_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"
_HIVE_PREFIX = "hive."
_RETENTION = 2147483647
_COPIED_WITHOUT_SYNC = ("partition.expiration-time", PATH_DIRECTORY)


def is_paimon_table(table: Any) -> bool:
    """Return whether an entry of the metastore is a Paimon table, by its formats as Java does."""
    sd = table.sd
    return sd is not None and (sd.inputFormat, sd.outputFormat) == (_INPUT_FORMAT, _OUTPUT_FORMAT)


def is_external(table: Any) -> bool:
    """Return whether the files are kept when the table is dropped."""
    return bool(table.tableType == EXTERNAL_TABLE)


def is_created_external(options: Mapping[str, str], *, by_default: bool) -> bool:
    """Return whether a new table with these options is external."""
    external = options.get("external") or options.get("EXTERNAL") or ""
    return by_default or external.upper() == "TRUE"


def get_table_location(table: Any, options: Options) -> str | None:
    """Return the location of a table of the metastore."""
    location: str | None = table.sd.location
    if options.get(LOCATION_IN_PROPERTIES):
        location = (table.parameters or {}).get(LOCATION_PROPERTY) or location
    return location


def get_database_location(database: Any, options: Options) -> str | None:
    """Return the location of a database of the metastore."""
    location: str | None = database.locationUri
    if options.get(LOCATION_IN_PROPERTIES):
        location = (database.parameters or {}).get(LOCATION_PROPERTY) or location
    return location


def build_database(name: str, location: str, options: Options) -> Any:
    """Return a new database."""
    in_properties = options.get(LOCATION_IN_PROPERTIES)
    return import_thrift_types().Database(
        name=name,
        locationUri=None if in_properties else location,
        parameters={LOCATION_PROPERTY: location} if in_properties else {},
    )


def build_hive_table(
    identifier: TableIdentifier,
    schema: TableSchema,
    options: Options,
    *,
    owner: str,
    external: bool,
) -> Any:
    """Return a new table without columns and location; see :func:`set_schema`."""
    seconds = int(time.time())
    parameters = _build_parameters(schema, options)
    if not options.get(SYNC_ALL_PROPERTIES):
        copied = {key: schema.options.get(key) for key in _COPIED_WITHOUT_SYNC}
        parameters |= {key: value for key, value in copied.items() if value is not None}
    parameters |= {"table_type": "PAIMON", "storage_handler": _STORAGE_HANDLER}
    if external:
        parameters["EXTERNAL"] = "TRUE"
    return import_thrift_types().Table(
        tableName=identifier.table,
        dbName=identifier.database,
        owner=owner,
        createTime=seconds,
        lastAccessTime=seconds,
        retention=_RETENTION,
        partitionKeys=[],
        parameters=parameters,
        tableType=EXTERNAL_TABLE if external else MANAGED_TABLE,
    )


def update_parameters(
    table: Any, schema: TableSchema, options: Options, removed: Iterable[str]
) -> None:
    """Write the options of a changed schema into the parameters of its table."""
    table.parameters = {**(table.parameters or {}), **_build_parameters(schema, options)}
    for key in removed:
        table.parameters.pop(key, None)


def _build_parameters(schema: TableSchema, options: Options) -> dict[str, str]:
    if not options.get(SYNC_ALL_PROPERTIES):
        return {
            key.removeprefix(_HIVE_PREFIX): value
            for key, value in schema.options.items()
            if key.startswith(_HIVE_PREFIX)
        }
    return schema.list_properties()


def set_schema(
    table: Any, schema: TableSchema, location: str, options: Options, local_timestamp: str
) -> None:
    """Write columns, comment, formats and location of a schema into its table."""
    types = import_thrift_types()
    sd = table.sd or types.StorageDescriptor()
    sd.inputFormat, sd.outputFormat = _INPUT_FORMAT, _OUTPUT_FORMAT
    sd.serdeInfo = sd.serdeInfo or types.SerDeInfo()
    sd.serdeInfo.parameters = {}
    sd.serdeInfo.serializationLib = _SERIALIZATION_LIBRARY
    table.sd = sd
    is_partitioned = schema.typed_options.get(METASTORE_PARTITIONED_TABLE)
    partition_keys = schema.partition_keys if is_partitioned else ()
    tag_column = schema.typed_options.get(METASTORE_TAG_TO_PARTITION)
    sd.cols = [
        _to_column(field, local_timestamp)
        for field in schema.fields
        if field.name not in partition_keys
    ]
    if partition_keys:
        fields = schema.select(partition_keys)
        table.partitionKeys = [_to_column(field, local_timestamp) for field in fields]
    elif tag_column is not None:
        table.partitionKeys = [types.FieldSchema(name=tag_column, type="string")]
    if schema.comment is not None:
        table.parameters["comment"] = schema.comment
    set_location(table, location, options)


def set_location(table: Any, location: str, options: Options) -> None:
    """Write a location to the place that the options of the catalog name."""
    if options.get(LOCATION_IN_PROPERTIES):
        table.parameters[LOCATION_PROPERTY] = location
    else:
        table.sd.location = location


def _to_column(field: Field, local_timestamp: str) -> Any:
    return import_thrift_types().FieldSchema(
        name=field.name,
        type=to_hive_type(field.type, local_timestamp),
        comment=field.description,
    )


def list_column_types(table: Any) -> list[str]:
    """Return the Hive types of the columns and partition keys of a table."""
    return [column.type for column in (*table.sd.cols, *(table.partitionKeys or ()))]

"""The Iceberg table in a Hive metastore that points to the published metadata.

See docs/format/iceberg-metadata.md#hive-metastores.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_orch.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    InputError,
    NotFoundError,
    UnsupportedError,
)
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    ICEBERG_GLUE_SKIP_ARCHIVE,
    ICEBERG_HIVE_CLIENT_CLASS,
    ICEBERG_HIVE_CONF_DIR,
    ICEBERG_HIVE_SKIP_UPDATE_STATS,
    ICEBERG_STORAGE,
    ICEBERG_URI,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field
from paimon_orch.metastore.hive_address import (
    CLIENT_CLASS,
    CONNECTION_OPTIONS,
    SECURITY_OPTIONS,
    SITE_FILE,
    SITE_URIS,
    build_address,
    check_connection_settings,
    read_hive_site,
)
from paimon_orch.metastore.hive_client import HiveClient, import_thrift_types, request_table
from paimon_orch.metastore.hive_types import choose_local_timestamp, to_hive_type
from paimon_orch.table.iceberg.catalog_entry import EntryState, PublishedMetadata
from paimon_orch.table.iceberg.metadata_store import find_versions, get_file_name, normalize_path

_TABLE_TYPE, _ICEBERG = "table_type", "ICEBERG"
_LOCATION, _PREVIOUS_LOCATION = "metadata_location", "previous_metadata_location"
_INPUT_FORMAT = "org.apache.hadoop.mapred.FileInputFormat"
_OUTPUT_FORMAT = "org.apache.hadoop.mapred.FileOutputFormat"
_SERIALIZATION_LIBRARY = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_PAIMON_LOCATION = "paimon_location"
_PAIMON_INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
_STATS = "DO_NOT_UPDATE_STATS"
_RETENTION = 2147483647
_MAX_COMMENT = 255
_LINE_END = re.compile(r"[\r\n]")
_CHANGED_MEANWHILE = "The table has been modified"
"""In the message of a metastore whose table does not have the expected parameter."""


def open_hive_entry(schema: TableSchema, names: Sequence[tuple[str, str]]) -> "HiveEntry":
    """Open the entries of a table, which have these databases and names."""
    options = schema.typed_options
    import_thrift_types()
    client_class = options.get(ICEBERG_HIVE_CLIENT_CLASS)
    if client_class != CLIENT_CLASS:
        raise InputError(
            f"'{ICEBERG_HIVE_CLIENT_CLASS.key}' = {client_class!r} is not supported, only "
            f"{CLIENT_CLASS}"
        )
    conf_dir = options.get(ICEBERG_HIVE_CONF_DIR)
    site = read_hive_site(conf_dir, option=ICEBERG_HIVE_CONF_DIR.key)
    settings = {**site, **schema.options}  # Java gives all options of the table to its client
    for option in SECURITY_OPTIONS:
        if option.key in schema.options:  # whoever may change it must not lower the security
            raise InputError(
                f"option {option.key!r} is not read from a table; set it in {SITE_FILE}, in the "
                f"directory of '{ICEBERG_HIVE_CONF_DIR.key}' or of the variable HIVE_CONF_DIR"
            )
    check_connection_settings(settings)
    uris = options.get(ICEBERG_URI) or settings.get(SITE_URIS)
    if not uris:
        raise InputError(
            f"'{ICEBERG_STORAGE.key}' = 'hive-catalog' needs the option '{ICEBERG_URI.key}', or "
            f"'{ICEBERG_HIVE_CONF_DIR.key}' with a {SITE_FILE} that has {SITE_URIS}"
        )
    connection = {o.key: settings[o.key] for o in CONNECTION_OPTIONS if o.key in settings}
    return HiveEntry(
        client=HiveClient(build_address(uris, Options(connection), option=ICEBERG_URI.key)),
        databases=tuple(database for database, _ in names),
        table=names[0][1],
        options=options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveEntry:
    """The Iceberg table in one or more databases of a metastore."""

    client: HiveClient
    databases: tuple[str, ...]
    table: str
    options: Options
    """The options of the Paimon table."""

    def read_state(self, published: PublishedMetadata) -> EntryState:
        """Compare the entries with the published metadata."""
        state = EntryState()
        for database in self.databases:
            state = self._compare(database, self._find_table(database), published)
            if state.problem is not None:
                break
        return state

    def update(self, published: PublishedMetadata, is_latest: Callable[[], bool]) -> bool:
        """Point the entries to the published metadata."""
        return all(self._update(database, published, is_latest) for database in self.databases)

    def _compare(self, database: str, entry: Any, published: PublishedMetadata) -> EntryState:
        where = f"{database}.{self.table} in the metastore {self.client.address}"
        if entry is None:
            return EntryState(problem=f"{where} does not exist")
        parameters: Mapping[str, str] = entry.parameters or {}
        location = parameters.get(_LOCATION)
        if parameters.get(_TABLE_TYPE, "").upper() != _ICEBERG or location is None:
            return EntryState(problem=f"{where} is not an Iceberg table")
        snapshot_id = next(iter(find_versions([get_file_name(location)])), None)
        if normalize_path(location) != normalize_path(published.path):
            problem = f"{where} points to {location}, and the newest metadata is {published.path}"
            return EntryState(snapshot_id=snapshot_id, problem=problem)
        if _list_names(entry.sd.cols) != _list_names(self._build_columns(entry, published.schema)):
            return EntryState(snapshot_id=snapshot_id, problem=f"{where} has other columns")
        return EntryState(snapshot_id=snapshot_id)

    def _update(
        self, database: str, published: PublishedMetadata, is_latest: Callable[[], bool]
    ) -> bool:
        entry = self._find_table(database)
        if entry is not None and self._compare(database, entry, published).problem is None:
            return True
        if not is_latest():
            return False
        if entry is None:
            return self._create(database, published)
        self._require_ours(database, entry, published)
        parameters = entry.parameters
        previous = parameters.get(_LOCATION)
        properties = self._build_properties()
        if previous is not None:  # metastores before 2.3.10 ignore this
            properties["expected_parameter_key"] = _LOCATION
            properties["expected_parameter_value"] = previous
            if normalize_path(previous) != normalize_path(published.path):
                parameters[_PREVIOUS_LOCATION] = previous
        parameters |= {_TABLE_TYPE: _ICEBERG, _LOCATION: published.path}
        if entry.sd.inputFormat == _INPUT_FORMAT:  # Hive 2.3 drops it from new tables
            parameters[_STATS] = properties[_STATS]
        entry.sd.cols = self._build_columns(entry, published.schema)
        try:
            self.client.write(
                "alter_table_with_environment_context",
                database,
                self.table,
                entry,
                import_thrift_types().EnvironmentContext(properties=properties),
            )
        except CatalogUnavailableError as error:
            if _CHANGED_MEANWHILE in str(error):
                return False
            raise
        return True

    def _build_properties(self) -> dict[str, str]:
        return {
            "CASCADE": "true",
            "skipAWSGlueArchive": _to_text(flag=self.options.get(ICEBERG_GLUE_SKIP_ARCHIVE)),
            _STATS: _to_text(flag=self.options.get(ICEBERG_HIVE_SKIP_UPDATE_STATS)),
        }

    def _require_ours(self, database: str, entry: Any, published: PublishedMetadata) -> None:
        """Refuse an entry that shows another table.

        Iceberg engines that wrote this one have left a file of theirs in its directory.
        """
        location = (entry.parameters or {}).get(_LOCATION)
        if entry.sd is None:  # a view
            is_ours = False
        elif entry.sd.inputFormat == _PAIMON_INPUT_FORMAT:
            root = entry.parameters.get(_PAIMON_LOCATION) or entry.sd.location or ""
            is_ours = normalize_path(root) == normalize_path(published.metadata.location)
        elif location is None:
            is_ours = entry.sd.inputFormat == _INPUT_FORMAT  # Java creates it without a location
        else:
            # A table that was renamed or moved had other directories.
            is_ours = published.is_in_metadata_directory(location) or (
                published.is_in_store(location) and published.is_of_table(location)
            )
        if not is_ours:
            raise UnsupportedError(
                f"{database}.{self.table} in the metastore {self.client.address} is another table, "
                "which is not replaced; set 'metadata.iceberg.database' or "
                "'metadata.iceberg.table' to another name, or drop it in Hive if "
                "it is not needed"
            )

    def _create(self, database: str, published: PublishedMetadata) -> bool:
        """Create the table, and the database if it is missing; return False if another did."""
        types = import_thrift_types()
        location = published.path.rpartition("/")[0].rpartition("/")[0]
        try:
            self.client.read("get_database", database)
        except NotFoundError:
            new = types.Database(name=database, locationUri=location.rpartition("/")[0])
            try:
                self.client.write("create_database", new)
            except AlreadyExistsError:
                return False
        seconds = int(time.time())
        entry = types.Table(
            tableName=self.table,
            dbName=database,
            owner=self.client.address.user,
            createTime=seconds,
            lastAccessTime=seconds,
            retention=_RETENTION,
            sd=types.StorageDescriptor(
                location=location,
                inputFormat=_INPUT_FORMAT,
                outputFormat=_OUTPUT_FORMAT,
                serdeInfo=types.SerDeInfo(serializationLib=_SERIALIZATION_LIBRARY),
            ),
            partitionKeys=[],
            parameters={
                _STATS: self._build_properties()[_STATS],
                "EXTERNAL": "TRUE",
                _TABLE_TYPE: _ICEBERG,
                _LOCATION: published.path,
            },
            tableType="EXTERNAL_TABLE",
        )
        entry.sd.cols = self._build_columns(entry, published.schema)
        try:
            self.client.write("create_table", entry)
        except AlreadyExistsError:
            return False
        return True

    def _find_table(self, database: str) -> Any:
        try:
            return self.client.read("get_table_req", request_table(database, self.table)).table
        except NotFoundError:
            return None

    def _build_columns(self, entry: Any, schema: TableSchema) -> list[Any]:
        """Return the columns; those that the entry has as partition keys are not repeated."""
        existing = [*(entry.sd.cols or ()), *(entry.partitionKeys or ())]
        names = [column.type for column in existing]
        types = [field.type for field in schema.fields]
        local_timestamp = choose_local_timestamp(self.client, types, names)
        keys = {key.name for key in entry.partitionKeys or ()}
        return [
            import_thrift_types().FieldSchema(
                name=field.name,
                type=to_hive_type(field.type, local_timestamp),
                comment=_shorten_comment(field),
            )
            for field in schema.fields
            if field.name.lower() not in keys
        ]


def _to_text(*, flag: bool) -> str:
    return "true" if flag else "false"


def _list_names(columns: list[Any]) -> list[tuple[str, str]]:
    """Return names and types; the metastore stores both in lower case."""
    return [(column.name.lower(), column.type.lower()) for column in columns or ()]


def _shorten_comment(field: Field) -> str | None:
    """Return the comment as Glue accepts it: one line of limited length."""
    if field.description is None:
        return None
    text = _LINE_END.sub(" ", field.description)
    return text if len(text) <= _MAX_COMMENT else f"{text[: _MAX_COMMENT - 3]}..."

"""The hook of connections of the type ``paimon``."""

from typing import Any

from airflow.sdk import BaseHook

from paimon_orch.airflow.catalog_connection import open_connection
from paimon_orch.airflow.provider import CONNECTION_TYPE, build_form
from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import NotFoundError, PaimonError
from paimon_orch.format.display import format_count
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.safe_text import clean_line
from paimon_orch.table.table import Table

DEFAULT_CONNECTION = "paimon_default"


class PaimonHook(BaseHook):
    """Opens the catalog of a connection, and lists its tables.

    The field *warehouse* (``host``) is the location of the tables, or the warehouse of a catalog
    with a metastore, and the field *token* (``password``) the bearer token of a REST catalog. The
    extra fields are ``catalog`` (a configured catalog, in place of a warehouse), ``metastore``,
    ``uri``, ``catalog_options``, ``storage_options``, ``allow_stale_external`` and
    ``allow_unknown_options``.
    """

    conn_name_attr = "paimon_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = CONNECTION_TYPE
    hook_name = "Apache Paimon"

    def __init__(self, paimon_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.paimon_conn_id = paimon_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the labels of the form for Airflow 3.1; newer releases ask the provider."""
        return {name.replace("-", "_"): value for name, value in build_form().items()}

    def get_conn(self) -> Catalog:
        """Return the catalog; this reads no table."""
        return open_connection(self.get_connection(self.paimon_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the databases of the catalog can be listed, and a sentence."""
        try:
            catalog = self.get_conn()
            count = len(catalog.databases())
        except (PaimonError, OSError) as error:
            return False, clean_line(f"{type(error).__name__}: {error}")
        return True, f"The catalog has {format_count(count, 'database')}."

    def list_namespaces(self) -> list[str]:
        """Return the names of the databases."""
        return self.get_conn().databases()

    def list_tables(self, namespace: str) -> list[str]:
        """Return the names of the tables of a database, without its name."""
        return self.get_conn().tables(namespace)

    def load_table(self, table: str) -> Table:
        """Return ``database.table``; raises :class:`NotFoundError` if it does not exist."""
        return self.get_conn().table(table)

    def table_exists(self, table: str) -> bool:
        """Return whether ``database.table`` exists."""
        try:
            self.load_table(table)
        except NotFoundError:
            return False
        return True

    def get_table_schema(self, table: str) -> dict[str, Any]:
        """Return the columns, the keys and the options of a table as JSON values.

        Credentials are masked, because a task keeps what it returns.
        """
        schema = self.load_table(table).load().schema
        return {
            "id": schema.id,
            "columns": [{"name": field.name, "type": str(field.type)} for field in schema.fields],
            "partition_keys": list(schema.partition_keys),
            "primary_keys": list(schema.primary_keys),
            "options": hide_secrets(schema.options),
            "comment": schema.comment,
        }

    def get_snapshots(self, table: str) -> list[dict[str, Any]]:
        """Return the snapshots of a table, the oldest first, as JSON values."""
        snapshots = self.load_table(table).system("snapshots").scan().to_arrow()
        rows: list[dict[str, Any]] = snapshots.to_pylist()
        return [_to_json(row) for row in rows]


def _to_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in row.items()
    }

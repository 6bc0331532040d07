"""The tables of a JDBC catalog, with the names and types of Java.

See docs/format/catalogs.md#tables-of-the-database.
"""

import sqlalchemy as sa

METADATA = sa.MetaData()


def _name(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.String(255), primary_key=True, nullable=False)


TABLES = sa.Table(
    "paimon_tables", METADATA, _name("catalog_key"), _name("database_name"), _name("table_name")
)
DATABASE_PROPERTIES = sa.Table(
    "paimon_database_properties",
    METADATA,
    _name("catalog_key"),
    _name("database_name"),
    _name("property_key"),
    sa.Column("property_value", sa.String(1000)),
)
TABLE_PROPERTIES = sa.Table(
    "paimon_table_properties",
    METADATA,
    _name("catalog_key"),
    _name("database_name"),
    _name("table_name"),
    _name("property_key"),
    sa.Column("property_value", sa.String(1000)),
)
VIEWS = sa.Table(
    "paimon_views",
    METADATA,
    _name("catalog_key"),
    _name("database_name"),
    _name("view_name"),
    sa.Column("view_schema", sa.Text, nullable=False),
)


def build_lock_table(key_length: int) -> sa.Table:
    """Return the table of locks; the length of its key is an option."""
    return sa.Table(
        "paimon_distributed_locks",
        sa.MetaData(),
        sa.Column("lock_id", sa.String(key_length), primary_key=True, nullable=False),
        sa.Column(
            "acquired_at", sa.TIMESTAMP, server_default=sa.func.current_timestamp(), nullable=False
        ),
        sa.Column(
            "expire_time_seconds", sa.BigInteger, server_default=sa.text("0"), nullable=False
        ),
    )


LOCKS = build_lock_table(255)

"""Writes the schema of a table as a statement of Flink SQL."""

from collections.abc import Iterable

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.safe_text import escape_line


def build_create_statement(identifier: str, schema: TableSchema) -> str:
    """Return a ``CREATE TABLE`` statement of Flink SQL.

    Default values, which Flink SQL cannot declare, are in comments before it. The values of options
    with credentials are ``***``. Raises :class:`UnsupportedError` for names with characters that
    cannot be seen.
    """
    columns = list(map(_format_column, schema.fields))
    if key := _quote_names(schema.primary_keys):
        columns.append(f"PRIMARY KEY ({key}) NOT ENFORCED")
    table = ".".join(map(_quote_name, identifier.split(".", 1)))
    parts = [f"CREATE TABLE {table} (", _indent(columns), ")"]
    if schema.comment is not None:
        parts.append(f"COMMENT {_quote_text(schema.comment)}")
    if schema.partition_keys:
        parts.append(f"PARTITIONED BY ({_quote_names(schema.partition_keys)})")
    if schema.options:
        options = sorted(hide_secrets(schema.options).items())
        settings = [f"{_quote_text(key)} = {_quote_text(value)}" for key, value in options]
        parts += ["WITH (", _indent(settings), ")"]
    return "\n".join([*_format_defaults(schema.fields), *parts]) + ";"


def _format_defaults(fields: Iterable[Field]) -> list[str]:
    return [
        f"-- the column {field.name!r} has the default value {field.default_value!r}"
        for field in fields
        if field.default_value is not None
    ]


def _format_column(field: Field) -> str:
    comment = "" if field.description is None else f" COMMENT {_quote_text(field.description)}"
    return f"{_quote_name(field.name)} {type_to_sql(field.type, quote=_quote_name)}{comment}"


def _indent(lines: Iterable[str]) -> str:
    return ",\n".join(f"  {line}" for line in lines)


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(_quote_name, names))


def _quote_name(name: str) -> str:
    if escape_line(name) != name:
        raise UnsupportedError(
            f"the name {name!r} has characters that cannot be seen, and Flink SQL has no escape "
            "sequences for names; describe the table without --ddl"
        )
    return "`" + name.replace("`", "``") + "`"


def _quote_text(text: str) -> str:
    quoted = text.replace("'", "''")
    if escape_line(text) == text:
        return f"'{quoted}'"
    return f"U&'{''.join(map(_escape_character, quoted))}'"


def _escape_character(char: str) -> str:
    """Return a character of a Unicode literal, whose escape sequences are UTF-16 code units."""
    if char != "\\" and escape_line(char) == char:
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\{units[start : start + 4]}" for start in range(0, len(units), 4))

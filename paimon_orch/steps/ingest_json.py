"""Reads the JSON lines of an ingest in this process, and says by which types Spark reads them.

Values are text, which a write casts to the types of the table; so are the values inside of arrays,
maps and rows. Objects and arrays of a VARIANT are JSON text.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.nested_arrays import contains_type
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import is_variant, to_arrow_type
from paimon_orch.format.types.data_types import VariantType
from paimon_orch.safe_text import clean_line, format_names
from paimon_orch.steps.source_files import SparkRequiredError, open_text

VARIANT_TEXT = pa.large_string()
"""The type of JSON text for a VARIANT in a nested column; other values have the type string."""

_BLOCK_BYTES = 8 << 20
_MAX_SHOWN_LETTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTypes:
    """The columns of a table that objects and arrays are loaded into."""

    variants: frozenset[str]
    """The names of VARIANT columns in lower case."""
    nested: Mapping[str, pa.DataType]
    """The types of arrays, maps and rows by column, in which all values are text."""

    @property
    def has_variants(self) -> bool:
        """Whether a column is VARIANT or contains it."""
        return bool(self.variants) or any(
            contains_type(kind, pa.types.is_large_string) for kind in self.nested.values()
        )

    @classmethod
    def of(cls, schema: TableSchema) -> "JsonTypes":
        """Return the columns of a table."""
        types = {field.name: to_arrow_type(field.type) for field in schema.fields}
        return cls(
            variants=frozenset(
                field.name.lower() for field in schema.fields if isinstance(field.type, VariantType)
            ),
            nested={
                name: _to_text_type(kind)
                for name, kind in types.items()
                if pa.types.is_nested(kind) and not is_variant(kind)
            },
        )


def _to_text_type(kind: pa.DataType) -> pa.DataType:
    if is_variant(kind):
        return VARIANT_TEXT
    if not pa.types.is_nested(kind):
        return pa.string()
    if isinstance(kind, pa.MapType):
        return pa.map_(pa.string(), _to_text_type(kind.item_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([(field.name, _to_text_type(field.type)) for field in kind])
    return pa.list_(_to_text_type(kind.value_type))


def open_json_lines(
    paths: Sequence[str], types: JsonTypes
) -> tuple[list[str], Callable[[], Iterator[pa.RecordBatch]]]:
    """Return the columns of files, and a function that reads the rows."""
    columns: dict[str, None] = {}
    for path in paths:
        for records in _read_records(path, types):
            for record in records:
                columns.update(dict.fromkeys(record))
    schema = pa.schema([(name, types.nested.get(name, pa.string())) for name in columns])

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for records in _read_records(path, types):
                yield pa.RecordBatch.from_pylist(records, schema=schema)

    return list(columns), read


class _NumberText(str):
    """The text of a JSON number, to be written into JSON again without rounding."""

    __slots__ = ()


def _read_records(path: str, types: JsonTypes) -> Iterator[list[dict[str, Any]]]:
    number = _NumberText if types.has_variants else str
    parse = json.JSONDecoder(
        object_pairs_hook=partial(_build_record, path),
        parse_float=number,
        parse_int=number,
        parse_constant=partial(_refuse_constant, path),
    ).decode
    with open_text(path) as file:
        while lines := file.readlines(_BLOCK_BYTES):
            yield [_parse_record(path, line, parse, types) for line in lines if line.strip()]


def _parse_record(
    path: str, line: bytes, parse: Callable[[str], Any], types: JsonTypes
) -> dict[str, Any]:
    """Return the values of a line as text."""
    try:
        record = parse(line.decode())
        if not isinstance(record, dict):
            raise SparkRequiredError(path, "a line is not one JSON object")
        return {name: _convert(path, name, item, types) for name, item in record.items()}
    except UnicodeError as error:
        raise InputError(f"{path} cannot be read as json: {error}") from error
    except RecursionError:
        raise InputError(f"{path} cannot be read as json: a value is nested too deeply") from None
    except json.JSONDecodeError as error:
        if b"'" in line or error.msg == "Extra data":
            raise SparkRequiredError(path, f"a line is not one JSON object: {error}") from error
        raise InputError(f"{path} cannot be read as json: {error}") from error


def _convert(path: str, name: str, value: Any, types: JsonTypes) -> Any:
    if name in types.nested:
        return _nest(value, types.nested[name], f"{path}: column {name!r}")
    if not isinstance(value, dict | list):
        return _to_text(value)
    if name.lower() not in types.variants:
        raise SparkRequiredError(path, "it has nested values")
    return _format_json(value)


def _nest(value: Any, kind: pa.DataType, place: str) -> Any:
    """Return a value as Arrow expects it for a type in which all values are text."""
    match value, kind:
        case None, _:
            return None
        case list(), pa.ListType():
            return [_nest(item, kind.value_type, place) for item in value]
        case dict(), pa.MapType():
            return [(key, _nest(item, kind.item_type, place)) for key, item in value.items()]
        case dict(), pa.StructType():
            refuse_unknown_fields(place, value, kind)
            return {key: _nest(item, kind.field(key).type, place) for key, item in value.items()}
        case ((dict() | list()), _) if kind == VARIANT_TEXT:
            return _format_json(value)
        case ((str() | bool()), _) if not pa.types.is_nested(kind):
            return _to_text(value)
    shown = clean_line(_format_json(value))[:_MAX_SHOWN_LETTERS]
    raise build_nesting_error(place, shown, kind)


def build_nesting_error(place: str, what: str, kind: pa.DataType) -> InputError:
    """Return the error for a value of another nesting than that of the table."""
    wanted = "a simple value"
    if pa.types.is_nested(kind):
        wanted = "an array" if isinstance(kind, pa.ListType) else "an object"
    return InputError(f"{place} has {what} where the table has {wanted}. Nothing was committed")


def refuse_unknown_fields(place: str, names: Iterable[str], row: pa.StructType) -> None:
    """Raise :class:`InputError` if an object has names that a row does not have."""
    unknown = [name for name in names if row.get_field_index(name) < 0]
    if unknown:
        raise InputError(
            f"{place} has objects with {format_names(unknown)}; the row has the fields "
            f"{format_names(field.name for field in row)}. Nothing was committed"
        )


def _to_text(value: Any) -> str | None:
    text: str | None = str(value).lower() if isinstance(value, bool) else value
    return text


def _format_json(value: Any) -> str:
    match value:
        case dict():
            return f"{{{','.join(f'{json.dumps(k)}:{_format_json(v)}' for k, v in value.items())}}}"
        case list():
            return f"[{','.join(map(_format_json, value))}]"
        case _NumberText():
            return str(value)
    return json.dumps(value)


def _build_record(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise SparkRequiredError(path, "an object has a key twice")
    return record


def _refuse_constant(path: str, name: str) -> None:
    raise SparkRequiredError(path, f"it has the value {name}")

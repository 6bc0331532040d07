"""Golden tables of `tests/data`: their folders, their expected rows, and the comparison of rows.

Rows are JSON values in the conventions of the golden README: DECIMAL as text with its full scale,
BINARY as hex, DATE `YYYY-MM-DD`, TIME `HH:MM:SS.mmm`, TIMESTAMP `YYYY-MM-DDTHH:MM:SS.nnnnnnnnn`
(with a `Z` for local time zone), MAP and MULTISET as lists of pairs sorted by the key's JSON, NaN
and infinities as strings.

Scripts in the environments of other implementations import this module too, so it requires only
pyarrow.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.packed_data import golden_folder

GOLDEN = golden_folder()

Row = list[Any]

_EPOCH = date(1970, 1, 1).toordinal()
_NANOS_PER_DAY = 86_400 * 10**9
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DIFFERENCES_SHOWN = 5


def golden_tables(
    root: Path = GOLDEN, writer: str = "*"
) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield (id, folder, entry) per table and branch; an id is `java-0.9/branches/db.t$branch_dev`.

    The entries of all callers are the same objects, so do not change them.
    """
    yield from _load_golden_tables(root, writer)


@functools.cache
def _load_golden_tables(root: Path, writer: str) -> tuple[tuple[str, Path, dict[str, Any]], ...]:
    return tuple(
        (f"{path.parent.parent.name}/{path.parent.name}/{table_name(entry)}", path.parent, entry)
        for path in sorted(root.glob(f"{writer}/*/expected.json"))
        for entry in json.loads(path.read_text(encoding="utf-8"))["tables"]
    )


def table_name(entry: Mapping[str, Any]) -> str:
    """Return `db.t`, or `db.t$branch_dev` for a branch."""
    branch = entry.get("branch")
    return f"{entry['table']}$branch_{branch}" if branch else str(entry["table"])


def copy_warehouse(folder: Path, target: Path) -> Path:
    """Return a writable copy of the warehouse in a golden folder."""
    shutil.copytree(folder / "warehouse", target, copy_function=shutil.copyfile)
    for directory in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        directory.chmod(0o755)
    return target


def expected_rows(snapshot: Mapping[str, Any]) -> list[Row]:
    """Return the rows of an entry of `snapshots` or `tag_rows`, without their row kinds."""
    return [row[1:] for row in snapshot["rows"]]


def records_to_rows(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[Row]:
    """Return records as rows in the order of `columns`; a record with other columns is an error."""
    for record in records:
        if list(record) != list(columns):
            raise AssertionError(f"expected the columns {list(columns)}, found {list(record)}")
    return [list(record.values()) for record in records]


def assert_rows_equal(
    expected: Sequence[Row], actual: Sequence[Row], types: Sequence[str] | None = None
) -> None:
    """Compare rows as multisets: the order is ignored, all values count (also the sign of zero).

    `types` are the columns' types as Paimon's or Arrow's text. They are required for floating-point
    columns: writers print the same number in different ways, and a 32-bit number equals its text
    only after both are rounded to 32 bits.
    """
    expected_texts, actual_texts = (
        Counter(_row_text(row, types) for row in rows) for rows in (expected, actual)
    )
    if expected_texts == actual_texts:
        return
    lines = [f"expected {len(expected)} rows, found {len(actual)}"]
    for title, rows in (
        ("missing", expected_texts - actual_texts),
        ("extra", actual_texts - expected_texts),
    ):
        shown = sorted(rows.elements())
        lines.append(f"{title} ({len(shown)}):")
        lines.extend(f"  {text}" for text in shown[:_DIFFERENCES_SHOWN])
    raise AssertionError("\n".join(lines))


def _row_text(row: Row, types: Sequence[str] | None) -> str:
    if types is not None:
        if len(types) != len(row):
            raise AssertionError(f"a row of {len(row)} values for {len(types)} columns: {row}")
        row = [_round_value(value, kind.upper()) for value, kind in zip(row, types, strict=True)]
    return json.dumps(row, ensure_ascii=False, sort_keys=True)


def _round_value(value: Any, kind: str) -> Any:
    if "FLOAT" not in kind and "DOUBLE" not in kind:
        return value
    if isinstance(value, list):
        return [_round_value(item, kind) for item in value]
    if isinstance(value, dict):
        return {name: _round_value(item, kind) for name, item in value.items()}
    if kind.startswith("DOUBLE") and isinstance(value, int):
        return float(value)
    is_number = isinstance(value, float) or (isinstance(value, int) and kind.startswith("FLOAT"))
    # A ROW may have both FLOAT and DOUBLE fields.
    is_single = is_number and "FLOAT" in kind and _fits_float32(value)
    return _as_float32(value) if is_single else value


def _as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


# --- Arrow to JSON values


def canonical_rows(table: pa.Table, with_kind: str | None = None) -> list[Row]:
    """Return rows as JSON values; the column of row kinds that `with_kind` names is the first."""
    names = [name for name in table.column_names if name != with_kind]
    if with_kind is not None:
        names.insert(0, with_kind)
    columns = [[json_value(value) for value in table.column(name)] for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


def json_value(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """Return an Arrow scalar as a JSON value."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_map(kind):
        return _map_pairs(value)
    if pa.types.is_struct(kind) and _is_variant(kind):
        return _variant_text(value)
    if pa.types.is_struct(kind):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, pa.StringScalar):
        # Java stored invalid UTF-8 in some nested values and prints replacement characters.
        return value.as_buffer().to_pybytes().decode(errors="replace")
    if isinstance(value, pa.ListScalar):
        return [json_value(item) for item in value.values]
    if isinstance(value, pa.TimestampScalar):
        return _timestamp_text(value.value * _NANOS[kind.unit]) + ("Z" if kind.tz else "")
    if pa.types.is_time(kind):
        return _time_text(value.value * _NANOS[kind.unit] // 10**6)
    return _atom(value)


def _is_variant(kind: pa.DataType) -> bool:
    index = kind.get_field_index("metadata")
    return index >= 0 and (kind.field(index).metadata or {}).get(b"variant") == b"true"


def _variant_text(value: Any) -> str:
    from paimon_orch.format.variant.value import to_json_text  # absent in peers' environments

    return to_json_text(value["value"].as_py(), value["metadata"].as_py())


def _map_pairs(value: Any) -> list[list[Any]]:
    entries = value.values
    pairs = [
        [json_value(key), json_value(item)]
        for key, item in zip(entries.field(0), entries.field(1), strict=True)
    ]
    return sorted(pairs, key=lambda pair: _json_order(pair[0]))


def _json_order(key: Any) -> bytes:
    # Java compares strings by UTF-16 code unit.
    return json.dumps(key, ensure_ascii=False).encode("utf-16-be")


def _atom(value: Any) -> Any:
    kind = value.type
    item = value.as_py()
    if pa.types.is_floating(kind):
        return _float_value(item, single=pa.types.is_float32(kind))
    if isinstance(item, Decimal):
        return format(item, "f")
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, date):
        return item.isoformat()
    if isinstance(item, (bool, int, str)):
        return item
    raise TypeError(f"no JSON form for the Arrow type {kind}")


def _float_value(value: float, *, single: bool) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if not single:
        return value
    texts = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next(text for text in texts if _fits_float32(text) and _as_float32(text) == value)


def _fits_float32(value: float) -> bool:
    try:
        struct.pack("f", value)
    except OverflowError:
        return False
    return True


def _timestamp_text(nanos: int) -> str:
    days, nanos_of_day = divmod(nanos, _NANOS_PER_DAY)
    seconds, fraction = divmod(nanos_of_day, 10**9)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{date.fromordinal(_EPOCH + days).isoformat()}T{clock}.{fraction:09}"


def _time_text(millis: int) -> str:
    seconds, millis_of_second = divmod(millis, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis_of_second:03}"


# --- JSON values to Arrow


def arrow_table(records: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return JSON records as an Arrow table; missing values are null."""
    names = set(schema.names)
    for record in records:
        if unknown := record.keys() - names:
            raise ValueError(f"no column {sorted(unknown)} in {schema.names}")
    columns = [
        _to_arrow_array([record.get(field.name) for record in records], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _to_arrow_array(values: Sequence[Any], kind: pa.DataType) -> Any:
    decode = _decoder(kind)
    return pa.array([None if value is None else decode(value) for value in values], kind)


def _decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    # Timestamps become integers because Python's datetime has no nanoseconds.
    if pa.types.is_timestamp(kind):
        return lambda text: _timestamp_nanos(text) // _NANOS[kind.unit]
    if pa.types.is_time(kind):
        return lambda text: _clock_nanos(text) // _NANOS[kind.unit]
    if pa.types.is_date(kind):
        return date.fromisoformat
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_floating(kind):
        return float
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return bytes.fromhex
    return _nested_decoder(kind)


def _nested_decoder(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_map(kind):
        key, item = _nullable(kind.key_type), _nullable(kind.item_type)
        return lambda pairs: [(key(k), item(v)) for k, v in pairs]
    if pa.types.is_struct(kind):
        fields = {field.name: _nullable(field.type) for field in kind}
        return lambda record: {name: decode(record.get(name)) for name, decode in fields.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _nullable(kind.value_type)
        return lambda items: [element(value) for value in items]
    return lambda value: value


def _nullable(kind: pa.DataType) -> Callable[[Any], Any]:
    decode = _decoder(kind)
    return lambda value: None if value is None else decode(value)


def _timestamp_nanos(text: str) -> int:
    day, clock = text.removesuffix("Z").split("T")
    return (date.fromisoformat(day).toordinal() - _EPOCH) * _NANOS_PER_DAY + _clock_nanos(clock)


def _clock_nanos(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int(fraction.ljust(9, "0") or 0)

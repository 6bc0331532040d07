"""Data types: the type grammar of schema files, and their Arrow forms.

A type is a SQL-like string (``DECIMAL(10, 2) NOT NULL``) or, when nested, a JSON object. The parser
also takes the usual SQL spelling of nested types, ``ARRAY<INT>``, ``VECTOR<FLOAT, 4>``,
``MAP<K, V>``, ``MULTISET<T>``, ``ROW<a INT, b STRING>``.

See docs/format/data-types.md and docs/format/data-files.md#parquet.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paimon_orch.decode_limits import MAX_NESTING
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.text import parse_integer

MAX_LENGTH = 2147483647


class TypeRoot(StrEnum):
    """Names of atomic types in their canonical spelling, without parameters."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    BLOB = "BLOB"

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class DataType:
    """The base class of all types."""

    nullable: bool = True
    additional: Mapping[str, Any] = field(
        default_factory=dict, kw_only=True, repr=False, compare=False
    )
    """Unknown keys of a nested type's object in a schema file."""

    def with_nullable(self, nullable: bool) -> "DataType":  # noqa: FBT001 - it is the subject
        """Return the same type, nullable or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)


@dataclass(frozen=True, slots=True)
class AtomicType(DataType):
    """A scalar: ``name`` in canonical spelling and its parameters (length, precision, scale)."""

    name: TypeRoot = TypeRoot.INT
    params: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    """``ARRAY<element>``."""

    element: DataType = DataType()

    def __post_init__(self) -> None:
        _refuse_nested_blobs(self, [self.element])


@dataclass(frozen=True, slots=True)
class MultisetType(DataType):
    """``MULTISET<element>``: a map from element to its count."""

    element: DataType = DataType()

    def __post_init__(self) -> None:
        _refuse_nested_blobs(self, [self.element])


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """``MAP<key, value>``."""

    key: DataType = DataType()
    value: DataType = DataType()

    def __post_init__(self) -> None:
        _refuse_nested_blobs(self, [self.key, self.value])


@dataclass(frozen=True, slots=True)
class VectorType(DataType):
    """``VECTOR<element, length>``: a list of fixed length, without null elements."""

    element: DataType = DataType()
    length: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.element, AtomicType) or self.element.name not in _VECTOR_ELEMENTS:
            raise InputError(
                f"VECTOR has elements of type {', '.join(_VECTOR_ELEMENTS)}, "
                f"not {type_to_sql(self.element)}"
            )
        if not 1 <= self.length <= MAX_LENGTH:
            raise InputError(f"VECTOR has a length between 1 and {MAX_LENGTH}, not {self.length}")


@dataclass(frozen=True, slots=True)
class VariantType(DataType):
    """``VARIANT``: a value of any type; see docs/format/variant.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column or one field of a ROW; ``id`` survives renames, names do not."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None
    additional: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Unknown keys of the field's object in a schema file."""


@dataclass(frozen=True, slots=True)
class RowType(DataType):
    """``ROW<fields>``."""

    fields: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        _refuse_nested_blobs(self, [field.type for field in self.fields])


def is_blob(data_type: DataType) -> bool:
    """Return whether a type is BLOB, whose values are in files of their own."""
    return isinstance(data_type, AtomicType) and data_type.name == TypeRoot.BLOB


def list_child_types(data_type: DataType) -> list[DataType]:
    """Return the types of which a nested type consists; other types have none."""
    match data_type:
        case ArrayType() | MultisetType() | VectorType():
            return [data_type.element]
        case MapType():
            return [data_type.key, data_type.value]
        case RowType():
            return [field.type for field in data_type.fields]
    return []


def has_atom(data_type: DataType, root: TypeRoot) -> bool:
    """Return whether a type is or contains an atomic type."""
    if isinstance(data_type, AtomicType):
        return data_type.name == root
    return any(has_atom(child, root) for child in list_child_types(data_type))


def list_nested_fields(data_type: DataType) -> list[Field]:
    """Return the fields of the outermost ROWs in a type."""
    if isinstance(data_type, RowType):
        return list(data_type.fields)
    return [x for child in list_child_types(data_type) for x in list_nested_fields(child)]


def iterate_fields(fields: Iterable[Field]) -> Iterator[Field]:
    """Yield columns and, at any depth, the fields of ROWs."""
    for column in fields:
        yield column
        yield from iterate_fields(list_nested_fields(column.type))


def _refuse_nested_blobs(data_type: DataType, children: Iterable[DataType]) -> None:
    if any(map(is_blob, children)):
        raise UnsupportedError(f"columns of type {type_to_sql(data_type)} are not supported")


# each type has a tuple of (minimum, maximum, default) for each of its parameters
_PARAMETERS: dict[TypeRoot, tuple[tuple[int, int, int], ...]] = {
    TypeRoot.BOOLEAN: (),
    TypeRoot.TINYINT: (),
    TypeRoot.SMALLINT: (),
    TypeRoot.INT: (),
    TypeRoot.BIGINT: (),
    TypeRoot.FLOAT: (),
    TypeRoot.DOUBLE: (),
    TypeRoot.DATE: (),
    TypeRoot.DECIMAL: ((1, 38, 10), (0, 38, 0)),
    TypeRoot.CHAR: ((1, MAX_LENGTH, 1),),
    TypeRoot.VARCHAR: ((1, MAX_LENGTH, 1),),
    TypeRoot.BINARY: ((1, MAX_LENGTH, 1),),
    TypeRoot.VARBINARY: ((1, MAX_LENGTH, 1),),
    TypeRoot.TIME: ((0, 9, 0),),
    TypeRoot.TIMESTAMP: ((0, 9, 6),),
    TypeRoot.TIMESTAMP_LTZ: ((0, 9, 6),),
    TypeRoot.BLOB: (),
}
_VECTOR_ELEMENTS = (
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
)
_SYNONYMS = {"INTEGER": "INT", "NUMERIC": "DECIMAL", "DEC": "DECIMAL"}
_UNBOUNDED_TYPES = {"STRING": TypeRoot.VARCHAR, "BYTES": TypeRoot.VARBINARY}
_UNSUPPORTED_TYPES = {"GEOMETRY", "GEOGRAPHY"}
_TYPE_KEYS = frozenset(("type", "element", "key", "value", "fields", "length"))
_FIELD_KEYS = frozenset(("id", "name", "type", "description", "defaultValue"))
_TOKEN = re.compile(r"\s*(`[^`]*`|'(?:[^']|'')*'|[A-Za-z_]\w*|\d+|[<>(),:])")


class _TypeParser:
    """Recursive descent over the tokens of one type or one list of column definitions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokenize(text))
        self.at = 0
        self.next_id = 0
        self.depth = 0

    def peek(self, offset: int = 0) -> str:
        index = self.at + offset
        return self.tokens[index] if index < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        if [self.peek(i).upper() for i in range(len(words))] == list(words):
            self.at += len(words)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}, found {self.peek() or 'the end'!r}")

    def error(self, reason: str) -> InputError:
        return InputError(f"type {self.text!r} is not valid: {reason}")

    def type(self) -> DataType:
        self.enter_type()
        parsed = self.parse_nullability(self.parse_bare_type())
        before = self.depth
        while self.peek().upper() in ("ARRAY", "MULTISET"):  # INT ARRAY means ARRAY<INT>
            self.enter_type()
            wrap = ArrayType if self.take().upper() == "ARRAY" else MultisetType
            parsed = self.parse_nullability(wrap(element=parsed))
        self.depth = before - 1
        return parsed

    def enter_type(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise InputError(
                f"type {self.text[:100]!r}... is not valid: it has more than {MAX_NESTING} types "
                "inside of each other"
            )

    def parse_nullability(self, parsed: DataType) -> DataType:
        if self.accept("NOT", "NULL"):
            return parsed.with_nullable(False)
        self.accept("NULL")
        return parsed

    def parse_bare_type(self) -> DataType:
        name = self.take().upper()
        if name in ("ARRAY", "MULTISET"):
            self.expect("<")
            element = self.type()
            self.expect(">")
            return ArrayType(element=element) if name == "ARRAY" else MultisetType(element=element)
        if name == "MAP":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return MapType(key=key, value=value)
        if name == "VARIANT":
            return VariantType()
        if name == "VECTOR":
            self.expect("<")
            element = self.type()
            self.expect(",")
            length = self.take()
            if not length.isdigit() or not 0 < _parse_number(length) <= MAX_LENGTH:
                raise self.error(f"the length {length!r} is not a number up to {MAX_LENGTH}")
            self.expect(">")
            return VectorType(element=element, length=int(length))
        if name == "ROW":
            closing = {"<": ">", "(": ")"}.get(self.take())
            if closing is None:
                raise self.error("ROW needs its fields in <...>")
            fields = self.columns(closing)
            self.expect(closing)
            return RowType(fields=fields)
        return self.atomic(name)

    def atomic(self, name: str) -> DataType:
        if name in _UNBOUNDED_TYPES:
            return AtomicType(name=_UNBOUNDED_TYPES[name], params=(MAX_LENGTH,))
        name = _SYNONYMS.get(name, name)
        if name in _UNSUPPORTED_TYPES:
            raise UnsupportedError(f"type {self.text!r}: columns of type {name} are not supported")
        if name not in _PARAMETERS:
            raise self.error(
                f"unknown type {name!r}; known types are {', '.join(_PARAMETERS)}, STRING and BYTES"
            )
        root = TypeRoot(name)
        if root is TypeRoot.DOUBLE:
            self.accept("PRECISION")
        arguments = self.parameters()
        if self.accept("WITH", "LOCAL", "TIME", "ZONE"):
            root = TypeRoot.TIMESTAMP_LTZ
        self.accept("WITHOUT", "TIME", "ZONE")
        return AtomicType(name=root, params=self.check_parameters(root, arguments))

    def parameters(self) -> list[int]:
        numbers: list[int] = []
        if self.accept("("):
            while True:
                token = self.take()
                if not token.isdigit():
                    raise self.error(f"{token!r} is not a number")
                numbers.append(_parse_number(token))
                if not self.accept(","):
                    break
            self.expect(")")
        return numbers

    def check_parameters(self, name: TypeRoot, arguments: list[int]) -> tuple[int, ...]:
        limits = _PARAMETERS[name]
        if len(arguments) > len(limits):
            raise self.error(f"{name} takes {len(limits)} parameters, not {len(arguments)}")
        params = [*arguments, *(default for _, _, default in limits[len(arguments) :])]
        for value, (low, high, _) in zip(params, limits, strict=True):
            if not low <= value <= high:
                raise self.error(f"{value} is not between {low} and {high}")
        if name == TypeRoot.DECIMAL and params[1] > params[0]:
            raise self.error("the scale is larger than the precision")
        return tuple(params)

    def columns(self, closing: str = "") -> tuple[Field, ...]:
        fields = []
        while self.peek() != closing:
            name = self.take().strip("`")
            self.accept(":")
            column = self.type()
            description = self.take()[1:-1].replace("''", "'") if self.accept("COMMENT") else None
            # nested fields get their ids before their parent (docs/format/schema.md#field-ids)
            fields.append(Field(id=self.next_id, name=name, type=column, description=description))
            self.next_id += 1
            if not self.accept(","):
                break
        return tuple(fields)


def _parse_number(text: str) -> int:
    """Return a number; long ones, which are out of every range, are cut."""
    return int(text[:20])


def _tokenize(text: str) -> Iterator[str]:
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InputError(f"type {text!r} is not valid near {text[position : position + 20]!r}")
        yield match.group(1)
        position = match.end()


def parse_type(text: str) -> DataType:
    """Parse one type in SQL spelling; fields of a ROW get ids counted from 0."""
    parser = _TypeParser(text)
    parsed = parser.type()
    if parser.peek():
        raise parser.error(f"unexpected {parser.peek()!r}")
    return parsed


def parse_columns(text: str) -> list[Field]:
    """Parse ``"id BIGINT NOT NULL, v DOUBLE"``; the ids are provisional."""
    parser = _TypeParser(text)
    fields = parser.columns()
    if parser.peek() or not fields:
        raise parser.error(
            f"expected a column name and its type near {parser.peek() or 'the end'!r}"
        )
    return list(fields)


def type_from_json(value: Any) -> DataType:
    """Decode the ``type`` of a schema file: a string or, when nested, an object.

    Types in text are nested up to a limit, and objects up to that of JSON.
    """
    if isinstance(value, str):
        return parse_type(value)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise InputError(f"type {value!r} is neither a string nor an object with a type")
    text = value["type"].upper()
    nullable = "NOT NULL" not in text
    additional = {key: item for key, item in value.items() if key not in _TYPE_KEYS}
    if text.startswith("ARRAY"):
        return ArrayType(nullable, type_from_json(value["element"]), additional=additional)
    if text.startswith("VECTOR"):
        element, length = type_from_json(value["element"]), value["length"]
        if not isinstance(length, int) or isinstance(length, bool) or not 0 < length <= MAX_LENGTH:
            raise InputError(f"the length of type {value!r} is not a number up to {MAX_LENGTH}")
        return VectorType(nullable, element, length, additional=additional)
    if text.startswith("MULTISET"):
        return MultisetType(nullable, type_from_json(value["element"]), additional=additional)
    if text.startswith("MAP"):
        key, item = type_from_json(value["key"]), type_from_json(value["value"])
        return MapType(nullable, key, item, additional=additional)
    if text.startswith("ROW"):
        if not isinstance(value["fields"], list):
            raise InputError(f"the fields of type {value!r} are not a list")
        fields = tuple(map(field_from_json, value["fields"]))
        check_distinct_fields(fields)
        return RowType(nullable, fields, additional=additional)
    raise UnsupportedError(f"columns of type {value['type']!r} are not supported")


def type_to_json(data_type: DataType) -> Any:
    """Encode a type for a schema file."""
    suffix = "" if data_type.nullable else " NOT NULL"
    if isinstance(data_type, AtomicType | VariantType):
        return type_to_sql(data_type)
    return {**_nested_to_json(data_type, suffix), **data_type.additional}


def _nested_to_json(data_type: DataType, suffix: str) -> dict[str, Any]:
    match data_type:
        case ArrayType(element=element):
            return {"type": "ARRAY" + suffix, "element": type_to_json(element)}
        case VectorType(element=element, length=length):
            return {"type": "VECTOR" + suffix, "element": type_to_json(element), "length": length}
        case MultisetType(element=element):
            return {"type": "MULTISET" + suffix, "element": type_to_json(element)}
        case MapType(key=key, value=value):
            return {"type": "MAP" + suffix, "key": type_to_json(key), "value": type_to_json(value)}
        case RowType(fields=fields):
            return {"type": "ROW" + suffix, "fields": list(map(field_to_json, fields))}
    raise TypeError(data_type)


def field_from_json(value: Any) -> Field:
    """Decode one field object of a schema file.

    Raises :class:`InputError` for a value of another shape, and ``KeyError`` for a missing key.
    """
    if not isinstance(value, dict) or not isinstance(value["id"], int | float | str):
        raise InputError(f"field {value!r} is not an object with an id")
    return Field(
        id=parse_field_id(value["id"], "the id of a field"),
        name=str(value["name"]),
        type=type_from_json(value["type"]),
        description=value.get("description"),
        default_value=value.get("defaultValue"),
        additional={key: item for key, item in value.items() if key not in _FIELD_KEYS},
    )


def check_distinct_fields(fields: Iterable[Field]) -> None:
    """Raise ``ValueError`` if two fields of a row have an id or a name in common.

    Values are found by both, so one field would have the values of the other.
    """
    ids, names = set[int](), set[str]()
    for column in fields:
        if column.id in ids or column.name in names:
            raise ValueError(f"another field has the id {column.id} or the name {column.name!r}")
        ids.add(column.id)
        names.add(column.name)


def parse_field_id(value: object, name: str) -> int:
    """Return the id of a field from JSON. Raises ``ValueError`` for other values."""
    number = parse_integer(value, name)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name} is {number}, which is out of range")
    return number


def field_to_json(column: Field) -> dict[str, Any]:
    """Encode one field; optional keys are omitted, never null."""
    encoded: dict[str, Any] = {
        "id": column.id,
        "name": column.name,
        "type": type_to_json(column.type),
    }
    if column.description is not None:
        encoded["description"] = column.description
    if column.default_value is not None:
        encoded["defaultValue"] = column.default_value
    return {**encoded, **column.additional}


def atomic_to_sql(data_type: AtomicType) -> str:
    """Return the canonical spelling without nullability."""
    name, params = data_type.name, data_type.params
    if params == (MAX_LENGTH,):
        return {TypeRoot.VARCHAR: "STRING", TypeRoot.VARBINARY: "BYTES"}.get(
            name, f"{name}({MAX_LENGTH})"
        )
    if name == TypeRoot.TIMESTAMP_LTZ:
        return f"TIMESTAMP({params[0]}) WITH LOCAL TIME ZONE"
    return f"{name}({', '.join(map(str, params))})" if params else name.value


def type_to_sql(data_type: DataType, quote: Callable[[str], str] = str) -> str:
    """Return the SQL text of a type; ``quote`` is applied to the names in nested types."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case AtomicType():
            return atomic_to_sql(data_type) + suffix
        case VariantType():
            return f"VARIANT{suffix}"
        case ArrayType(element=element):
            return f"ARRAY<{type_to_sql(element, quote)}>{suffix}"
        case VectorType(element=element, length=length):
            return f"VECTOR<{type_to_sql(element, quote)}, {length}>{suffix}"
        case MultisetType(element=element):
            return f"MULTISET<{type_to_sql(element, quote)}>{suffix}"
        case MapType(key=key, value=value):
            return f"MAP<{type_to_sql(key, quote)}, {type_to_sql(value, quote)}>{suffix}"
        case RowType(fields=fields):
            inner = ", ".join(f"{quote(c.name)} {type_to_sql(c.type, quote)}" for c in fields)
            return f"ROW<{inner}>{suffix}"
    raise TypeError(data_type)

"""Preserves unknown fields of metadata records when files are rewritten.

Later releases of Paimon add fields to manifests, manifest lists and index manifests. Each decoded
record holds them as :class:`AdditionalFields`. The schema of a new file has the union of the fields
of its records. Java Paimon finds fields by name and reads a missing field as null.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_orch.decode_limits import check_nesting
from paimon_orch.errors import UnsupportedError

FieldDefinition = Mapping[str, Any]
"""A field of an Avro record: name, type, default. A field of type None cannot be preserved."""

_NAMED_TYPES = frozenset(("record", "enum", "fixed"))
_NULL = "null"
_MAX_TYPES = 10_000  # maximum number of types in the definition of one field
_TYPE_FAMILIES = {
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
    **dict.fromkeys(("bytes", "fixed"), "bytes"),
    **dict.fromkeys(("string", "enum"), "text"),
    **dict.fromkeys(("map", "record"), "mapping"),
}


@dataclass(frozen=True, slots=True)
class AdditionalFields:
    """The unknown fields of one record, by dotted path.

    All records of a file share ``definitions``; a path below a null record has no value.
    """

    definitions: Mapping[str, FieldDefinition]
    values: Mapping[str, Any]

    @classmethod
    def of(
        cls, definitions: Mapping[str, FieldDefinition], record: Mapping[str, Any], under: str = ""
    ) -> "AdditionalFields | None":
        """Return the unknown fields of a record at path ``under``, or None if the file has none."""
        if not definitions:
            return None
        values = {}
        for path in definitions:
            parent = _find_parent(record, path.removeprefix(under))
            if parent is not None:
                values[path] = parent[path.rpartition(".")[2]]
        return cls(definitions, values)

    def put(self, record: dict[str, Any], under: str = "") -> None:
        """Add the fields to a record before encoding."""
        for path, value in self.values.items():
            parent = _find_parent(record, path.removeprefix(under))
            if parent is not None:
                parent[path.rpartition(".")[2]] = value


def _find_parent(record: Any, path: str) -> Any:
    for name in path.split(".")[:-1]:
        record = None if record is None else record[name]
    return record


KnownFields = Mapping[str, "KnownFields | None"]
"""Field names of a record, with the names in nested records and arrays of records."""


def collect_known_fields(schema: Any) -> KnownFields:
    """Return the names of the fields of a schema."""
    record = _find_nested_record_type(schema)
    assert record is not None
    types = {field["name"]: field["type"] for field in record["fields"]}
    return {
        name: collect_known_fields(kind) if _find_nested_record_type(kind) else None
        for name, kind in types.items()
    }


def check_avro_schema(schema: Any, depth: int = 0) -> None:
    """Check the JSON types of an Avro schema; fastavro checks only some. Raises ``ValueError``."""
    check_nesting(depth)
    match schema:
        case str():
            return
        case list():
            parts = schema
        case {"type": "record", "name": str(), "fields": list() as fields}:
            if not all(
                isinstance(field, dict) and isinstance(field["name"], str) for field in fields
            ):
                raise ValueError("a field in the Avro schema has no name")
            parts = [field["type"] for field in fields]
        case {"type": kind} if kind != "record":
            parts = [schema[key] for key in ("type", "items", "values") if key in schema]
        case _:
            raise ValueError(f"{schema!r} is not an Avro type")
    for part in parts:
        check_avro_schema(part, depth + 1)


def find_unknown_fields(known_fields: KnownFields, written: Any) -> dict[str, FieldDefinition]:
    """Return the unknown fields of a file's schema by dotted path, with references resolved."""
    fields: dict[str, FieldDefinition] = {}
    _collect_unknown_fields(known_fields, written, "", fields)
    if fields:
        names: dict[str, Any] = {}
        _collect_named_types(written, names)
        for path, definition in fields.items():
            try:
                kind = _ReferenceInliner(names).type(definition["type"], ())
            except _TypeTooLargeError:
                kind = None
            fields[path] = {**definition, "type": kind}
    return fields


def _collect_unknown_fields(
    known_fields: KnownFields, written: Any, prefix: str, unknown: dict[str, FieldDefinition]
) -> None:
    record = _find_nested_record_type(written)
    for field in () if record is None else record["fields"]:
        name = field["name"]
        if name not in known_fields:
            unknown[prefix + name] = field
        elif (nested := known_fields[name]) is not None:
            _collect_unknown_fields(nested, field["type"], f"{prefix}{name}.", unknown)


def _find_nested_record_type(schema: Any) -> Mapping[str, Any] | None:
    """Return a record type, unwrapped from arrays and unions with null."""
    if isinstance(schema, list):
        branches = [option for option in schema if option != _NULL]
        return _find_nested_record_type(branches[0]) if len(branches) == 1 else None
    if not isinstance(schema, dict):
        return None
    if schema["type"] == "array":
        return _find_nested_record_type(schema["items"])
    return schema if schema["type"] == "record" else None


def _collect_named_types(schema: Any, names: dict[str, Any]) -> None:
    if isinstance(schema, dict) and schema["type"] in _NAMED_TYPES:
        names[schema["name"]] = schema
    for part in _list_child_types(schema):
        _collect_named_types(part, names)


def _list_child_types(schema: Any) -> Sequence[Any]:
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return ()
    nested = [schema[key] for key in ("items", "values") if key in schema]
    return [*nested, *(field["type"] for field in schema.get("fields", ()))]


def _replace_child_types(schema: Any, parts: Sequence[Any]) -> Any:
    """Return a type with its child types replaced, in the order of :func:`_list_child_types`."""
    if not parts:
        return schema
    if isinstance(schema, list):
        return list(parts)
    changed, remaining = dict(schema), list(parts)
    for key in ("items", "values"):
        if key in schema:
            changed[key] = remaining.pop(0)
    if "fields" in schema:
        fields = zip(schema["fields"], remaining, strict=True)
        changed["fields"] = [{**field, "type": part} for field, part in fields]
    return changed


class _TypeTooLargeError(Exception):
    """Raised for types whose references expand to more than ``_MAX_TYPES`` types."""


@dataclass(slots=True)
class _ReferenceInliner:
    """Replaces type names by their definitions."""

    names: Mapping[str, Any]
    count: int = 0

    def type(self, schema: Any, enclosing_names: tuple[str, ...]) -> Any:
        """Return a type without references; a recursive reference remains a name."""
        self.count += 1
        if self.count > _MAX_TYPES:
            raise _TypeTooLargeError
        if isinstance(schema, str):
            if schema not in self.names or schema in enclosing_names:
                return schema
            schema = self.names[schema]
        if isinstance(schema, dict) and schema["type"] in _NAMED_TYPES:
            enclosing_names = (*enclosing_names, schema["name"])
        return _replace_child_types(
            schema, [self.type(part, enclosing_names) for part in _list_child_types(schema)]
        )


def strip_logical_types(schema: Any, unknown: Iterable[str]) -> Any:
    """Return a schema without the logical types of unknown fields, so that values are raw."""
    unknown_paths = frozenset(unknown)

    def strip(part: Any, path: str, *, is_unknown: bool) -> Any:
        if isinstance(part, dict):
            part = {k: v for k, v in part.items() if not (is_unknown and k == "logicalType")}
        if isinstance(part, dict) and "fields" in part:
            fields = []
            for field in part["fields"]:
                below = f"{path}.{field['name']}" if path else field["name"]
                kind = strip(field["type"], below, is_unknown=is_unknown or below in unknown_paths)
                fields.append({**field, "type": kind})
            return {**part, "fields": fields}
        return _replace_child_types(
            part, [strip(item, path, is_unknown=is_unknown) for item in _list_child_types(part)]
        )

    return strip(schema, "", is_unknown=False)


def extend_schema(schema: Any, *groups: Sequence[AdditionalFields | None]) -> Any:
    """Return a schema extended by the additional fields of all records.

    Each group holds records of one kind. Without additional fields the same object is returned.
    Raises :class:`UnsupportedError` for a field that cannot be preserved.
    """
    added = {path: item for group in groups for path, item in _merge_definitions(group).items()}
    if not added:
        return schema
    for path, definition in added.items():
        if not _is_preservable(definition["type"]):
            raise UnsupportedError(
                f"the metadata field {path!r} is unknown, and its values "
                f"({definition['type'] or 'not from an Avro file, or a type that is too large'}) "
                "cannot be preserved in a new file; use a newer version of this library"
            )
    return _define_once(_add_fields(_qualify_names(schema), added), {})


def _merge_definitions(group: Sequence[AdditionalFields | None]) -> dict[str, FieldDefinition]:
    distinct = {
        id(item.definitions) if item else 0: item.definitions if item else {} for item in group
    }
    union: dict[str, FieldDefinition] = {}
    for definitions in distinct.values():
        for path, definition in definitions.items():
            union[path] = _merge_field(union.get(path, definition), definition, path)
    for path, definition in union.items():
        if any(path not in definitions for definitions in distinct.values()):
            union[path] = _make_nullable(definition)
    return union


def _merge_field(left: FieldDefinition, right: FieldDefinition, path: str) -> dict[str, Any]:
    if left == right:
        return dict(left)
    merged = _merge_types(left["type"], right["type"], path)
    changed = {**left, "type": merged}
    return _make_nullable(changed) if isinstance(merged, list) else changed


def _merge_types(left: Any, right: Any, path: str) -> Any:
    """Return the union of two types of a field: null is added, record fields are merged."""
    if left == right:
        return left
    if isinstance(left, list) or isinstance(right, list):
        options = [[x for x in _list_union_branches(part) if x != _NULL] for part in (left, right)]
        if all(len(option) == 1 for option in options):
            return [_NULL, _merge_types(options[0][0], options[1][0], path)]
    elif isinstance(left, dict) and isinstance(right, dict):
        is_same_kind = all(
            left.get(key) == right.get(key) for key in ("type", "name", "logicalType")
        )
        if is_same_kind and left["type"] == "record":
            return {**left, "fields": _merge_fields(left["fields"], right["fields"], path)}
        for key in ("items", "values") if is_same_kind else ():
            if key in left:
                return {**left, key: _merge_types(left[key], right[key], path)}
    raise UnsupportedError(
        f"the metadata field {path!r} is unknown, and its types in the input files ({left} and "
        f"{right}) cannot be merged into one file; use a newer version of this library"
    )


def _merge_fields(
    left: Sequence[FieldDefinition], right: Sequence[FieldDefinition], path: str
) -> list[dict[str, Any]]:
    ours, theirs = ({field["name"]: field for field in fields} for fields in (left, right))
    return [
        _merge_field(ours[name], theirs[name], f"{path}.{name}")
        if name in ours and name in theirs
        else _make_nullable(field)
        for name, field in (ours | theirs).items()
    ]


def _list_union_branches(schema: Any) -> Sequence[Any]:
    return schema if isinstance(schema, list) else [schema]


def _make_nullable(definition: FieldDefinition) -> dict[str, Any]:
    branches = [option for option in _list_union_branches(definition["type"]) if option != _NULL]
    return {**definition, "type": [_NULL, *branches], "default": None}


def _is_preservable(schema: Any) -> bool:
    """Return whether values can be written unchanged; their types must identify union branches."""
    if schema is None or (isinstance(schema, dict) and schema.get("name") == ""):
        return False  # not from an Avro file
    if isinstance(schema, list) and len(schema) > 2:
        kinds = [option["type"] if isinstance(option, dict) else option for option in schema]
        # fastavro returns the name of a named type with its value if a union has several of them
        if sum(kind in _NAMED_TYPES for kind in kinds) > 1:
            kinds = [kind for kind in kinds if kind not in _NAMED_TYPES]
        families = [_TYPE_FAMILIES.get(kind, kind) for kind in kinds]
        if len(set(families)) < len(families):
            return False
    return all(map(_is_preservable, _list_child_types(schema)))


def _qualify_names(schema: Any) -> Any:
    changed = _replace_child_types(schema, list(map(_qualify_names, _list_child_types(schema))))
    if isinstance(changed, dict) and "namespace" in changed:
        name = f"{changed['namespace']}.{changed['name']}"
        return {key: item for key, item in changed.items() if key != "namespace"} | {"name": name}
    return changed


def _add_fields(schema: Any, added: Mapping[str, FieldDefinition]) -> Any:
    if not added:
        return schema
    if not isinstance(schema, dict) or "fields" not in schema:
        return _replace_child_types(
            schema, [_add_fields(part, added) for part in _list_child_types(schema)]
        )
    fields: list[FieldDefinition] = []
    for field in schema["fields"]:
        start = f"{field['name']}."
        below = {p.removeprefix(start): d for p, d in added.items() if p.startswith(start)}
        fields.append({**field, "type": _add_fields(field["type"], below)})
    fields += [definition for path, definition in added.items() if "." not in path]
    return {**schema, "fields": fields}


def _define_once(schema: Any, defined: dict[str, Any]) -> Any:
    """Replace repeated definitions of a named type by its name, as Avro requires."""
    if isinstance(schema, dict) and schema["type"] in _NAMED_TYPES:
        name = schema["name"]
        if name in defined:
            if defined[name] != schema:
                raise UnsupportedError(
                    f"unknown metadata fields use the name {name!r} for two different types, so "
                    "they cannot be preserved in one file; use a newer version of this library"
                )
            return name
        defined[name] = schema
    return _replace_child_types(
        schema, [_define_once(part, defined) for part in _list_child_types(schema)]
    )

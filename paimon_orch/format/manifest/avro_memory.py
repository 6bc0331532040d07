"""Bounds the memory of decoded Avro values by their schema and their encoded length.

A named type that contains itself has values of any depth, on which decoders in C overflow the
stack. A type without bytes can be repeated any number of times by a few bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.decode_limits import check_nesting

# estimates for objects of CPython, in bytes
_OBJECT_BYTES = 64
_REFERENCE_BYTES = 8
_DICTIONARY_ENTRY_BYTES = 48
_NAMED_TYPES = ("record", "enum", "fixed")
_PRIMITIVE_LENGTHS = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}


@dataclass(frozen=True, slots=True)
class AvroMemory:
    """The memory of a value of n encoded bytes is at most ``fixed_bytes + rate * n``."""

    min_length: int
    """The encoded length of the shortest value, in bytes."""
    fixed_bytes: float
    rate: float


@dataclass(slots=True)
class _Estimator:
    finished: dict[str, AvroMemory] = field(default_factory=dict)
    """Estimates of named types; a type without one is not finished, or not defined before."""

    def estimate(self, schema: Any, depth: int = 0) -> AvroMemory:
        check_nesting(depth)
        if isinstance(schema, list):
            return self._estimate_union(schema, depth)
        if isinstance(schema, str):
            return self._estimate_name(schema)
        kind = schema["type"]
        if kind == "record":
            return self._estimate_record(schema, depth)
        if kind in _NAMED_TYPES:
            size = schema["size"] if kind == "fixed" else 1
            if not isinstance(size, int) or size < 0:
                raise ValueError(f"the Avro schema has a fixed type of {size!r} bytes")
            self.finished[schema["name"]] = AvroMemory(size, _OBJECT_BYTES, 1)
            return self.finished[schema["name"]]
        if kind in ("array", "map"):
            return self._estimate_collection(kind, schema, depth)
        return self.estimate(kind, depth + 1)

    def _estimate_name(self, name: str) -> AvroMemory:
        if name in _PRIMITIVE_LENGTHS:
            is_object = name != "null"
            return AvroMemory(
                _PRIMITIVE_LENGTHS[name], _OBJECT_BYTES * is_object, 1.0 * (name == "string")
            )
        if name not in self.finished:
            raise ValueError(f"the Avro schema uses the type {name} inside of itself")
        return self.finished[name]

    def _estimate_union(self, branches: list[Any], depth: int) -> AvroMemory:
        parts = [self.estimate(branch, depth + 1) for branch in branches]
        if not parts:
            raise ValueError("the Avro schema has a union without types")
        rate = max(part.rate + part.fixed_bytes / (1 + part.min_length) for part in parts)
        return AvroMemory(1 + min(part.min_length for part in parts), 0, rate)

    def _estimate_record(self, schema: Mapping[str, Any], depth: int) -> AvroMemory:
        parts = [self.estimate(part["type"], depth + 1) for part in schema["fields"]]
        memory = AvroMemory(
            sum(part.min_length for part in parts),
            _OBJECT_BYTES + sum(_DICTIONARY_ENTRY_BYTES + part.fixed_bytes for part in parts),
            max((part.rate for part in parts), default=0),
        )
        self.finished[schema["name"]] = memory
        return memory

    def _estimate_collection(self, kind: str, schema: Mapping[str, Any], depth: int) -> AvroMemory:
        if kind == "array":
            item, entry_bytes, key_length = schema["items"], _REFERENCE_BYTES, 0
        else:
            item, entry_bytes, key_length = schema["values"], 2 * _OBJECT_BYTES, 1
        part = self.estimate(item, depth + 1)
        length = part.min_length + key_length
        if not length:
            raise ValueError("the Avro schema has a zero-length array item")
        rate = part.rate + (entry_bytes + part.fixed_bytes) / length
        return AvroMemory(1, _OBJECT_BYTES, rate)


def estimate_record_memory(schema: Any) -> AvroMemory:
    """Return the memory of the records of a file with a parsed schema.

    Raises ``ValueError`` for types without bytes that repeat, for types that contain themselves,
    and for types that are nested too deeply.
    """
    memory = _Estimator().estimate(schema)
    if not memory.min_length:
        raise ValueError("the Avro schema has a zero-length record")
    return memory

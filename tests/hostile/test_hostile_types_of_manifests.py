"""Manifests whose Avro schema declares other types than those of the format.

The schema is a part of the file. A value of an unexpected type must not reach the code that
calculates with it, because it would fail there with an error of Python.
"""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import fastavro
import pytest
from support.fuzz_samples import SAMPLES

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.avro_container import decode_raw_avro_file

LONGS = {"type": "array", "items": "long"}
CASES = [
    ("manifest", "_PARTITION", "null", None),
    ("manifest", "_FILE._VALUE_STATS._MIN_VALUES", "string", "x"),
    ("manifest", "_FILE._VALUE_STATS._NULL_COUNTS", "long", 1),
    ("manifest", "_FILE._KEY_STATS._NULL_COUNTS", {"type": "array", "items": "string"}, ["x"]),
    ("manifest", "_FILE._CREATION_TIME", "string", "x"),
    ("manifest", "_FILE._VALUE_STATS_COLS", LONGS, [1]),
    ("manifest", "_FILE._WRITE_COLS", LONGS, [1]),
    ("manifest list", "_PARTITION_STATS._MAX_VALUES", "string", "x"),
    ("index manifest", "_PARTITION", "null", None),
    ("Iceberg manifest", "snapshot_id", "string", "x"),
    ("Iceberg manifest", "sequence_number", "double", 0.5),
    ("Iceberg manifest", "data_file", "string", "x"),
    ("Iceberg manifest", "data_file.content", LONGS, [1]),
    ("Iceberg manifest", "data_file.partition", "string", "x"),
    ("Iceberg manifest", "data_file.partition", {"type": "map", "values": LONGS}, {"a": [1]}),
    ("Iceberg manifest", "data_file.record_count", "string", "x"),
    ("Iceberg manifest", "data_file.file_path", "bytes", b"x"),
    ("Iceberg manifest", "data_file.referenced_data_file", "long", 1),
    ("Iceberg manifest", "data_file.lower_bounds", LONGS, [1]),
    ("Iceberg manifest list", "manifest_path", "long", 1),
    ("Iceberg manifest list", "manifest_length", "string", "x"),
    ("Iceberg manifest list", "added_files_count", "boolean", True),
    ("Iceberg manifest list", "existing_rows_count", "null", None),
    ("Iceberg manifest list", "partitions", "string", "x"),
]


def declare(data: bytes, path: str, kind: Any, value: Any) -> bytes:
    """Return a file whose records have another type and value of a field."""
    reader: Any = fastavro.reader(io.BytesIO(data))
    schema = json.loads(reader.metadata["avro.schema"])
    records = copy.deepcopy(decode_raw_avro_file(data, "f"))
    definition, parents = schema, records
    *outer, last = path.split(".")
    for name in outer:
        definition = find_field(definition, name)["type"]
        parents = [record[name] for record in parents]
    find_field(definition, last).update(type=kind)
    find_field(definition, last).pop("default", None)
    for record in parents:
        record[last] = value
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(strip_logical_types(schema), {}), records)
    return sink.getvalue()


def find_field(record: Any, name: str) -> Any:
    return next(field for field in record["fields"] if field["name"] == name)


def strip_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strip_logical_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: strip_logical_types(part) for key, part in schema.items() if key != "logicalType"}


@pytest.mark.parametrize(("name", "path", "kind", "value"), CASES)
def test_a_value_of_another_type_is_refused(name: str, path: str, kind: Any, value: Any) -> None:
    data, decode = SAMPLES[name]
    with pytest.raises(
        CorruptFileError,
        match=r"has the invalid value|is not a (list|record)|a value of a partition",
    ):
        decode(declare(data, path, kind, value))

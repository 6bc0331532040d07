"""Manifests whose schema gives fields other types than those of the format."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from support.decoder_samples import DECODERS

from paimon_orch.errors import PaimonError

OTHER_VALUES: dict[str, Any] = {"string": "text", "double": 0.5, "boolean": True, "null": None}
FILES = ["manifest", "manifest list", "index manifest"]
_NESTED = "_FILE"


def find_records(definition: Any) -> list[dict[str, Any]]:
    """Return a record type and the record types of its fields."""
    branches = definition if isinstance(definition, list) else [definition]
    [record] = [b for b in branches if isinstance(b, dict) and b.get("type") == "record"]
    nested = [f["type"] for f in record["fields"] if f["name"] == _NESTED]
    return [record, *(inner for kind in nested for inner in find_records(kind))]


def change(data: bytes, number: int, kind: str) -> bytes | None:
    """Return a file in which one number has another type, or None if it has no more numbers."""
    reader = fastavro.reader(io.BytesIO(data))
    records: list[Any] = list(reader)
    schema = json.loads(json.dumps(reader.writer_schema))
    schema = {key: value for key, value in schema.items() if not key.startswith("__")}
    numbers = [
        (depth, field)
        for depth, record in enumerate(find_records(schema))
        for field in record["fields"]
        if field["type"] in ("int", "long")
    ]
    if number >= len(numbers):
        return None
    depth, field = numbers[number]
    field["type"] = kind
    for record in records:
        (record[_NESTED] if depth else record)[field["name"]] = OTHER_VALUES[kind]
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records)
    return sink.getvalue()


@pytest.mark.parametrize("kind", OTHER_VALUES)
@pytest.mark.parametrize("name", FILES)
def test_a_number_of_another_type_is_refused(name: str, kind: str) -> None:
    sample, decode = DECODERS[name]
    number = 0
    while (data := change(sample, number, kind)) is not None:
        with pytest.raises(PaimonError, match="some/file"):
            decode(data)
        number += 1
    assert number > 3

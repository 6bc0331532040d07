"""Iceberg metadata that Java Paimon wrote, with the Paimon metadata of the same tables."""

from __future__ import annotations

import json
from typing import Any

from support.packed_data import data_file

from paimon_orch.format.schema import TableSchema

Vector = dict[str, Any]


def load_vectors(name: str, group: str) -> list[Vector]:
    """Return a group of vectors from a file in ``tests/data/vectors``."""
    vectors: list[Vector] = json.loads(data_file(f"vectors/{name}.json"))[group]
    return vectors


def parse_schema(content: Vector) -> TableSchema:
    """Return the schema of a schema file's content."""
    return TableSchema.from_json(json.dumps(content).encode(), "schema file")

"""Reads and writes tables with pypaimon; runs inside that package's own environment, by path.

dump WAREHOUSE db.t [--snapshot N]    one JSON object a row
write WAREHOUSE db.t                  a JSON document on stdin: fields, partition_keys, primary_keys, options, batches
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pypaimon import CatalogFactory, Schema  # type: ignore[import-not-found]
from pypaimon.schema.data_types import AtomicInteger, DataTypeParser, PyarrowFieldParser  # type: ignore[import-not-found]

sys.path.append(str(Path(__file__).resolve().parents[1]))
from golden import arrow_table, canonical_rows


def dump(catalog: Any, name: str, snapshot: int | None) -> None:
    """Prints the rows of a table, or of one of its snapshots."""
    table = catalog.get_table(name)
    if snapshot is not None:
        table = table.copy({"scan.snapshot-id": str(snapshot)})
    builder = table.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    for row in canonical_rows(rows):
        record = dict(zip(rows.column_names, row, strict=True))
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")


def write(catalog: Any, name: str, spec: dict[str, Any]) -> None:
    """Creates the table when `fields` are given, and commits each batch of rows as a snapshot."""
    if "fields" in spec:
        catalog.create_database(name.partition(".")[0], True)
        catalog.create_table(name, _schema(spec), False)
    for batch in spec["batches"]:
        table = catalog.get_table(name)
        builder = table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(arrow_table(batch, PyarrowFieldParser.from_paimon_schema(table.fields)))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()


def _schema(spec: dict[str, Any]) -> Schema:
    ids = AtomicInteger(-1)
    return Schema(
        fields=[DataTypeParser.parse_data_field(_without_ids(f), ids) for f in spec["fields"]],
        partition_keys=spec.get("partition_keys", []),
        primary_keys=spec.get("primary_keys", []),
        options=spec.get("options", {}),
    )


def _without_ids(part: Any) -> Any:
    # The parser numbers every field or none.
    if isinstance(part, dict):
        return {key: _without_ids(value) for key, value in part.items() if key != "id"}
    return [_without_ids(item) for item in part] if isinstance(part, list) else part


def main() -> None:
    """Runs the command that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["dump", "write"])
    parser.add_argument("warehouse")
    parser.add_argument("table")
    parser.add_argument("--snapshot", type=int)
    arguments = parser.parse_args()
    catalog = CatalogFactory.create({"warehouse": arguments.warehouse})
    if arguments.command == "dump":
        dump(catalog, arguments.table, arguments.snapshot)
    else:
        write(catalog, arguments.table, json.load(sys.stdin))


if __name__ == "__main__":
    main()

"""Java goes on where we changed a table: its schema, its tags and branches, its dynamic buckets."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from golden import GOLDEN, arrow_table, canonical_rows, copy_warehouse
from peers import peers
from tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.table.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetOption,
    UpdateComment,
    UpdateType,
)
from paimon_orch.table.table import Table

pytestmark = pytest.mark.usefixtures("java_oracle")


def records(table: Table, **scan: object) -> list[str]:
    rows = table.scan(**scan).to_arrow()  # type: ignore[arg-type]
    names = rows.column_names
    shown = (dict(zip(names, row, strict=True)) for row in canonical_rows(rows))
    return sorted(json.dumps(record, ensure_ascii=False) for record in shown)


def java_records(table: Table, **at: str) -> list[str]:
    warehouse = Path(table.paths.root).parents[1]
    found = peers.dump_java(warehouse, table.identifier, **at)  # type: ignore[arg-type]
    return sorted(json.dumps(record, ensure_ascii=False) for record in found)


def assert_java_agrees(table: Table, **at: str) -> None:
    assert java_records(table, **at) == records(table, **at)
    assert peers.check_java(Path(table.paths.root).parents[1], table.identifier) == []


def test_java_reads_and_alters_what_we_altered(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING, n INT, gone INT, r ROW<x INT, y STRING>")
    columns = "k v n gone r"
    table.upsert(table_of(columns, [(1, "a", 1, 1, {"x": 1, "y": "p"}), (2, "b", None, 2, None)]))
    catalog = Catalog(str(tmp_path))

    catalog.alter_table(
        "db.t",
        [
            AddColumn("added", "DOUBLE", comment="new", after="k"),
            DropColumn("gone"),
            RenameColumn("v", "title"),
            UpdateType("n", "BIGINT"),
            MoveColumn("n", "first"),
            SetOption("snapshot.num-retained.max", "99"),
            UpdateComment("evolved"),
        ],
    )
    table = catalog.table("db.t")
    table.upsert(
        table_of(
            "n k added title r", [(2**40, 2, 0.5, "c", {"x": 3, "y": "q"}), (4, 4, None, "d", None)]
        )
    )

    assert_java_agrees(table)
    peers.run_java("alter", tmp_path, "db.t", "rename", "title", "name")
    assert table.schema.names == ["n", "k", "added", "name", "r"]
    assert_java_agrees(table)


def test_java_reads_our_tags_and_branches_and_our_rollback(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for text in ("1", "2", "3"):
        table.upsert(table_of("k v", [(1, text), (int(text) + 1, text)]))
    table.tags.create("plain", 1)
    table.tags.create("timed", 2, time_retained=timedelta(days=365.5))
    table.tags.rename("plain", "renamed")

    for tag in ("renamed", "timed"):
        assert_java_agrees(table, tag=tag)

    table.branches.create("dev", "timed")
    dev = Catalog(str(tmp_path)).table("db.t$branch_dev")
    dev.upsert(table_of("k v", [(9, "dev")]))
    assert_java_agrees(dev)
    table.branches.fast_forward("dev")
    assert_java_agrees(table)

    table.rollback(tag="renamed")
    assert_java_agrees(table)
    peers.java_write(tmp_path, "db.t", [{"k": 1, "v": "java"}])
    assert_java_agrees(table)


@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        ("pk_dynamic_bucket", "db.t"),
        ("pk_dynamic_bucket_part", "db.t"),
        ("pk_dynamic_bucket_part", "db.t_dv"),
    ],
)
def test_java_finds_every_key_where_we_put_it(scenario: str, name: str, tmp_path: Path) -> None:
    folder = GOLDEN / "java-0.9" / scenario
    if not folder.exists():
        pytest.skip("the golden tables are not beside this checkout")
    table = Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table(name)
    rows = table.scan().to_arrow()
    key = table.schema.trimmed_primary_keys[-1]
    # half of the rows again under new keys, the others under their own
    kind = rows.schema.field(key).type
    values = rows[key].to_pylist()
    fresh = [
        value if at % 2 else (f"{value}-new" if isinstance(value, str) else value + 1_000_000)
        for at, value in enumerate(values)
    ]
    changed = rows.set_column(
        rows.schema.get_field_index(key),
        key,
        arrow_table([{key: v} for v in fresh], rows.schema.empty_table().select([key]).schema)[
            key
        ].cast(kind),
    )

    table.upsert(changed)

    warehouse = Path(table.paths.root).parents[1]
    assert peers.check_java(warehouse, name) == []
    own = [json.loads(text) for text in records(table)][:20]
    peers.java_write(warehouse, name, own)
    peers.java_compact(warehouse, name)
    table.upsert(changed)
    assert_java_agrees(table)


def test_java_continues_our_dynamic_buckets(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="-1", dynamic_bucket__target_row_num="20")
    table.upsert(table_of("k v", [(k, "ours") for k in range(50)]))

    peers.java_write(tmp_path, "db.t", [{"k": k, "v": "java"} for k in range(40, 80)])
    table.upsert(table_of("k v", [(k, "again") for k in range(30, 90)]))

    assert {split.bucket for split in table.files()} == {0, 1, 2, 3, 4}
    assert_java_agrees(table)

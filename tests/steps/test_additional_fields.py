"""Steps keep unknown fields and keys in all metadata files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import orc
from support.added_fields import (
    KEY,
    NO_ADDED_VALUES,
    PLACES,
    PREFIX,
    add_fields,
    added_values,
    assert_added_values_kept,
    avro_types,
    commit_keys,
    json_files,
    read_metadata_file,
)
from support.golden import GOLDEN, canonical_rows, copy_warehouse
from support.histories import KINDS, Operation, apply_action, make_table, operations
from support.tables import new_table, rows_of, small_batches, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.maintenance.analyze import analyze
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.steps.repairs.remove_unexisting_files import remove_unexisting_files
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.table.schema_change.schema_changes import (
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
FEW = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def fields(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Draw two or three fields for each kind of file."""
    return {
        kind: {
            f"{place}{PREFIX}_{number}": draw(avro_types(depth=1))
            for number, place in enumerate(
                draw(st.lists(st.sampled_from(places), min_size=2, max_size=3))
            )
        }
        for kind, places in PLACES.items()
    }


def lose_a_file(table: Table) -> None:
    for split in table.files()[:1]:  # earlier steps may have removed all files
        next(Path(table.paths.root).rglob(split.files[0].file_name)).unlink()
        remove_unexisting_files(table)


def alter(table: Table, *changes: SchemaChange) -> None:
    catalog_of(table).alter_table(table.identifier, changes)


def index(table: Table) -> None:
    alter(table, SetOption("file-index.bloom-filter.columns", "v"))
    rewrite_file_index(catalog_of(table).table(table.identifier), EXECUTOR)


def catalog_of(table: Table) -> Catalog:
    return Catalog(str(Path(table.paths.root).parents[1]))


def delete_row(table: Table) -> None:
    if not table.load().schema.primary_keys:
        row_level.delete(table, EXECUTOR, "k = 2")


STEPS: Mapping[str, Callable[[Table], object]] = {
    "minor": lambda table: compact(table, EXECUTOR),
    "full": lambda table: compact(table, EXECUTOR, strategy="full"),
    "manifests": compact_manifests,
    "upsert": lambda table: apply_action(table, "upsert", 1, "later"),
    "overwrite": lambda table: apply_action(table, "overwrite", 1, "later"),
    "drop": lambda table: apply_action(table, "drop", 1, "later"),
    "delete": delete_row,
    "expire": lambda table: expire_snapshots(table, retain_min=1, retain_max=2),
    "analyze": lambda table: analyze(table, EXECUTOR),
    "index": index,
    "lost": lose_a_file,
    "new tag": lambda table: table.tags.create("n", time_retained=timedelta(days=1)),
    "replace tag": lambda table: table.tags.replace("t1"),
    "rename tag": lambda table: table.tags.rename("t1", "renamed"),
    "branch": lambda table: table.branches.create("later", "t1"),
    "fast forward": lambda table: table.branches.fast_forward("dev"),
    "rollback": lambda table: table.rollback(tag="t1", delete_tags=True),
    "alter": lambda table: alter(table, UpdateComment("later"), UpdateColumnComment("v", "x")),
}
"""The steps for a table with a tag ``t1`` and a branch ``dev``."""
NEEDED = {"replace tag": "t1", "rename tag": "t1", "branch": "t1", "rollback": "t1"}
ONCE = {"new tag", "branch", "rename tag"}
# After these steps, the current version may contain the lost file, so it cannot be read.
NOT_AFTER_LOST = {"fast forward", "rollback"}


def run(table: Table, steps: list[str]) -> None:
    for number, step in enumerate(steps):
        possible = NEEDED.get(step, "t1") in table.tags.names() or step not in NEEDED
        earlier = steps[:number]
        repeated = step in ONCE and step in earlier
        unreadable = step in NOT_AFTER_LOST and "lost" in earlier
        if possible and not repeated and not unreadable:
            STEPS[step](table)


def identity(snapshot: Mapping[str, Any]) -> tuple[object, ...]:
    """Return values that a snapshot shares only with its copies."""
    return snapshot["commitUser"], snapshot["id"], snapshot["timeMillis"]


def snapshots(root: Path) -> dict[tuple[object, ...], int]:
    """Return the snapshots by id."""
    files = [path for path in json_files(root) if not path.name.startswith("schema-")]
    documents = [json.loads(path.read_bytes()) for path in files]
    return {identity(snapshot): snapshot["id"] for snapshot in documents}


def check_json(root: Path, old: Mapping[tuple[object, ...], int]) -> None:
    """Check that no snapshot, tag or schema has lost unknown keys of its original."""
    for path in json_files(root):
        document = json.loads(path.read_bytes())
        if path.name.startswith("schema-"):
            assert document[KEY] == {"of": ["schema", 1.5]}, path
            assert all(field[KEY] == [field["id"]] for field in document["fields"]), path
        elif number := old.get(identity(document)):
            assert document[KEY] == {"of": number}, path
            assert document.items() >= commit_keys(number).items(), path
        if path.name in ("tag-t1", "tag-renamed"):
            assert document[f"{KEY}OfTag"] == ["tag-t1"], path


@pytest.mark.slow
@FEW
@given(st.sampled_from(sorted(KINDS)), operations(5), fields(), st.integers(0, 99), st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))  # fmt: skip
def test_no_step_loses_a_field(
    kind: str, history: list[Operation], added: Any, seed: int, steps: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = [*history, ("tag", 1), ("branch", 1), ("upsert", 1)]
        table = make_table(Path(folder), kind, history, batch_rows=3)
        root = Path(table.paths.root)
        add_fields(root, added, seed)
        before, old = added_values(root), snapshots(root)
        assert any(values != {NO_ADDED_VALUES} for values in before.values())

        run(small_batches(Catalog(folder).table("db.t"), 3), steps)

        assert_added_values_kept(root, before)
        check_json(root, old)
        rows_of(Catalog(folder).table("db.t"))


def small_table(root: Path, **options: str) -> Table:
    """Return a table of two snapshots, each with one file."""
    table = new_table(root, **options)
    for text in ("a", "b"):
        table.upsert(table_of("k v", [(n, text) for n in range(5)]))
    return table


def entries_of(table: Table) -> list[dict[str, Any]]:
    """Return the newest manifest entries in their stored form."""
    snapshot = table.snapshot()
    assert snapshot is not None
    metas = table.stores.manifests.manifests(snapshot)
    return [
        r
        for m in metas
        for r in read_metadata_file(Path(table.paths.manifest_dir) / m.file_name)[1]
    ]


def test_a_file_that_moves_to_another_level_keeps_its_fields(tmp_path: Path) -> None:
    table = new_table(tmp_path, num_levels="3")
    table.upsert(table_of("k v", [(1, "a")]))
    add_fields(Path(table.paths.root), {"manifest": {"_LATER": "long", "_FILE._LATER": ["null", "string"]}}, chance=1)  # fmt: skip
    [old] = entries_of(table)
    compact(table, EXECUTOR, strategy="full")
    ((_, deleted), (_, added)) = sorted((e["_KIND"], e) for e in entries_of(table)[-2:])[::-1]
    assert (deleted["_FILE"]["_LEVEL"], added["_FILE"]["_LEVEL"]) == (
        0,
        table.load().schema.typed_options.num_levels - 1,
    )
    for entry in (deleted, added):
        assert entry["_FILE"]["_FILE_NAME"] == old["_FILE"]["_FILE_NAME"]
        assert (entry["_LATER"], entry["_FILE"]["_LATER"]) == (old["_LATER"], old["_FILE"]["_LATER"])  # fmt: skip


def test_only_an_unchanged_deletion_vector_keeps_the_fields_of_its_range(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", deletion_vectors__enabled="true")
    for start in (0, 10):
        table.append(table_of("k v", [(n, "x") for n in range(start, start + 10)]))
    row_level.delete(table, EXECUTOR, "k = 2 or k = 12")
    root = Path(table.paths.root)
    add_fields(root, {"index-manifest": {"_DELETIONS_VECTORS_RANGES._LATER": "long"}}, chance=1)
    row_level.delete(table, EXECUTOR, "k = 3")
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.index_manifest is not None
    _, records = read_metadata_file(Path(table.paths.manifest_dir) / snapshot.index_manifest)
    ranges = [item for record in records for item in record["_DELETIONS_VECTORS_RANGES"]]
    assert {item["_CARDINALITY"]: item["_LATER"] is not None for item in ranges} == {2: False, 1: True}  # fmt: skip


def test_a_field_with_different_types_stops_the_merge_and_does_not_change_the_table(tmp_path: Path) -> None:  # fmt: skip
    table = small_table(tmp_path)
    root = Path(table.paths.root)
    first_manifest, second_manifest = sorted(path.name for path in root.glob("manifest/manifest-*") if "list" not in path.name)  # fmt: skip
    add_fields(root, {"manifest": {"_FILE._LATER": "long"}}, chance=1, only=first_manifest)
    add_fields(root, {"manifest": {"_FILE._LATER": "string"}}, chance=1, only=second_manifest)
    before = contents_of(table)
    for step in (compact_manifests, lambda table: compact(table, EXECUTOR, strategy="full")):
        with pytest.raises(UnsupportedError, match=r"'_FILE\._LATER'.*types in the input files"):
            step(table)
        assert contents_of(table) == before
    assert len(rows_of(table)) == 5


def contents_of(table: Table) -> dict[str, bytes]:
    return {path: Path(path).read_bytes() for path in stored_files(table)}


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_an_unknown_field_of_a_manifest_that_is_not_avro_is_kept(tmp_path: Path, kind: str) -> None:
    table = small_table(tmp_path)
    root = Path(table.paths.root)

    def convert(path: Path, records: list[Any]) -> None:
        kinds = without_null_types(pa.array(records).type)
        rows = pa.Table.from_struct_array(pa.array(records, kinds))
        (orc if kind == "orc" else pq).write_table(rows, str(path))

    add_fields(root, {"manifest": {"_FILE._LATER": "long"}}, chance=1, convert=convert)
    assert len(rows_of(table)) == 5

    assert compact_manifests(table) is not None

    snapshot = table.snapshot()
    assert snapshot is not None
    entries = table.stores.manifests.read_live_entries(snapshot)
    assert entries
    assert all(entry.file.additional is not None for entry in entries)
    assert len(rows_of(table)) == 5
    compact(table, EXECUTOR, strategy="full")
    assert len(rows_of(table)) == 5


def without_null_types(kind: pa.DataType) -> pa.DataType:
    """Replace null types, which ORC does not have."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, without_null_types(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(without_null_types(kind.value_type))
    return pa.string() if pa.types.is_null(kind) else kind


def edit_newest(table: Table, **keys: Any) -> None:
    path = Path(table.stores.snapshots.path(table.stores.snapshots.ids()[-1]))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | keys))


def newest(table: Table) -> dict[str, Any]:
    snapshot: dict[str, Any] = json.loads(Path(table.stores.snapshots.path(table.stores.snapshots.ids()[-1])).read_bytes())  # fmt: skip
    return snapshot


def test_only_merged_manifests_inherit_unknown_snapshot_keys(tmp_path: Path) -> None:
    """As in Java Paimon, keys that describe the commit are never inherited."""
    table = small_table(tmp_path)
    edit_newest(table, properties={"p": "1"}, later={"x": [1]}, **commit_keys(1))
    compact_manifests(table)
    merged = newest(table)
    assert (merged["properties"], merged["later"]) == ({"p": "1"}, {"x": [1]})
    assert not commit_keys(1).keys() & merged.keys()
    table.upsert(table_of("k v", [(9, "later")]))
    assert not {"properties", "later"} & newest(table).keys()


def test_a_replaced_tag_keeps_its_own_unknown_keys(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    edit_newest(table, later=1, operation="WRITE")
    table.tags.create("t")
    path = Path(table.tags.path("t"))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"tagOwner": ["me"]}))
    table.upsert(table_of("k v", [(9, "later")]))
    table.tags.replace("t", time_retained=timedelta(days=1))
    tag = json.loads(path.read_bytes())
    assert (tag["id"], tag["tagOwner"], tag["tagTimeRetained"]) == (3, ["me"], 86400)
    assert not {"later", "operation"} & tag.keys()
    expire_snapshots(table, retain_min=1, retain_max=1)
    table.upsert(table_of("k v", [(9, "later")]))
    table.tags.replace("t")
    assert json.loads(path.read_bytes())["tagOwner"] == ["me"]


GOLDEN_FOLDERS = (
    *("java-2.0/dv_bitmap64", "java-2.0/file_indexes", "java-2.0/row_tracking"),
    *("java-2.0/schema_evo_pk", "java-2.0/changelog_options", "java-0.9/pk_dynamic_bucket"),
    "pypaimon-rust-0.4/append",
)
SOME_TYPES: list[Any] = [
    "long",
    ["null", "string"],
    {"type": "array", "items": "long"},
    ["null", {"type": "record", "fields": [{"name": "a", "type": ["null", "int"]}]}],
    {"type": "long", "logicalType": "timestamp-micros"},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("folder", GOLDEN_FOLDERS)
def test_tables_of_other_writers_keep_added_fields(folder: str, tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / folder, tmp_path / "w")
    catalog = Catalog(str(warehouse))
    for name in catalog.tables("db"):
        table = catalog.table(f"db.{name}")
        root = Path(table.paths.root)
        added = {
            kind: {f"{place}_LATER_{n}": SOME_TYPES[n] for n, place in enumerate(places)}
            for kind, places in PLACES.items()
        }
        rows = canonical_rows(table.scan().to_arrow())
        add_fields(root, added)
        before, old = added_values(root), snapshots(root)
        assert canonical_rows(table.scan().to_arrow()) == rows

        table.tags.create("t1 later")
        for step in ("minor", "manifests", "full", "manifests", "expire"):
            STEPS[step](table)
            assert_added_values_kept(root, before)
            check_json(root, old)
        table.rollback(tag="t1 later")
        assert_added_values_kept(root, before)
        check_json(root, old)

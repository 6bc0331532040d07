"""Schema changes: old rows in the new schema, and changes that are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import get_file_system, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError, PaimonError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import (
    RowType,
    list_nested_fields,
    parse_columns,
    parse_type,
    type_to_sql,
)
from paimon_orch.storage import FileIO, LocalFileIO
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.schema_change.apply_schema_changes import apply_schema_changes
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateType,
)
from paimon_orch.table.table import Table


def schema_of(columns: str, key: str = "", partition: str = "", **options: str) -> TableSchema:
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    return build_table_schema(
        parse_columns(columns),
        primary_key=key.split(),
        partition_by=partition.split(),
        options={"bucket": "2"} | named if key else named,
    )


def after(schema: TableSchema, *changes: SchemaChange, has_snapshots: bool = True) -> TableSchema:
    return apply_schema_changes(schema, changes, has_snapshots=has_snapshots, time_millis=7)


def shape(schema: TableSchema) -> dict[str, tuple[int, str]]:
    return {field.name: (field.id, type_to_sql(field.type)) for field in schema.fields}


def alter(table: Table, *changes: SchemaChange) -> Table:
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table(table.identifier, changes)
    return catalog.table(table.identifier)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, "k BIGINT, v STRING, n INT")
    table.upsert(table_of("k v n", [(1, "a", 10), (2, "b", None)]))
    return table


def test_a_new_column_is_null_in_older_rows(table: Table) -> None:
    changed = alter(
        table,
        AddColumn(column="first", type="DOUBLE", first=True),
        AddColumn(column="x", type="INT", after="k"),
    )
    changed.upsert(table_of("first k x v n", [(0.5, 2, 5, "c", 1)]))

    assert changed.load().schema.names == ["first", "k", "x", "v", "n"]
    assert rows_of(changed) == [(None, 1, None, "a", 10), (0.5, 2, 5, "c", 1)]


@pytest.mark.parametrize(("before", "names"), [("true", "id v w dt"), ("false", "id v dt w")])
def test_a_new_column_precedes_the_partition_columns_if_the_option_is_set(
    before: str, names: str
) -> None:
    schema = schema_of(
        "id INT, v INT, dt STRING", partition="dt", **{"add-column-before-partition": before}
    )
    assert after(schema, AddColumn(column="w", type="INT")).names == names.split()


def test_a_dropped_and_readded_column_does_not_return_old_values(
    table: Table,
) -> None:
    changed = alter(alter(table, DropColumn("v")), AddColumn(column="v", type="STRING"))

    assert rows_of(changed) == [(1, 10, None), (2, None, None)]
    assert changed.load().schema.field("v").id == 3


def test_a_renamed_column_keeps_its_values(table: Table) -> None:
    changed = alter(table, RenameColumn("v", "title"), RenameColumn("k", "key"))
    changed.upsert(table_of("key title n", [(2, "z", 3)]))

    assert changed.load().schema.primary_keys == ("key",)
    assert rows_of(changed, columns=["key", "title"]) == [(1, "a"), (2, "z")]


def test_old_values_are_read_in_the_new_type_of_a_column(table: Table) -> None:
    changed = alter(table, UpdateType("n", "DECIMAL(12, 2)"))

    assert [str(row[2]) for row in rows_of(changed)] == ["10.00", "None"]


def test_a_type_that_values_of_older_files_cannot_be_cast_to_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v BOOLEAN, r ROW<x BOOLEAN>")
    rows = table_of("k v r", [(1, True, {"x": True})])
    table.upsert(rows)
    table = alter(table, UpdateType("v", "STRING"), UpdateType(("r", "x"), "STRING"))

    for column, name in (("v", "v"), (("r", "x"), "r")):
        with pytest.raises(InputError, match=f"files of schema 0 have column '{name}' as"):
            alter(table, UpdateType(column, "DATE"))

    assert rows_of(table) == [(1, "true", {"x": "true"})]
    table.overwrite(table_of("k v r", [(1, "2026-01-01", {"x": "2026-01-01"})]))
    assert alter(table, UpdateType("v", "DATE")).scan().count() == 1


def test_moving_columns_changes_only_their_order(table: Table) -> None:
    changed = alter(table, MoveColumn("n", "first"), MoveColumn("v", "before", "k"))
    assert rows_of(changed) == [(None, "b", 2), (10, "a", 1)]
    again = alter(changed, MoveColumn("n", "last"), MoveColumn("v", "after", "k"))
    assert rows_of(again) == [(1, "a", 10), (2, "b", None)]


def test_all_changes_are_written_as_one_schema_version(table: Table) -> None:
    changed = alter(
        table, UpdateComment("c"), UpdateColumnComment("v", "words"), SetOption("my.own", "1")
    )

    assert changed.stores.schemas.ids() == [0, 1]
    assert changed.load().schema.comment == "c"
    assert changed.load().schema.field("v").description == "words"
    assert changed.load().schema.options["my.own"] == "1"
    assert alter(changed, ResetOption("not.there")).stores.schemas.ids() == [0, 1]


def test_time_travel_reads_the_columns_of_the_snapshot(table: Table) -> None:
    changed = alter(table, DropColumn("v"))
    changed.upsert(table_of("k n", [(3, 3)]))

    assert rows_of(changed, snapshot_id=1) == [(1, "a", 10), (2, "b", None)]


def test_a_concurrent_schema_change_is_not_overwritten(tmp_path: Path) -> None:
    class Rival(LocalFileIO):
        """Adds a column just before the other writer creates its first schema version."""

        raced = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.raced:
                self.raced = True
                Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="rival", type="INT")])
            return super().create(path, data)

    new_table(tmp_path, "k BIGINT, v STRING")
    catalog = Catalog(str(tmp_path))
    io: FileIO = Rival()
    get_file_system(catalog).io = io

    schema = catalog.alter_table("db.t", [AddColumn(column="mine", type="INT")])

    assert (schema.id, schema.names) == (2, ["k", "v", "rival", "mine"])
    assert schema == Catalog(str(tmp_path)).table("db.t").load().schema


def test_new_columns_get_unused_ids() -> None:
    schema = schema_of("a INT, r ROW<x INT, y ROW<z INT>>")
    changed = after(
        after(schema, DropColumn(("r", "y"))),
        AddColumn(column="c", type="ROW<p INT, q INT>"),
        AddColumn(column="d", type="INT"),
    )

    assert schema.highest_field_id == 4
    assert [field.id for field in changed.fields] == [0, 1, 5, 8]
    assert changed.highest_field_id == 8


def test_a_new_nested_field_has_the_id_of_no_other_field_if_the_highest_id_is_too_low() -> None:
    """pypaimon before 2 counts only the columns, and numbers the fields of each row from 0."""
    schema = schema_of("k INT, a ROW<x INT, y INT, z INT>")
    kind = schema.field("a").type
    assert isinstance(kind, RowType)
    row = replace(kind, fields=tuple(replace(f, id=n) for n, f in enumerate(kind.fields)))
    columns = (schema.field("k"), replace(schema.field("a"), type=row))

    changed = after(
        replace(schema, fields=columns, highest_field_id=1),
        DropColumn(("a", "z")),  # older files have it
        AddColumn(column=("a", "n"), type="INT"),
        AddColumn(column="b", type="INT"),
    )

    assert [f.id for f in list_nested_fields(changed.field("a").type)] == [0, 1, 3]
    assert (changed.field("b").id, changed.highest_field_id) == (4, 4)


def test_a_new_column_cannot_have_a_row_that_names_a_field_twice() -> None:
    """The schema file could not be read again, nor the table."""
    schema = schema_of("k INT, a ROW<x INT>")
    for column in ("b", ("a", "n")):
        with pytest.raises(InputError, match="has a ROW that declares field 'x' twice"):
            after(schema, AddColumn(column=column, type="ROW<x INT, x INT>"))


def test_fields_of_nested_rows_can_be_changed_in_the_same_way_as_columns() -> None:
    schema = schema_of(
        "r ROW<x INT, y STRING>, a ARRAY<ROW<z INT>>, m MAP<STRING, INT>, l ARRAY<INT>"
    )

    changed = after(
        schema,
        RenameColumn(("r", "x"), "xx"),
        AddColumn(column=("r", "new"), type="INT", after="xx"),
        UpdateType(("a", "element", "z"), "BIGINT"),
        UpdateType(("m", "value"), "DOUBLE"),
        UpdateType(("l", "element"), "STRING"),
        UpdateColumnComment(("r", "y"), "why"),
    )

    assert [type_text for _, type_text in shape(changed).values()] == [
        "ROW<xx INT, new INT, y STRING>",
        "ARRAY<ROW<z BIGINT>>",
        "MAP<STRING, DOUBLE>",
        "ARRAY<STRING>",
    ]


def test_nested_rows_of_old_files_are_read_with_the_new_schema(tmp_path: Path) -> None:
    table = new_table(tmp_path, "r ROW<x INT, y STRING>", key=(), bucket="-1")
    table.append(pa.table({"r": [{"x": 1, "y": "a"}, None]}))

    changed = alter(
        table,
        RenameColumn(("r", "y"), "z"),
        UpdateType(("r", "x"), "BIGINT"),
        AddColumn(column=("r", "n"), type="INT"),
    )

    assert changed.scan().to_arrow().column("r").to_pylist() == [
        {"x": 1, "z": "a", "n": None},
        None,
    ]


def test_the_type_of_a_bucket_key_cannot_change_its_hash() -> None:
    schema = schema_of("k INT, s VARCHAR(3), v INT", bucket="4", bucket_key="k,s")

    with pytest.raises(InputError, match="belongs to the bucket key"):
        after(schema, UpdateType("k", "BIGINT"))

    assert after(schema, UpdateType("s", "STRING")).field("s").type == parse_type("STRING")
    by_value = schema_of("k INT", bucket="4", bucket_key="k", bucket_function__type="mod")
    assert after(by_value, UpdateType("k", "BIGINT")).field("k").type == parse_type("BIGINT")


def test_options_follow_a_renamed_column() -> None:
    schema = schema_of(
        "a INT, b INT, c STRING, g INT, s INT",
        "a b",
        bucket_key="b",
        merge_engine="partial-update",
        sequence__field="s",
        clustering__columns="c,a",
        sink__clustering__by_columns="c",
        fields__g__sequence_group="c",
        fields__c__aggregate_function="listagg",
        fields__c__list_agg_delimiter=";",
        fields__c__distinct="true",
        fields__c__ignore_retract="true",
        **{"changelog-producer.row-deduplicate-ignore-fields": "c,g"},
    )

    changed = after(
        schema, *(RenameColumn(name, name.upper() * 2) for name in ("a", "b", "c", "g", "s"))
    )

    assert changed.primary_keys == ("AA", "BB")
    assert {
        key: text for key, text in changed.options.items() if key not in ("bucket", "merge-engine")
    } == {
        "bucket-key": "BB",
        "sequence.field": "SS",
        "clustering.columns": "CC,AA",
        "sink.clustering.by-columns": "CC",
        "fields.GG.sequence-group": "CC",
        "fields.CC.aggregate-function": "listagg",
        "fields.CC.list-agg-delimiter": ";",
        "fields.CC.distinct": "true",
        "fields.CC.ignore-retract": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "CC,GG",
    }


OPTIONS_OF_A_COLUMN = [
    {"record-level.time-field": "v"},
    {"rowkind.field": "s"},
    {"upsert-key": "v"},
    {"vector-field": "e"},
    {"file-index.bloom-filter.columns": "w,v"},
    {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "9"},
    {"fields.v.stats-mode": "full"},
    {"fields.v.default-value": "3"},
    {"fields.n.count-limit": "3"},
]


@pytest.mark.parametrize("options", OPTIONS_OF_A_COLUMN, ids=str)
def test_a_column_of_an_option_that_java_does_not_rename_is_renamed_with_the_option(
    options: dict[str, str],
) -> None:
    columns = "k INT, v INT, w INT, s STRING, e ARRAY<FLOAT>, n ARRAY<ROW<a INT, b INT>>"
    schema = schema_of(columns, "k", **options)
    words = [
        word for option in options.items() for text in option for word in re.split("[.,]", text)
    ]
    column = next(name for name in "vsen" if name in words)

    with pytest.raises(InputError, match=f"option '.*' names the column '{column}'"):
        after(schema, RenameColumn(column, "x"))

    resets = map(ResetOption, options)
    changed = after(schema, RenameColumn(column, "x"), *resets, has_snapshots=False)
    assert changed.options == {"bucket": "2"}


def test_a_column_of_an_option_is_dropped_with_the_option() -> None:
    for key in ("sequence.field", "clustering.columns", "sink.clustering.by-columns", "upsert-key"):
        schema = schema_of("k INT, v INT, w INT", "k", **{key: "v"})
        with pytest.raises(InputError, match=f"option '{key}' = 'v' names the column 'v'"):
            after(schema, DropColumn("v"))
        assert after(schema, DropColumn("v"), SetOption(key, "w")).names == ["k", "w"]


def test_options_lose_a_dropped_column_of_special_files() -> None:
    tracked = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    special = {"blob-field": "b,c", "blob-view-field": "b", "vector-field": "v"}
    schema = schema_of(
        "k INT, b BLOB, c BLOB, v VECTOR<FLOAT, 2>", **tracked, **special, bucket="-1"
    )

    changed = after(schema, DropColumn("b"), DropColumn("v"))

    assert changed.options == {**tracked, "bucket": "-1", "blob-field": "c"}
    with pytest.raises(InputError, match="BLOB column 'b' cannot be renamed"):
        after(schema, RenameColumn("b", "x"))


COLUMNS = "k INT, dt STRING, v INT, t TIMESTAMP(3), r ROW<x INT>, s INT, l ARRAY<INT>"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (AddColumn(column="n", type="INT NOT NULL"), "column 'n' is added as NOT NULL"),
        (AddColumn(column="v", type="INT"), "column 'v' already exists"),
        (AddColumn(column="_KEY_x", type="INT"), "reserved"),
        (AddColumn(column=("v", "x"), type="INT"), "'v' is INT"),
        (AddColumn(column="n", type="INT", after="nope"), "no column 'nope'"),
        (AddColumn(column="n", type="INT", first=True, after="v"), "both first and after 'v'"),
        (DropColumn("k"), "'k' belongs to the primary key and cannot be dropped"),
        (DropColumn("dt"), "partition column 'dt' cannot be dropped"),
        (
            DropColumn("s"),
            "option 'sequence.field' = 's' names the column 's', which the table does not",
        ),
        (DropColumn(("r", "x")), "column 'r.x' is the only one left"),
        (RenameColumn("dt", "day"), "partition column 'dt' cannot be renamed"),
        (RenameColumn("v", "k"), "column 'k' already exists"),
        (RenameColumn("v", "v"), "column 'v' already exists"),
        (SetOption("record-level.time-field", "r"), "must be INT, BIGINT or TIMESTAMP"),
        (RenameColumn(("l", "element"), "item"), "'l.element' is not a field of a row and cannot"),
        (RenameColumn("v", ""), "must not be empty"),
        (DropColumn(""), "must not be empty"),
        (DropColumn(()), "must not be empty"),
        (DropColumn(("r", "")), "must not be empty"),
        (RenameColumn("nope", "x"), "no column 'nope'"),
        (UpdateType("k", "BIGINT"), "'k' belongs to the primary key and cannot change its type"),
        (UpdateType("dt", "CHAR(3)"), "partition column 'dt' cannot change its type"),
        (UpdateType("v", "BINARY(4)"), r"'v' cannot change from INT to BINARY\(4\)$"),
        (UpdateType("t", "DECIMAL(10, 2)"), "'t' cannot change from"),
        (UpdateType("r", "ROW<x BIGINT>"), "'r' cannot change from"),
        (UpdateType("r", "INT"), "'r' cannot change from"),
        (UpdateNullability("v", False), "alter-column-null-to-not-null.disabled"),
        (UpdateNullability("k", True), "'k' belongs to the primary key and must be NOT NULL"),
        (MoveColumn("v", "after"), "name another column"),
        (MoveColumn("v", "before", "v"), "name another column"),
        (SetOption("merge-engine", "first-row"), "once the table has snapshots"),
        (SetOption("manifest.format", "orc"), "'manifest.format' cannot change once"),
        (
            SetOption("partition.default-name", "none"),
            "'partition.default-name' cannot change once",
        ),
        (SetOption("partition.legacy-name", "false"), "'partition.legacy-name' cannot change once"),
        (SetOption("bucket-key", "k"), "once the table has snapshots"),
        (SetOption("bucket", "-1"), "only a positive count"),
        (ResetOption("bucket"), "only a positive count"),
        (SetOption("deletion-vectors.enabled", "true"), "deletion-vectors.modifiable"),
        (SetOption("primary-key", "k"), "cannot be stored"),
        (SetOption("path", "/elsewhere"), "cannot be stored"),
        (SetOption("write-only", "maybe"), "true or false"),
        (SetOption("target-file-size", "huge"), "128 mb"),
        (SetOption("snapshot.num-retained.max", "3"), "must not be above"),
        (SetOption("snapshot.num-retained.min", "0"), "at least 1"),
        (SetOption("row-tracking.enabled", "true"), "once the table has snapshots"),
        (SetOption("fields.nope.stats-mode", "full"), "does not have"),
        (SetOption("fields.s.aggregate-function", "max"), "cannot have"),
        (SetOption("data-evolution.enabled", "false"), "once the table has snapshots"),
    ],
    ids=str,
)
def test_the_error_of_an_invalid_change_contains_the_rule(change: SchemaChange, rule: str) -> None:
    schema = schema_of(COLUMNS, "k dt", "dt", sequence__field="s")

    with pytest.raises(InputError, match=rule):
        after(schema, change)


def test_the_format_of_existing_manifests_cannot_be_reset() -> None:
    orc = schema_of("k INT", manifest__format="orc")

    with pytest.raises(InputError, match=r"'manifest\.format' cannot change once"):
        after(orc, ResetOption("manifest.format"))
    with pytest.raises(InputError, match=r"'manifest\.format' cannot change once"):
        after(orc, SetOption("manifest.format", "avro"))

    assert after(orc, ResetOption("manifest.format"), has_snapshots=False).options == {}


def test_the_default_format_of_manifests_can_be_written_out_or_reset() -> None:
    schema = schema_of("k INT")

    explicit = after(schema, SetOption("manifest.format", "avro"))

    assert explicit.options == {"manifest.format": "avro"}
    assert after(explicit, ResetOption("manifest.format")).options == {}


def test_columns_of_an_index_by_key_cannot_change() -> None:
    indexed = {"pk-btree.index.columns": "i", "deletion-vectors.enabled": "true"}
    by_file = {"file-index.bitmap.columns": "v"}
    schema = schema_of("k INT, i INT, v INT", "k", **indexed, **by_file)
    rules: dict[SchemaChange, str] = {
        DropColumn("i"): "column 'i' has an index and cannot be dropped",
        RenameColumn("i", "j"): "column 'i' has an index and cannot be renamed",
        UpdateType("i", "BIGINT"): "column 'i' has an index and cannot change its type",
    }
    for change, rule in rules.items():
        with pytest.raises(InputError, match=rule):
            after(schema, change)

    assert after(schema, UpdateType("v", "BIGINT")).field("v").type == parse_type("BIGINT")


def test_a_nullability_that_does_not_change_is_not_refused() -> None:
    schema = schema_of("k INT, v INT NOT NULL", "k")
    assert after(schema, UpdateNullability("v", False)).fields == schema.fields
    fields = tuple(replace(field, type=field.type.with_nullable(True)) for field in schema.fields)
    nullable = replace(schema, fields=fields)  # Java stores this for some keys
    assert after(nullable, UpdateNullability("k", True)).fields == fields


@pytest.mark.parametrize(
    "change",
    [
        SetOption("bucket", "7"),
        SetOption("bucket", "2"),
        SetOption("bucket", "1"),
        SetOption("merge-engine", "deduplicate"),
        SetOption("something.unknown", "kept"),
        UpdateNullability("v", True),
        UpdateType("v", "STRING"),
        UpdateType("r", "STRING"),
        UpdateDefault("v", "5"),
    ],
    ids=str,
)
def test_valid_changes_are_applied(change: SchemaChange) -> None:
    if change == SetOption("merge-engine", "deduplicate"):
        schema = schema_of(COLUMNS, "k dt", "dt", merge_engine="deduplicate")
    else:
        schema = schema_of(COLUMNS, "k dt", "dt")

    assert after(schema, change).id == 1


def test_all_options_of_a_table_without_snapshots_can_change() -> None:
    schema = schema_of(COLUMNS, "k dt", "dt")

    changed = after(
        schema,
        SetOption("merge-engine", "partial-update"),
        SetOption("bucket", "-1"),
        has_snapshots=False,
    )

    assert changed.typed_options.bucket == -1


def test_a_column_becomes_not_null_if_the_option_allows_it() -> None:
    schema = schema_of("v INT", alter_column_null_to_not_null__disabled="false")

    assert not after(schema, UpdateNullability("v", False)).field("v").type.nullable


def test_a_schema_with_its_path_can_be_changed() -> None:
    # Java stores the location of an external table as an option.
    schema = schema_of("k INT")
    stored = replace(schema, options={**schema.options, "path": "/outside/t"})
    changed = after(stored, AddColumn(column="v", type="INT"))
    assert (changed.names, changed.options["path"]) == (["k", "v"], "/outside/t")


def test_lossy_casts_can_be_disabled() -> None:
    schema = schema_of("v INT", disable_explicit_type_casting="true")

    assert after(schema, UpdateType("v", "BIGINT")).id == 1
    with pytest.raises(InputError, match="disable-explicit-type-casting"):
        after(schema, UpdateType("v", "STRING"))
    with pytest.raises(InputError, match=r"cannot change from INT to BINARY\(4\)$"):
        after(schema, UpdateType("v", "BINARY(4)"))


def test_a_refused_change_does_not_change_the_table(table: Table) -> None:
    with pytest.raises(InputError):
        alter(table, AddColumn(column="fine", type="INT"), DropColumn("k"))

    assert table.stores.schemas.ids() == [0]


def test_the_error_of_a_missing_table_contains_its_name(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"db\.nope"):
        Catalog(str(tmp_path)).alter_table("db.nope", [DropColumn("v")])


def test_schemas_of_a_store_are_read_once(table: Table) -> None:
    store = SchemaStore(table.io, table.paths)

    assert store.latest() is store.latest()


def test_writers_store_a_default_in_place_of_null(table: Table) -> None:
    changed = alter(table, UpdateDefault("v", "none"), UpdateDefault("n", "7"))

    changed.upsert(pa.table({"k": [2, 3], "v": ["b", None], "n": pa.nulls(2)}))

    # Rows that were written before the default remain null.
    assert rows_of(changed) == [(1, "a", 10), (2, "b", 7), (3, "none", 7)]
    assert rows_of(changed, snapshot_id=1) == [(1, "a", 10), (2, "b", None)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (UpdateDefault("n", "seven"), "'seven' of column 'n' is not a valid INT"),
        (AddColumn(column="a", type="ARRAY<INT>", default="[1]"), "not supported"),
    ],
    ids=["text", "nested"],
)
def test_a_default_that_does_not_fit_its_column_is_refused(
    table: Table, change: SchemaChange, message: str
) -> None:
    with pytest.raises(PaimonError, match=message):
        alter(table, change)


def test_a_default_that_another_writer_stored_does_not_prevent_other_changes() -> None:
    schema = schema_of("k INT, v INT")
    fields = (schema.fields[0], replace(schema.fields[1], default_value="seven"))
    stored = replace(schema, fields=fields)

    assert after(stored, AddColumn(column="n", type="INT")).fields[:2] == fields
    with pytest.raises(InputError, match="'seven' of column 'v'"):
        after(stored, UpdateColumnComment("v", "a number"))


AGGREGATED = schema_of(
    "k INT, v INT, n ARRAY<ROW<a INT, s INT>>, m MAP<STRING, ROW<a INT, t STRING>>",
    "k",
    merge_engine="aggregation",
    fields__v__aggregate_function="sum",
    **{
        "fields.n.aggregate-function": "nested_update",
        "fields.n.nested-key": "a",
        "fields.m.aggregate-function": "merge_map_with_keytime",
        "fields.m.ts-field": "t",
    },
)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (UpdateType("v", "STRING"), "'sum' takes a number, not STRING"),
        (SetOption("fields.v.aggregate-function", "listagg"), "'listagg' takes STRING, not INT"),
        (DropColumn(("n", "element", "a")), "'fields.n.nested-key': a is not a field"),
        (RenameColumn(("n", "element", "a"), "b"), "'fields.n.nested-key': a is not a field"),
        (RenameColumn(("m", "value", "t"), "u"), "'fields.m.ts-field' = 't' is not a field"),
    ],
    ids=str,
)
def test_a_change_after_which_rows_cannot_be_merged_is_refused(
    change: SchemaChange, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        after(AGGREGATED, change)


def test_an_option_of_a_nested_field_can_change_with_the_field() -> None:
    rename, key = RenameColumn(("n", "element", "a"), "b"), SetOption("fields.n.nested-key", "b")
    assert after(AGGREGATED, rename, key).options["fields.n.nested-key"] == "b"


def test_a_schema_whose_rows_cannot_be_merged_can_be_changed() -> None:
    options = {**AGGREGATED.options, "fields.v.aggregate-function": "of_a_newer_release"}
    broken = replace(AGGREGATED, options=options)
    assert after(broken, UpdateComment("old")).comment == "old"

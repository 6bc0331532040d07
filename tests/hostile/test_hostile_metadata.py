"""Metadata files that declare huge numbers, deep values or other kinds of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import edit_delta, edit_files, edit_index, edit_snapshot, store_option
from support.limited_process import refuse, run_limited
from support.special_files import SPECIAL_FILES
from support.tables import catalog_of, new_table, rows_of, table_of
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch import Catalog
from paimon_orch.errors import CorruptFileError, InputError, MissingFileError, UnsupportedError
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.manifest.manifest_list import encode_manifest_list
from paimon_orch.format.options import Options
from paimon_orch.format.partition_time import PartitionTimes
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import field_to_json, parse_columns
from paimon_orch.steps import compact, expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.steps.maintenance.trigger_tag_automatic_creation import create_tags
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table

FAR = 10**12
LAST = 2**63 - 1


def table_with_snapshot(root: Path, number: int) -> Table:
    """Create a table with the snapshots 1 and 2, and a copy of 2 with another number."""
    table = new_table(root)
    for value in ("a", "b"):
        table.upsert(table_of("k v", [(1, value)]))
    path = Path(table.stores.snapshots.path(2))
    copied = json.loads(path.read_bytes()) | {"id": number}
    (path.parent / f"snapshot-{number}").write_text(json.dumps(copied))
    for name in ("LATEST", "EARLIEST"):
        (path.parent / name).unlink(missing_ok=True)
    return Catalog(str(root)).table("db.t")


STEPS: dict[str, Callable[[Table], object]] = {
    "history": lambda table: [s.id for s in table.stores.snapshots.walk_back()],
    "system table": lambda table: table.system("snapshots").scan().to_arrow().num_rows,
    "doctor": lambda table: len(examine_opened_table(table)),
    "check": lambda table: len(check(table).findings),
    "rows": rows_of,
    "expire": lambda table: expire_snapshots(table, EXECUTOR, retain_max=1, retain_min=1).snapshots,
    "compact": lambda table: compact(table, EXECUTOR, strategy="full").snapshot_id,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", STEPS)
def test_a_gap_of_a_million_million_snapshots_costs_no_time(tmp_path: Path, step: str) -> None:
    table = table_with_snapshot(tmp_path, FAR)
    result = run_limited(lambda: STEPS[step](table))
    expected = {"history": [FAR, 2, 1], "system table": 3, "expire": 2, "compact": FAR + 1}
    assert result == expected.get(step, result)


def test_no_snapshot_follows_the_last_number_of_java(tmp_path: Path) -> None:
    table = table_with_snapshot(tmp_path, LAST)
    assert "Java cannot read the number" in refuse(
        lambda: compact(table, EXECUTOR, strategy="full")
    )
    assert not Path(table.stores.snapshots.path(LAST + 1)).exists()
    assert rows_of(table) == [(1, "b")]


@pytest.mark.parametrize("millis", [-(2**63), -62_135_596_800_001, 253_402_300_800_000, LAST])
def test_a_snapshot_with_a_time_that_has_no_date_is_refused(tmp_path: Path, millis: int) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    edit_snapshot(table, 1, time_millis=millis)
    for read in (rows_of, lambda t: list(t.stores.snapshots.walk_back()), inspect):
        with pytest.raises(CorruptFileError, match=r"snapshot-1.* is not a time in the years 1 to"):
            read(table)
    assert check(table).findings


def test_a_negative_number_of_rows_is_not_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    edit_files(table, 1, row_count=-(2**63))
    with pytest.raises(CorruptFileError, match="has -9223372036854775808 rows"):
        table.scan().count()


@pytest.mark.parametrize("number", [(1 << 63) - 1, (1 << 63) - 2])
def test_no_row_is_added_after_the_last_sequence_number(tmp_path: Path, number: int) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    edit_files(table, 1, max_sequence_number=number)

    with pytest.raises(UnsupportedError, match=f"bucket 0 has files with .* number {number}"):
        table.upsert(table_of("k v", [(1, "b"), (2, "b")]))
    assert rows_of(table) == [(1, "a")]


@pytest.mark.parametrize("bucket", [-7, -2, (1 << 31) - 1])
def test_no_key_is_assigned_to_a_bucket_that_no_writer_uses(tmp_path: Path, bucket: int) -> None:
    table = new_table(tmp_path, bucket="-1")
    table.upsert(table_of("k v", [(1, "a")]))
    edit_index(table, 1, lambda entries: [replace(entry, bucket=bucket) for entry in entries])

    with pytest.raises(CorruptFileError, match=f"a file belongs to the bucket {bucket}, but"):
        table.upsert(table_of("k v", [(2, "b")]))
    assert rows_of(table) == [(1, "a")]


def test_a_file_with_a_longer_name_than_a_file_can_have_does_not_stop_expiration(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path)
    for key in range(2):
        table.upsert(table_of("k v", [(key, "a")]))
    edit_files(table, 1, extra_files=("x" * 300,))
    compact(table, EXECUTOR, strategy="full")

    result = expire_snapshots(table, EXECUTOR, retain_max=1, retain_min=1)

    assert result.snapshots == 2
    assert [path.rpartition("/")[2] for path in result.refused] == ["x" * 300]


def test_a_system_table_with_damaged_keys_has_an_error_of_its_own(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    edit_files(table, 1, min_key=b"")
    with pytest.raises(CorruptFileError, match=r"the metadata of db.t: cannot be decoded"):
        table.system("files").scan().to_arrow()


def test_a_file_name_with_a_larger_number_than_java_reads_is_refused(tmp_path: Path) -> None:
    table = table_with_snapshot(tmp_path, LAST + 1)
    with pytest.raises(CorruptFileError, match="the largest that Java can read"):
        table.stores.snapshots.ids()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hint", [str(LAST), "9" * 5_000, "-1", "٣", "", "\0", "1e9"])
def test_a_hostile_hint_is_ignored(tmp_path: Path, hint: str) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    for name in ("LATEST", "EARLIEST"):
        (Path(table.paths.snapshot_dir) / name).write_text(hint)
    assert run_limited(lambda: rows_of(table)) == [(1, "a")]


KINDS: dict[str, Callable[[Path], object]] = {
    **SPECIAL_FILES,
    "directory": lambda path: path.mkdir(),
}
PLACES = ["schema/schema-0", "snapshot/snapshot-1", "manifest/manifest-*", "bucket-0/data-*"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_special_file_in_place_of_a_file_is_refused(
    tmp_path: Path, kind: str, place: str
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    for path in Path(table.paths.root).glob(place):
        path.unlink()
        KINDS[kind](path)
    message = refuse(lambda: rows_of(Catalog(str(tmp_path)).table("db.t")))
    assert any(
        reason in message for reason in ("is a special file", "is a directory", "a symbolic link")
    )


def test_a_sparse_file_is_not_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "schema-0"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "is read at once" in refuse(lambda: LocalFileIO().read_bytes(str(path)))


DEEP = 100_000
SCHEMA = {"version": 3, "id": 0, "highestFieldId": 0, "partitionKeys": [], "primaryKeys": [],
          "options": {}}  # fmt: skip


def schema_of(kind: str, **changes: object) -> bytes:
    """Return a schema file with one column, whose type is JSON text."""
    value = {**SCHEMA, "fields": [{"id": 0, "name": "a", "type": "TYPE"}], **changes}
    return json.dumps(value).replace('"TYPE"', kind).encode()


SCHEMAS = {
    "deep JSON": schema_of('{"type": "ARRAY", "element": ' * DEEP + '"INT"' + "}" * DEEP),
    "deep JSON of moderate depth": schema_of(
        '{"type": "ARRAY", "element": ' * 200 + '"INT"' + "}" * 200
    ),
    "deep text": schema_of(f'"{"ARRAY<" * DEEP}INT{">" * DEEP}"'),
    "deep text without brackets": schema_of(f'"INT{" ARRAY" * DEEP}"'),
    "a vector of any length": schema_of(f'{{"type": "VECTOR", "element": "FLOAT", "length": {FAR}}}'),
    "a long number": schema_of('"INT"').replace(b'"highestFieldId": 0', b'"highestFieldId": ' + b"9" * DEEP),
    "a large field id": schema_of('"INT"', highestFieldId=2**31),
    "a large schema id": schema_of('"INT"', id=2**63),
    "a long parameter": schema_of(f'"DECIMAL({"9" * DEEP}, 2)"'),
    "an unknown key that is deep": schema_of('"INT"', other="DEEP").replace(
        b'"DEEP"', b"[" * 500 + b"]" * 500
    ),
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hostile_schema_is_refused(name: str) -> None:
    message = refuse(lambda: repr(TableSchema.from_json(SCHEMAS[name], "t/schema/schema-0")))
    assert "schema-0" in message


def test_a_schema_with_half_of_a_character_is_written_again() -> None:
    schema = TableSchema.from_json(schema_of('"INT"', options={"a": "\ud800"}), "schema-0")
    assert TableSchema.from_json(schema.to_json(), "schema-1").options == {"a": "\ud800"}


def times_of(formatter: str, pattern: str | None = None) -> PartitionTimes:
    """Return the reader of times of a text column."""
    options = {"partition.timestamp-formatter": formatter}
    if pattern is not None:
        options["partition.timestamp-pattern"] = pattern
    return PartitionTimes.of(parse_columns("dt STRING"), Options(options))


@pytest.mark.parametrize("text", ["1" * 5_000 + "x", "1" * 40, "x" * 100_000])
@pytest.mark.parametrize("formatter", ["yMd", "yMdHmsS", "yyyyMMddHmsS"])
def test_a_formatter_of_a_table_needs_linear_time(formatter: str, text: str) -> None:
    assert run_limited(lambda: times_of(formatter).read_values([text])) is None


def test_a_formatter_that_repeats_a_part_is_refused() -> None:
    with pytest.raises(InputError, match="must not contain a part of a time twice"):
        times_of("yMd" * 20)


def test_a_pattern_that_repeats_a_long_value_is_no_time() -> None:
    times = times_of("yyyy-MM-dd", "$dt" * 100_000)
    assert run_limited(lambda: times.read_values(["1" * 100_000])) is None


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("snapshot.time-retained", "1" + " " * 200_000 + "!"),
        ("snapshot.time-retained", "9" * 19 + " d"),
        ("target-file-size", "9" * 100_000),
        ("snapshot.num-retained.min", "9" * 4_000),
        ("bucket", str(2**63)),
    ],
)
def test_a_hostile_option_is_refused(tmp_path: Path, key: str, text: str) -> None:
    table = new_table(tmp_path)
    path = Path(table.paths.schema_dir) / "schema-0"
    value = json.loads(path.read_bytes())
    value["options"][key] = text
    path.write_text(json.dumps(value))

    def attack() -> object:
        opened = Catalog(str(tmp_path)).table("db.t")
        return (
            expire_snapshots(opened, EXECUTOR),
            opened.load().schema.typed_options.bucket,
            compact(opened, EXECUTOR),
        )

    outcome = run_limited(attack)
    assert outcome is not None


@pytest.mark.parametrize("text", ["inf", "nan", "1e400"])
def test_a_ratio_that_is_not_finite_stops_a_compaction(tmp_path: Path, text: str) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    table = store_option(table, "compaction.small-file-ratio", text)
    with pytest.raises(InputError, match="must be a finite number"):
        compact(table, EXECUTOR)


def test_a_write_with_an_unknown_compression_of_manifests_leaves_no_files(tmp_path: Path) -> None:
    table = store_option(new_table(tmp_path), "manifest.compression", "no codec")
    with pytest.raises(InputError, match=r"'no codec' of 'manifest\.compression'"):
        table.upsert(table_of("k v", [(1, "a")]))
    assert not list(Path(table.paths.root).rglob("data-*"))


@pytest.mark.parametrize("level", [str(2**31), str(-(2**40))])
def test_a_level_that_zstd_does_not_have_is_the_nearest_one(tmp_path: Path, level: str) -> None:
    table = store_option(new_table(tmp_path), "file.compression.zstd-level", level)
    table.upsert(table_of("k v", [(1, "a")]))
    assert rows_of(table) == [(1, "a")]


def test_a_stored_directory_with_a_longer_name_than_a_file_can_have_is_missing(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table = store_option(table, "data-file.path-directory", "x" * 300)

    with pytest.raises(MissingFileError):
        rows_of(table)
    assert check(table, deep=True).findings


WIDE = {
    "VECTOR<FLOAT, 2147483647>": 1,
    "ROW<a VECTOR<DOUBLE, 1000000>>": 1,
    "VECTOR<FLOAT, 16000>": 100,
}


def add_stored_columns(table: Table, kind: str, count: int) -> Table:
    """Return a table to whose schema columns are added that its files do not have."""
    path = Path(table.paths.schema_dir) / "schema-0"
    schema = json.loads(path.read_bytes()) | {"id": 1, "highestFieldId": 999}
    [field] = parse_columns(f"w {kind}")
    schema["fields"] += [
        field_to_json(replace(field, id=100 + number, name=f"w{number}")) for number in range(count)
    ]
    path.with_name("schema-1").write_text(json.dumps(schema))
    return catalog_of(table).table("db.t")


@pytest.mark.parametrize("kind", WIDE)
def test_nulls_of_wide_columns_do_not_take_all_memory(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    rows = pa.table({"k": range(70_000), "v": ["a"] * 70_000})
    table.append(rows)
    table = add_stored_columns(table, kind, WIDE[kind])

    assert "that 70000 rows lack need" in refuse(lambda: table.append(rows), memory=64 << 30)
    assert "that 1024 rows lack need" in refuse(lambda: rows_of(table), memory=64 << 30)


def test_fewer_rows_are_read_at_once_if_a_file_lacks_wide_columns(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(pa.table({"k": range(70_000), "v": ["a"] * 70_000}))
    table = add_stored_columns(table, "VECTOR<FLOAT, 100000>", 1)

    assert next(iter(table.scan().to_batches())).num_rows < 20_000


@pytest.mark.parametrize("columns", [1, 50])
def test_defaults_that_need_too_much_memory_in_all_rows_are_refused(
    tmp_path: Path, columns: int
) -> None:
    names = [f"c{number}" for number in range(columns)]
    kinds = ", ".join(f"{name} STRING" for name in names)
    table = new_table(tmp_path, f"k BIGINT, {kinds}", key=(), bucket="-1")
    path = Path(table.paths.schema_dir) / "schema-0"
    schema = json.loads(path.read_bytes())
    for field in schema["fields"][1:]:
        field["defaultValue"] = "x" * ((10 << 20) // columns)
    path.write_text(json.dumps(schema))
    table = catalog_of(table).table("db.t")

    text = refuse(lambda: table.append(pa.table({"k": range(70_000)})), memory=8 << 30)

    assert "the defaults of the columns need" in text
    assert table.load().snapshot is None
    assert not list(Path(table.paths.root).rglob("data-*"))


def test_a_long_delimiter_that_a_merge_stores_for_each_row_is_refused(tmp_path: Path) -> None:
    options = {"merge_engine": "aggregation", "fields__v__aggregate_function": "listagg"}
    table = new_table(tmp_path, **options)
    more = table_of("k v", [(1, "a")])
    table.upsert(more)
    table.upsert(more)
    table = store_option(table, "fields.v.list-agg-delimiter", "d" * (1 << 20))

    for action in (lambda: table.upsert(more), lambda: rows_of(table)):
        assert "'fields.v.list-agg-delimiter' has 1048576 bytes" in refuse(action)
    assert table.stores.snapshots.latest_id() == 2


def test_a_write_to_a_table_whose_newest_manifest_list_is_lost_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    edit_snapshot(table, 1, delta_manifest_list="lost")
    with pytest.raises(MissingFileError, match="lost: is missing"):
        table.upsert(table_of("k v", [(2, "a")]))


@pytest.mark.parametrize("data", [b"", b"[]", b"[" * DEEP, b'{"creationTime": 1' + b"0" * 5_000])
def test_a_hostile_success_file_is_refused(tmp_path: Path, data: bytes) -> None:
    table = new_table(
        tmp_path,
        key=("dt", "k"),
        columns="dt STRING, k INT",
        partition_by=["dt"],
        partition__mark_done_action="success-file",
    )
    path = Path(table.paths.root) / "dt=a" / "_SUCCESS"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=str(path)):
        table.stores.build_marker().mark([{"dt": "a"}])


def test_tags_of_centuries_are_refused(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        tag__automatic_creation="watermark",
        tag__creation_period_duration="1 ms",
        tag__automatic_completion="true",
    )
    for value in ("a", "b"):
        table.upsert(table_of("k v", [(1, value)]))
    edit_snapshot(table, 1, watermark=0)
    edit_snapshot(table, 2, watermark=10**14)
    assert "tags are due" in refuse(lambda: create_tags(table))


NESTED = {"type": "ROW", "fields": [
    {"id": 7, "name": "a", "type": "INT"}, {"id": 7, "name": "b", "type": "INT"},
]}  # fmt: skip


@pytest.mark.parametrize("change", [{"id": 0}, {"name": "k"}, {"type": NESTED}])
def test_a_column_does_not_have_the_values_of_another(
    tmp_path: Path, change: dict[str, object]
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    path = Path(table.paths.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["fields"][1] |= change
    path.write_text(json.dumps(schema))
    clear_metadata_cache()
    table = Catalog(str(tmp_path)).table("db.t")

    with pytest.raises(CorruptFileError, match="another field has the id"):
        rows_of(table)


@pytest.mark.parametrize("others", [0, 1, 200])
def test_a_file_on_a_negative_level_is_not_left_out_of_a_merge(tmp_path: Path, others: int) -> None:
    table = new_table(tmp_path)
    for value in ("a", "b"):
        table.upsert(table_of("k v", [(1, value), (2, value)]))

    def change(entries: list[ManifestEntry]) -> list[ManifestEntry]:
        [entry] = entries
        named = (
            replace(entry, file=replace(entry.file, file_name=f"{n}.parquet"))
            for n in range(others)
        )
        return [replace(entry, file=replace(entry.file, level=-2)), *named]

    edit_delta(table, 2, change)

    for action in (lambda: rows_of(table), lambda: compact(table, EXECUTOR, strategy="full")):
        with pytest.raises(CorruptFileError, match="_LEVEL is -2, which is out of range"):
            action()
    assert any("_LEVEL is -2" in finding.text for finding in check(table).findings)


@pytest.mark.parametrize("column", ["nope", "m"])
def test_a_stored_sequence_field_that_orders_no_rows_is_refused(
    tmp_path: Path, column: str
) -> None:
    table = new_table(tmp_path, "k BIGINT, m MAP<STRING, INT>")
    for _ in range(2):
        table.upsert(pa.table({"k": [1], "m": [None]}))
    table = store_option(table, "sequence.field", column)

    for action in (
        lambda: rows_of(table),
        lambda: compact(table, EXECUTOR, strategy="full"),
        lambda: table.delete("k = 1"),
    ):
        with pytest.raises(InputError, match=f"'sequence.field' names '{column}'"):
            action()


def test_stored_clustering_by_no_column_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table = store_option(table, "pk-clustering-override", "true")

    with pytest.raises(InputError, match=r"needs 'clustering\.columns'"):
        compact(table, EXECUTOR, strategy="full")


def test_deletion_vectors_under_another_type_are_a_finding(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="1", deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    compact(table, EXECUTOR)
    table.upsert(table_of("k v", [(1, "c")]))
    compact(table, EXECUTOR)
    latest = table.stores.snapshots.latest_id()
    assert latest is not None
    edit_index(
        table,
        latest,
        lambda entries: [replace(entry, index_type="\u202eDELETION_VECTORS") for entry in entries],
    )

    [finding] = check(table).findings
    assert "has the unknown type '\\u202eDELETION_VECTORS', so readers ignore it" in finding.text


def state_entries(table: Table, count: int) -> None:
    """Let a manifest list state a number of deleted files that its manifest does not have."""
    snapshot = table.stores.snapshots.get(2)
    name = snapshot.delta_manifest_list
    [meta] = table.stores.manifests.manifest_list(name)
    data = encode_manifest_list([replace(meta, num_deleted_files=count)])
    (Path(table.paths.manifest_dir) / name).write_bytes(data)
    edit_snapshot(table, 2, delta_manifest_list_size=len(data))
    clear_metadata_cache()


@pytest.mark.parametrize("count", [2**31 - 1, LAST, -1])
def test_a_stated_number_of_entries_costs_no_time(tmp_path: Path, count: int) -> None:
    table = new_table(tmp_path)
    for value in ("a", "b"):
        table.upsert(table_of("k v", [(1, value)]))
    state_entries(table, count)
    expected = "in its manifest list" if count == 2**31 - 1 else f"{count}, which is out of range"
    texts = [expected, f"manifests have {count + 1} entries"]

    for read in (
        lambda: rows_of(table),
        lambda: rows_of(table, filter="k = 1"),
        lambda: compact(table, EXECUTOR),
    ):
        refusal = refuse(read)
        assert any(text in refusal for text in texts), refusal
    findings = run_limited(lambda: [f.text for f in check(table).findings], seconds=20)
    assert isinstance(findings, list)
    assert any(expected in text for text in findings)

"""BLOB columns: values in files of their own, read by row id, and kept by other steps.

See docs/format/blob.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.data_evolution import evolving_table
from support.golden import GOLDEN, copy_warehouse
from support.histories import backdate_files
from support.tables import rows_of, stored_files

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, CorruptFileError, InputError, UnsupportedError
from paimon_orch.files.blob.blob_descriptor import BlobDescriptor
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    FileSource,
    ManifestEntry,
)
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.binary_row import EMPTY_ROW
from paimon_orch.format.row.simple_stats import EMPTY_STATS
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import reassign_row_ids
from paimon_orch.steps.row_level import row_level_write as row_level
from paimon_orch.steps.row_level.row_level_write import RowLevelRequest
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.scan.data_evolution import DataEvolutionReader, group_files_by_rows
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
PLACEHOLDER = object()
"""A row that has its value in an older file."""


def golden(tmp_path: Path, name: str) -> Table:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "blob", tmp_path / "w")
    return Catalog(str(warehouse)).table(f"db.{name}")


def blob_table(root: Path, columns: str = "k BIGINT, v BLOB") -> Table:
    return evolving_table(root, columns, compaction__min__file_num="2")


def build_blob_file(values: Iterable[object]) -> bytes:
    """Return the bytes that Java Paimon writes for some values."""
    records, lengths = b"", list[int]()
    for value in values:
        if not isinstance(value, bytes):
            lengths.append(-1 if value is None else -2)
            continue
        size = len(value) + 16
        record = b"\xcf\x11\x4e\x58" + value + size.to_bytes(8, "little")
        records += record + zlib.crc32(record).to_bytes(4, "little")
        lengths.append(size)
    index = b""
    for delta in [new - old for old, new in zip([0, *lengths], lengths, strict=False)]:
        number = (delta << 1) ^ (delta >> 63)
        while number > 127:
            index += bytes([number & 127 | 128])
            number >>= 7
        index += bytes([number])
    return records + index + len(index).to_bytes(4, "little") + b"\x01"


def commit_files(
    table: Table, files: Iterable[DataFileMeta], kind: FileKind = FileKind.ADD
) -> None:
    entries = tuple(
        ManifestEntry(kind=kind, partition=EMPTY_ROW, bucket=0, total_buckets=-1, file=file)
        for file in files
    )
    commit_kind = CommitKind.APPEND if kind is FileKind.ADD else CommitKind.OVERWRITE
    changes = CommitChanges(kind=commit_kind, entries=entries)
    table.stores.new_commit(StepKind.METADATA).commit(changes)


def add_rows(table: Table, rows: pa.Table) -> None:
    """Commit a file with some columns of new rows."""
    factory = FileWriterFactory(table.io, table.paths, table.load().schema)
    writer = factory.writer(PartitionBucket(EMPTY_ROW, 0), columns=rows.column_names)
    writer.write(rows)
    commit_files(
        table, [replace(file, write_cols=tuple(rows.column_names)) for file in writer.close()]
    )


def add_blobs(
    table: Table, values: list[object], first_row_id: int, column: str = "v", version: int = 0
) -> str:
    """Commit a BLOB file for rows that exist; return its name."""
    content = build_blob_file(values)
    name = f"data-{column}-{first_row_id}-{table.stores.snapshots.latest_id()}.blob"
    bucket = Path(table.paths.root) / "bucket-0"
    bucket.mkdir(exist_ok=True)
    (bucket / name).write_bytes(content)
    template = next(file for split in table.stores.files() for file in split.files)
    file = replace(
        template,
        file_name=name,
        file_size=len(content),
        row_count=len(values),
        first_row_id=first_row_id,
        write_cols=(column,),
        value_stats=EMPTY_STATS,
        value_stats_cols=(),
        file_source=FileSource.APPEND,
        min_sequence_number=version,
        max_sequence_number=version,
        schema_id=table.load().schema.id,
    )
    commit_files(table, [file])
    return name


def stored_names(table: Table) -> set[str]:
    return {Path(path).name for path in stored_files(table)}


def live_files(table: Table) -> list[DataFileMeta]:
    return [file for split in table.stores.files() for file in split.files]


def live_blobs(table: Table) -> set[str]:
    return {file.file_name for file in live_files(table) if file.file_name.endswith(".blob")}


def values_of(table: Table, name: str = "v") -> list[object]:
    rows = table.scan([name, "_ROW_ID"]).to_arrow().sort_by("_ROW_ID")
    values: list[object] = rows.column(name).to_pylist()
    return values


def test_the_files_of_the_tests_have_the_bytes_of_java(tmp_path: Path) -> None:
    table = golden(tmp_path, "t")
    values = values_of(table, "data")
    assert None in values

    for file in live_files(table):
        if file.file_name.endswith(".blob"):
            path = Path(table.paths.root) / "bucket-0" / file.file_name
            assert file.first_row_id is not None
            rows = values[file.first_row_id : file.first_row_id + file.row_count]
            assert path.read_bytes() == build_blob_file(rows)


def test_the_newest_file_with_a_value_of_a_row_has_it(tmp_path: Path) -> None:
    table = blob_table(tmp_path)
    add_rows(table, pa.table({"k": range(6)}))
    assert values_of(table) == [None] * 6
    add_blobs(table, [b"0", b"1", None, b"3"], 0, version=1)
    add_blobs(table, [b"4", b"5" * 300], 4, version=1)
    assert values_of(table) == [b"0", b"1", None, b"3", b"4", b"5" * 300]
    add_blobs(table, [PLACEHOLDER, None, b"", PLACEHOLDER, PLACEHOLDER, b"new"], 0, version=7)

    assert values_of(table) == [b"0", None, b"", b"3", b"4", b"new"]
    [group] = group_files_by_rows(live_files(table))
    reader = DataEvolutionReader(table.stores.reader(), EMPTY_ROW, 0, group)
    deleted = {group[0].file_name: DeletionVector.of([0, 4])}
    rows = pa.Table.from_batches(list(reader.batches(table.load().schema.fields, deleted)))
    assert rows.to_pydict() == {"k": [1, 2, 3, 5], "v": [None, b"", b"3", b"new"]}
    assert check(table, deep=True).findings == ()


def test_values_are_read_in_batches_that_are_limited_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_orch.files.blob.blob_file._BATCH_BYTES", 40)
    table = blob_table(tmp_path)
    add_rows(table, pa.table({"k": range(5)}))
    add_blobs(table, [b"0" * 10, b"1" * 100, None, b"3", b"4" * 9], 0, version=1)

    [group] = group_files_by_rows(live_files(table))
    reader = DataEvolutionReader(table.stores.reader(), EMPTY_ROW, 0, group)
    batches = list(reader.batches(table.load().schema.fields, {}))

    assert [batch.num_rows for batch in batches] == [1, 1, 2, 1]
    assert values_of(table) == [b"0" * 10, b"1" * 100, None, b"3", b"4" * 9]


def test_descriptors_name_the_bytes_of_the_values(tmp_path: Path) -> None:
    table = golden(tmp_path, "t")
    values = values_of(table, "data")
    Catalog(str(tmp_path / "w")).alter_table("db.t", [SetOption("blob-as-descriptor", "true")])

    descriptors = values_of(Catalog(str(tmp_path / "w")).table("db.t"), "data")

    for value, encoded in zip(values, descriptors, strict=True):
        assert (value is None) == (encoded is None)
        if isinstance(encoded, bytes):
            place = BlobDescriptor.decode(encoded)
            content = Path(place.uri).read_bytes()
            assert content[place.offset : place.offset + place.length] == value


def test_the_descriptors_of_a_primary_key_table_are_those_of_java(tmp_path: Path) -> None:
    table = golden(tmp_path, "t_pk")
    values: dict[Any, Any] = dict(rows_of(table, columns=["k", "data"]))
    Catalog(str(tmp_path / "w")).alter_table("db.t_pk", [SetOption("blob-as-descriptor", "true")])

    described: dict[Any, Any] = dict(rows_of(golden_copy(tmp_path), columns=["k", "data"]))

    for key, encoded in described.items():
        assert (values[key] is None) == (encoded is None)
        if encoded is not None:
            place = BlobDescriptor.decode(encoded)
            path = Path(table.paths.root) / "bucket-0" / Path(place.uri).name
            content = path.read_bytes()
            assert content[place.offset : place.offset + place.length] == values[key]


def golden_copy(tmp_path: Path) -> Table:
    return Catalog(str(tmp_path / "w")).table("db.t_pk")


@pytest.mark.parametrize("name", ["t", "t_two"])
def test_a_compaction_keeps_row_ids_and_blob_files(name: str, tmp_path: Path) -> None:
    table = golden(tmp_path, name)
    columns = [*table.load().schema.names, "_ROW_ID"]
    before = table.scan(columns).to_arrow().sort_by("_ROW_ID")
    blobs = live_blobs(table)
    assert len(blobs) >= 2

    compact(table, EXECUTOR, strategy="full")

    assert live_blobs(table) == blobs
    assert len(live_files(table)) == len(blobs) + 1
    assert table.scan(columns).to_arrow().sort_by("_ROW_ID") == before
    assert check(table, deep=True).findings == ()
    expire_snapshots(table, retain_max=1)
    backdate_files(table)
    assert remove_orphan_files(table).files == 0
    assert table.scan(columns).to_arrow().sort_by("_ROW_ID") == before
    assert blobs < stored_names(table)


def test_rows_with_and_without_values_of_a_column_are_not_compacted_together(
    tmp_path: Path,
) -> None:
    table = blob_table(tmp_path, "k BIGINT, w BIGINT, v BLOB, x BLOB")
    for start in (0, 2, 4, 6):
        add_rows(table, pa.table({"k": [start, start + 1], "w": [1, 1]}))
        if start >= 4:
            add_blobs(table, [b"%d" % start, None], start, version=1)
    values = values_of(table)

    compact(table, EXECUTOR, strategy="full")

    assert sorted(
        (file.first_row_id, file.row_count)
        for file in live_files(table)
        if not file.file_name.endswith(".blob")
    ) == [(0, 4), (4, 4)]
    assert values_of(table) == values == [None, None, None, None, b"4", None, b"6", None]


def test_a_renamed_column_is_read_from_older_files(tmp_path: Path) -> None:
    table = blob_table(tmp_path)
    add_rows(table, pa.table({"k": [1, 2]}))
    add_blobs(table, [b"a", b"b"], 0, version=1)
    schema = table.load().schema
    fields = [
        replace(field, name={"v": "old"}.get(field.name, field.name)) for field in schema.fields
    ]
    options = {**schema.options, **dict.fromkeys({"blob-field"} & {*schema.options}, "old")}
    # other engines rename BLOB columns
    assert table.stores.schemas.create(
        replace(schema, id=schema.id + 1, fields=tuple(fields), options=options)
    )
    catalog = Catalog(str(tmp_path))
    catalog.alter_table(table.identifier, [AddColumn(column="v", type="BLOB")])
    renamed = catalog.table(table.identifier)
    add_rows(renamed, pa.table({"k": [3]}))
    add_blobs(renamed, [b"c"], 2, "old", version=3)

    assert values_of(renamed, "old") == [b"a", b"b", b"c"]
    assert values_of(renamed, "v") == [None] * 3
    compact(renamed, EXECUTOR, strategy="full")
    assert len(live_files(renamed)) == 3
    assert values_of(renamed, "old") == [b"a", b"b", b"c"]


def test_dead_blob_files_are_found_and_live_ones_are_kept(tmp_path: Path) -> None:
    table = golden(tmp_path, "t")
    bucket = Path(table.paths.root) / "bucket-0"
    (bucket / "data-dead-1.blob").write_bytes(build_blob_file([b"dead"]))
    backdate_files(table)
    before = stored_names(table)

    assert remove_orphan_files(table).files == 1

    assert before - stored_names(table) == {"data-dead-1.blob"}
    assert len(values_of(table, "data")) == 40


def test_an_expiration_deletes_the_blob_files_of_expired_rows_only(tmp_path: Path) -> None:
    table = blob_table(tmp_path)
    add_rows(table, pa.table({"k": [1, 2]}))
    old = add_blobs(table, [b"a", b"b"], 0, version=1)
    new = add_blobs(table, [b"c", PLACEHOLDER], 0, version=2)
    expired = live_files(table)
    expire_snapshots(table, retain_max=1)
    assert values_of(table) == [b"c", b"b"]
    assert {old, new} < stored_names(table)

    add_rows(table, pa.table({"k": [3]}))
    live = add_blobs(table, [b"d"], 2, version=5)
    commit_files(table, expired, FileKind.DELETE)
    expire_snapshots(table, retain_max=1)

    assert values_of(table) == [b"d"]
    assert not {file.file_name for file in expired} & stored_names(table)
    assert live in stored_names(table)


def test_the_packs_of_a_primary_key_table_are_never_deleted(tmp_path: Path) -> None:
    table = golden(tmp_path, "t_pk")
    rows = rows_of(table)
    packs = {name for name in stored_files(table) if ".blob" in name}
    assert len(packs) == 6

    expire_snapshots(table, retain_max=1)
    backdate_files(table)
    remove_orphan_files(table)

    assert {name for name in stored_files(table) if ".blob" in name} == packs
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


@pytest.mark.parametrize(
    ("position", "match"),
    [(0, "does not begin and end as a BLOB"), (-2, "index"), (-1, "version 0 of BLOB files")],
)
def test_a_damaged_file_is_never_read_as_values(position: int, match: str, tmp_path: Path) -> None:
    table = golden(tmp_path, "t")
    path = Path(table.paths.root) / "bucket-0" / min(live_blobs(table))
    content = bytearray(path.read_bytes())
    content[position] = 0 if position == -1 else content[position] ^ 0x40
    path.write_bytes(content)

    with pytest.raises((CorruptFileError, UnsupportedError), match=match):
        table.scan().to_arrow()
    [finding] = check(table, deep=True).findings
    assert path.name in finding.text


def test_a_changed_value_is_refused_and_found(tmp_path: Path) -> None:
    table = golden(tmp_path, "t")
    path = Path(table.paths.root) / "bucket-0" / min(live_blobs(table))
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)

    with pytest.raises(CorruptFileError, match="wrong checksum"):
        table.scan().to_arrow()
    [finding] = check(table, deep=True).findings
    assert "wrong checksum" in finding.text
    assert path.name in finding.text


def test_a_file_of_rows_that_no_data_file_has_is_refused(tmp_path: Path) -> None:
    table = blob_table(tmp_path)
    add_rows(table, pa.table({"k": [1, 2]}))
    add_rows(table, pa.table({"k": [3, 4]}))
    snapshot = table.stores.snapshots.latest_id()

    with pytest.raises(CommitConflictError, match="would not be in one data file"):
        add_blobs(table, [b"b", b"c"], 1, version=1)

    assert table.stores.snapshots.latest_id() == snapshot


def test_steps_that_are_not_implemented_are_refused(tmp_path: Path) -> None:
    keyed, evolving = golden(tmp_path, "t_pk"), golden(tmp_path / "2", "t")
    before = stored_files(keyed)
    with pytest.raises(UnsupportedError, match="'data' of type BLOB"):
        compact(keyed, EXECUTOR, strategy="full")
    with pytest.raises(UnsupportedError, match="'data' of type BLOB"):
        keyed.upsert(pa.table({"k": pa.array([1], pa.int32()), "name": ["x"], "data": [b"x"]}))
    with pytest.raises(UnsupportedError, match="table with BLOB columns, such as 'data'"):
        row_level.plan(evolving, RowLevelRequest(operation="delete", where="id = 1"))
    with pytest.raises(UnsupportedError, match="new row ids is not supported for tables"):
        reassign_row_ids.plan(evolving, PartitionRequest())
    with pytest.raises(InputError, match="filters do not support BLOB columns"):
        evolving.scan(filter="data = 'x'")
    with pytest.raises(InputError, match="is a BLOB, which has no order"):
        evolving.scan(order_by="data")
    with pytest.raises(UnsupportedError, match="incremental read by primary key"):
        keyed.incremental(1, 3)
    assert stored_files(keyed) == before


@pytest.mark.parametrize(
    ("columns", "keys", "options", "match"),
    [
        ("k INT, v BLOB", [], {}, "'data-evolution.enabled'"),
        ("k INT, v BLOB", ["v"], {}, "must not be a BLOB"),
        ("k INT, v BLOB", ["k"], {"merge-engine": "first-row"}, "deduplicate"),
        ("v BLOB", [], {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, "other"),
        ("k INT, v INT", ["k"], {"blob-field": "v"}, "not a column of type BLOB"),
        ("k INT, v ARRAY<INT>", ["k"], {"sequence.field": "v"}, "has no order"),
        ("k INT, v VARIANT", ["k"], {"sequence.field": "v"}, "has no order"),
        ("k INT, v VECTOR<INT, 2>", ["k"], {"sequence.field": "v"}, "has no order"),
    ],
)
def test_tables_that_cannot_work_are_refused_at_creation(
    columns: str, keys: list[str], options: dict[str, str], match: str, tmp_path: Path
) -> None:
    bucket = {"bucket": "1" if keys else "-1"}
    with pytest.raises(InputError, match=match):
        Catalog(str(tmp_path)).create_table(
            "db.t", columns, primary_key=keys, options={**bucket, **options}
        )
    assert not (tmp_path / "db.db" / "t" / "schema").exists()

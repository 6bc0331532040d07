"""Damaged tables raise a PaimonError that names the file, in bounded time and memory."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import NotFoundError, PaimonError
from paimon_orch.format.manifest.index_manifest import decode_index_manifest, encode_index_manifest
from paimon_orch.format.manifest.manifest_entry import decode_manifest, encode_manifest
from paimon_orch.format.manifest.manifest_list import decode_manifest_list, encode_manifest_list
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache

KINDS = (
    "snapshot",
    "schema",
    "manifest list",
    "manifest",
    "index manifest",
    "deletion vectors",
    "data file",
)
OUTSIDE = ["../../x", "/etc/passwd", "..", "a/b", "a\\b", "", "a\0b"]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with three snapshots and a deletion vector."""
    root = tmp_path_factory.mktemp("healthy")
    table = new_table(root, deletion_vectors__enabled="true")
    rows = [(n, f"value {n}") for n in range(500)]
    table.upsert(table_of("k v", rows))
    compact.compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(7, "new"), (900, "x")]))
    compact.compact(table, InProcessExecutor())
    return root


@pytest.fixture
def warehouse(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "warehouse"))


def list_used_files(warehouse: Path, kind: str) -> list[Path]:
    """Return the files of a kind that a read of the newest snapshot needs."""
    root = warehouse / "db.db" / "t"
    snapshot = json.loads(newest(root).read_bytes())
    lists = [root / "manifest" / snapshot[f"{part}ManifestList"] for part in ("base", "delta")]
    manifests = [
        meta.file_name for path in lists for meta in decode_manifest_list(path.read_bytes(), "")
    ]
    index = root / "manifest" / snapshot.get("indexManifest", "none")
    match kind:
        case "snapshot":
            return [newest(root)]
        case "schema":
            return [root / "schema" / "schema-0"]
        case "manifest list":
            return lists
        case "manifest":  # the last one has the compacted files; level 0 is not read
            return [root / "manifest" / name for name in reversed(manifests)]
        case "index manifest":
            return [index]
        case "deletion vectors":
            entries = decode_index_manifest(index.read_bytes(), "")
            return [root / "index" / entry.file_name for entry in entries]
        case _:
            files = Catalog(str(warehouse)).table("db.t").files()
            return [root / "bucket-0" / file.file_name for split in files for file in split.files]


def newest(root: Path) -> Path:
    return max((root / "snapshot").glob("snapshot-*"), key=lambda path: int(path.name[9:]))


def read(warehouse: Path) -> list[tuple[Any, ...]]:
    clear_metadata_cache()  # the tests change files in place
    return rows_of(Catalog(str(warehouse)).table("db.t"))


def assert_refused(warehouse: Path, path: Path) -> None:
    """Assert that a read fails with an error that names the file, and writes nothing."""
    before = stored_files_below(warehouse)
    with pytest.raises(PaimonError) as caught:
        read(warehouse)
    assert str(path) in str(caught.value)
    assert stored_files_below(warehouse) == before


def stored_files_below(warehouse: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in warehouse.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 1])
def test_the_error_of_a_truncated_file_contains_its_name(
    warehouse: Path, kind: str, share: float
) -> None:
    path = list_used_files(warehouse, kind)[0]
    data = path.read_bytes()
    path.write_bytes(data[: min(int(len(data) * share), len(data) - 1)])
    assert_refused(warehouse, path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("snapshot", "schema")])
def test_the_error_of_a_missing_file_contains_its_name(warehouse: Path, kind: str) -> None:
    path = list_used_files(warehouse, kind)[0]
    path.unlink()
    assert_refused(warehouse, path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("snapshot", "schema")])
def test_the_error_of_a_directory_in_place_of_a_file_contains_its_name(
    warehouse: Path, kind: str
) -> None:
    path = list_used_files(warehouse, kind)[0]
    path.unlink()
    path.mkdir()
    assert_refused(warehouse, path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_raises_only_documented_errors(warehouse: Path, kind: str) -> None:
    path = list_used_files(warehouse, kind)[0]
    data = path.read_bytes()
    before = stored_files_below(warehouse)
    step = max(1, len(data) // 40)
    for number, position in enumerate(range(0, len(data), step)):
        path.write_bytes(
            data[:position] + bytes([data[position] ^ 1 << number % 8]) + data[position + 1 :]
        )
        with suppress(PaimonError):
            read(warehouse)
    assert stored_files_below(warehouse) == before
    path.write_bytes(data)
    assert len(read(warehouse)) == 501


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["", "garbage", "[]", "null", "7", '"text"', "{}", "[" * 100_000, "Obj\1"]
)
def test_a_file_with_other_content_is_refused(warehouse: Path, kind: str, text: str) -> None:
    path = list_used_files(warehouse, kind)[0]
    path.write_text(text)
    assert_refused(warehouse, path)


@pytest.mark.parametrize(
    "key",
    [
        "id",
        "schemaId",
        "baseManifestList",
        "deltaManifestList",
        "commitKind",
        "indexManifest",
        "timeMillis",
        "version",
    ],
)
@pytest.mark.parametrize("value", [{"a": 1}, "text", [1]])
def test_a_snapshot_with_a_value_of_another_type_is_refused(
    warehouse: Path, key: str, value: object
) -> None:
    path = list_used_files(warehouse, "snapshot")[0]
    snapshot = json.loads(path.read_bytes())
    path.write_text(json.dumps(snapshot | {key: value}))
    with pytest.raises(PaimonError):
        read(warehouse)


@pytest.mark.parametrize(
    "key", ["id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options"]
)
@pytest.mark.parametrize("value", [{"a": 1}, ["x"], "text", 1.5, None, [[]], [{"id": 0}]])
def test_a_schema_with_a_value_of_another_type_is_refused_or_read(
    warehouse: Path, key: str, value: object
) -> None:
    path = list_used_files(warehouse, "schema")[0]
    schema = json.loads(path.read_bytes())
    path.write_text(json.dumps(schema | {key: value}))
    before = stored_files_below(warehouse)
    with suppress(PaimonError):
        read(warehouse)
    assert stored_files_below(warehouse) == before


def test_a_snapshot_with_a_missing_schema_is_refused(warehouse: Path) -> None:
    path = list_used_files(warehouse, "snapshot")[0]
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"schemaId": 9}))
    assert_refused(warehouse, path.parents[1] / "schema" / "schema-9")


def test_a_table_without_a_schema_is_refused(warehouse: Path) -> None:
    list_used_files(warehouse, "schema")[0].unlink()
    with pytest.raises(NotFoundError, match="db"):
        read(warehouse)


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize(
    "key", ["baseManifestList", "deltaManifestList", "indexManifest", "changelogManifestList"]
)
def test_a_snapshot_that_names_a_file_outside_is_refused(
    warehouse: Path, key: str, name: str
) -> None:
    path = list_used_files(warehouse, "snapshot")[0]
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: name}))
    assert_refused(warehouse, path)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_manifest_list_that_names_a_file_outside_is_refused(warehouse: Path, name: str) -> None:
    def change(metas: list[Any]) -> list[Any]:
        return [replace(meta, file_name=name) for meta in metas]

    rewrite_list(warehouse, change)


def rewrite_list(warehouse: Path, change: Callable[[list[Any]], list[Any]]) -> None:
    """Rewrite the delta list of the newest snapshot, and assert that it is refused."""
    path = list_used_files(warehouse, "manifest list")[1]
    forget_sizes(warehouse)
    path.write_bytes(encode_manifest_list(change(decode_manifest_list(path.read_bytes(), ""))))
    assert_refused(warehouse, path)


def forget_sizes(warehouse: Path) -> None:
    path = list_used_files(warehouse, "snapshot")[0]
    snapshot = json.loads(path.read_bytes())
    path.write_text(json.dumps({k: v for k, v in snapshot.items() if not k.endswith("Size")}))


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("field", ["file_name", "extra_files", "external_path"])
def test_a_manifest_that_names_a_file_outside_is_refused(
    warehouse: Path, field: str, name: str
) -> None:
    value: Any = (name,) if field == "extra_files" else name
    path = rewrite_manifest(warehouse, lambda file: replace(file, **{field: value}))
    if field == "external_path":
        with pytest.raises(PaimonError):
            read(warehouse)
    else:
        assert_refused(warehouse, path)


@pytest.mark.parametrize("row", [b"", b"\0\0\0", b"\xff" * 12, b"\0\0\0\1" + bytes(8)])
@pytest.mark.parametrize("filter", [None, "p = 'a'"])
def test_a_partition_that_is_not_a_row_is_refused(
    tmp_path: Path, row: bytes, filter: str | None
) -> None:
    table = new_table(tmp_path, "k BIGINT, p STRING", key=["k", "p"], partition_by=["p"])
    table.upsert(table_of("k p", [(1, "a")]))
    rewrite_manifest(tmp_path, partition=row)
    with pytest.raises(PaimonError, match=r"/t: partition .* in a manifest"):
        rows_of(Catalog(str(tmp_path)).table("db.t"), filter=filter)


def rewrite_manifest(
    warehouse: Path, change: Callable[[Any], Any] = lambda file: file, **entry_changes: Any
) -> Path:
    """Rewrite the files that the newest snapshot's manifest adds, with the correct sizes."""
    path = list_used_files(warehouse, "manifest")[0]
    entries = [
        replace(entry, file=change(entry.file), **entry_changes)
        for entry in decode_manifest(path.read_bytes(), "")
    ]
    path.write_bytes(encode_manifest(entries))
    for listed in list_used_files(warehouse, "manifest list"):
        metas = decode_manifest_list(listed.read_bytes(), "")
        sizes = {path.name: path.stat().st_size}
        fixed = [replace(m, file_size=sizes.get(m.file_name, m.file_size)) for m in metas]
        listed.write_bytes(encode_manifest_list(fixed))
    forget_sizes(warehouse)
    return path


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_manifest_that_names_a_file_outside_is_refused(warehouse: Path, name: str) -> None:
    path = list_used_files(warehouse, "index manifest")[0]
    entries = decode_index_manifest(path.read_bytes(), "")
    path.write_bytes(encode_index_manifest([replace(entry, file_name=name) for entry in entries]))
    assert_refused(warehouse, path)


@pytest.mark.parametrize("key", ["baseManifestListSize", "deltaManifestListSize"])
def test_a_manifest_list_with_another_size_is_refused(warehouse: Path, key: str) -> None:
    path = list_used_files(warehouse, "snapshot")[0]
    snapshot = json.loads(path.read_bytes())
    path.write_text(json.dumps(snapshot | {key: snapshot[key] + 1}))
    listed = path.parents[1] / "manifest" / snapshot[key.removesuffix("Size")]
    assert_refused(warehouse, listed)


@pytest.mark.parametrize("field", ["file_size", "num_added_files", "num_deleted_files"])
def test_a_manifest_that_contradicts_its_list_is_refused(warehouse: Path, field: str) -> None:
    path = list_used_files(warehouse, "manifest list")[1]
    metas = decode_manifest_list(path.read_bytes(), "")
    changed = [replace(meta, **{field: getattr(meta, field) + 1}) for meta in metas]
    path.write_bytes(encode_manifest_list(changed))
    forget_sizes(warehouse)
    assert_refused(warehouse, path.parent / metas[0].file_name)


@pytest.mark.parametrize("field", ["row_count", "file_size"])
def test_a_data_file_that_contradicts_its_manifest_is_refused(warehouse: Path, field: str) -> None:
    rewrite_manifest(warehouse, lambda file: replace(file, **{field: getattr(file, field) + 1}))
    with pytest.raises(PaimonError, match="data-"):
        read(warehouse)


@pytest.mark.parametrize("field", ["offset", "length", "cardinality"])
@pytest.mark.parametrize("value", [-1, 2**31 - 1, 0, 3])
def test_a_deletion_vector_at_another_position_is_refused(
    warehouse: Path, field: str, value: int
) -> None:
    path = list_used_files(warehouse, "index manifest")[0]
    vectors = list_used_files(warehouse, "deletion vectors")[0]
    [entry] = decode_index_manifest(path.read_bytes(), "")
    [vector_range] = entry.ranges or ()
    if getattr(vector_range, field) == value:
        return
    change: dict[str, Any] = {field: value}
    changed = replace(entry, ranges=(replace(vector_range, **change),))
    path.write_bytes(encode_index_manifest([changed]))
    assert_refused(warehouse, vectors)


def test_a_write_to_a_damaged_table_changes_nothing(warehouse: Path) -> None:
    path = list_used_files(warehouse, "manifest")[0]
    path.write_bytes(path.read_bytes()[:-9])
    table = Catalog(str(warehouse)).table("db.t")
    before = stored_files(table)
    with pytest.raises(PaimonError, match="manifest-"):
        table.upsert(table_of("k v", [(1, "one")]))
    assert stored_files(table) == before


@pytest.mark.parametrize(
    "row", [b"", b"\0\0\0", b"\xff" * 12, b"\0\0\0\1" + bytes(8), b"\0\0\0\2" + b"\xff" * 40]
)
@pytest.mark.parametrize("filter", [None, "k = 7", "v < 'value 3'"])
def test_invalid_rows_in_a_manifest_are_refused(
    warehouse: Path, row: bytes, filter: str | None
) -> None:
    stats = SimpleStats(row, row, None)
    rewrite_manifest(
        warehouse,
        lambda file: replace(file, min_key=row, max_key=row, key_stats=stats, value_stats=stats),
    )
    before = stored_files_below(warehouse)
    with suppress(PaimonError):
        rows_of(Catalog(str(warehouse)).table("db.t"), filter=filter)
    assert stored_files_below(warehouse) == before

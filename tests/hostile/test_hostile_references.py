"""Names in metadata and in options of a table that lead out of its directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile.test_links import ATTEMPTS, fill, read_all
from support.damage import edit_index
from support.histories import backdate_files
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import PaimonError
from paimon_orch.steps import compact, create_tags, sync_iceberg
from paimon_orch.steps.inspection.doctor.doctor import examine_opened_table
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.table import Table

STEPS: dict[str, Callable[[Table], object]] = {
    **ATTEMPTS,
    "rows": rows_of,
    "rows of a tag": lambda table: rows_of(table, tag="t0"),
    "doctor": examine_opened_table,
    "tags": create_tags,
    "iceberg": sync_iceberg,
    "statistics": lambda table: table.system("statistics").scan().to_arrow(),
    "indexes": lambda table: table.system("table_indexes").scan().to_arrow(),
    "incremental": lambda table: table.incremental(1, 2).to_arrow(),
    "append": lambda table: table.upsert(table_of("k v", [(9, "new")])),
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def victim(warehouse: Path) -> Path:
    """The directory of a table of another writer, with files of all kinds."""
    catalog = Catalog(str(warehouse))
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    other = catalog.create_table(
        "other.t", "k BIGINT, v STRING", primary_key=["k"], options=options
    )
    other.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    compact(other, strategy="full")
    fill(other)
    compact(other)
    return Path(other.paths.root)


@pytest.fixture
def unharmed(warehouse: Path, victim: Path) -> Iterator[None]:
    """Compare all files outside of the attacker's table before and after the test."""
    (warehouse.parent / "outside").mkdir()

    def read_others() -> dict[Path, bytes]:
        own = warehouse / "db.db" / "t"
        files = read_all(warehouse.parent)
        return {path: data for path, data in files.items() if not path.is_relative_to(own)}

    before = read_others()
    yield
    assert read_others() == before


def run_all(table: Table) -> None:
    """Run all steps, which may only raise errors of this library."""
    backdate_files(table)
    for name, step in STEPS.items():
        try:
            step(table)
        except PaimonError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error


def find_stolen(victim: Path, kind: str) -> Path:
    """Return a file of a kind of the other table."""
    folder, pattern = kind.split("/")
    return next((victim / folder).glob(pattern))


FIELDS = {
    "changelogManifestList": "manifest/manifest-list-*",
    "indexManifest": "manifest/index-manifest-*",
    "baseManifestList": "manifest/manifest-list-*",
    "deltaManifestList": "manifest/manifest-list-*",
    "statistics": "schema/schema-0",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("form", ["relative", "absolute", "uri"])
@pytest.mark.usefixtures("unharmed")
def test_a_file_of_another_table_in_a_snapshot_is_not_used(
    warehouse: Path, victim: Path, field: str, form: str
) -> None:
    table = fill(new_table(warehouse))
    stolen = find_stolen(victim, FIELDS[field])
    relative = stolen.relative_to(warehouse)
    name = {"relative": f"../../../{relative}", "absolute": str(stolen), "uri": f"file:{stolen}"}
    for path in Path(table.paths.root).rglob("snapshot-*"):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: name[form]}))

    run_all(table)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "changes", [{"file_name"}, {"external_path"}, {"file_name", "external_path"}]
)
@pytest.mark.parametrize("form", ["relative", "absolute", "uri"])
@pytest.mark.usefixtures("unharmed")
def test_an_index_file_of_another_table_is_not_used(
    warehouse: Path, victim: Path, changes: set[str], form: str
) -> None:
    table = new_table(warehouse, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    compact(table, strategy="full")
    fill(table)
    compact(table)
    stolen = find_stolen(victim, "index/index-*")
    name = {
        "relative": f"{table.paths.index_dir}/../../../{stolen.relative_to(warehouse)}",
        "absolute": str(stolen),
        "uri": f"file://{stolen}",
    }[form]
    if changes == {"file_name"}:
        name = name.removeprefix(f"{table.paths.index_dir}/")
    changed: dict[str, Any] = dict.fromkeys(changes, name)
    for number in table.stores.snapshots.ids():
        if table.stores.snapshots.get(number).index_manifest is not None:
            edit_index(table, number, lambda old: [replace(x, **changed) for x in old])

    run_all(table)


OPTIONS = {
    "branch": "../../../other.db/t",
    "scan.fallback-branch": "../../../../other.db/t",
    "scan.tag-name": "../../../other.db/t/tag/tag-t0",
    "consumer-id": "../../../other.db/t/consumer/consumer-c",
    "data-file.path-directory": "../../other.db/t",
    "data-file.prefix": "../../../other.db/t/bucket-0/data-",
    "changelog-file.prefix": "../../../other.db/t/bucket-0/changelog-",
    "tag.automatic-creation": "process-time",
    "metadata.iceberg.database": "../../other.db",
    "metadata.iceberg.table": "../../../other.db/t",
    "partition.default-name": "../../../other.db",
    "file.format": "../../other.db/t",
    "path": "../other.db/t",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.usefixtures("unharmed")
def test_a_path_in_an_option_leads_to_no_other_table(warehouse: Path, option: str) -> None:
    table = fill(new_table(warehouse))
    storage = {"metadata.iceberg.storage": "table-location"} if "iceberg" in option else {}
    for path in Path(table.paths.root).rglob("schema-*"):
        value = json.loads(path.read_bytes())
        value["options"] |= {option: OPTIONS[option], **storage}
        path.write_text(json.dumps(value))

    run_all(table)


@pytest.mark.parametrize("name", ["../c", "a/b", "/etc/passwd", "..", "", "a\0b"])
@pytest.mark.usefixtures("unharmed")
def test_a_name_of_a_user_leads_to_no_other_directory(warehouse: Path, name: str) -> None:
    table = fill(new_table(warehouse))
    calls: list[Callable[[], object]] = [
        lambda: table.stores.open_consumers().record(name, 1),
        lambda: table.stores.open_consumers().read_next_snapshot(name),
        lambda: table.stores.open_consumers().delete([name]),
        lambda: table.tags.create(name),
        lambda: table.tags.delete(name),
        lambda: table.branches.create(name),
        lambda: table.branches.delete(name),
        lambda: Catalog(str(warehouse)).table(f"db.t$branch_{name}").scan().to_arrow(),
    ]
    is_component = "/" not in name and "\0" not in name  # of the name of a file, after a prefix
    for call in calls:
        with suppress(PaimonError) if is_component else pytest.raises(PaimonError):
            call()
    assert LocalFileIO().exists(f"{table.paths.root}/schema/schema-0")

"""Symbolic links and external paths that a writer of one table makes do not harm other tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.damage import edit_files
from support.histories import backdate_files
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotAllowedError, PaimonError
from paimon_orch.steps import (
    check,
    compact,
    delete_tag,
    expire_changelogs,
    expire_snapshots,
    purge_files,
    remove_orphan_files,
    rewrite_file_index,
)
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.table import Table

DIRECTORIES = "branch bucket-0 changelog consumer index manifest schema snapshot statistics tag"
ATTEMPTS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(table_of("k v", [(1, "new")])),
    "compact": lambda table: compact(table, strategy="full"),
    "index": rewrite_file_index,
    "check": lambda table: check(table, deep=True),
    "expire": lambda table: expire_snapshots(table, retain_max=1, retain_min=1),
    "changelogs": lambda table: expire_changelogs(table, retain_max=1, retain_min=1),
    "orphans": lambda table: remove_orphan_files(table, older_than=0),
    "tag": lambda table: delete_tag(table, "t0"),
    "branch": lambda table: table.branches.delete("dev"),
    "consumer": lambda table: table.stores.open_consumers().delete(["c"]),
    "rollback": lambda table: table.rollback(1),
    "truncate": lambda table: table.truncate(),
    "purge": purge_files,
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "w"


def fill(table: Table) -> Table:
    """Give a table files of all kinds."""
    for key in range(2):
        table.upsert(table_of("k v", [(key, table.identifier)]))
    table.tags.create("t0", 1)
    table.stores.open_consumers().record("c", 1)
    table.branches.create("dev", "t0")
    return table


@pytest.fixture
def table(warehouse: Path) -> Table:
    """A table of an attacker."""
    return fill(new_table(warehouse))


@pytest.fixture
def victim(warehouse: Path) -> Path:
    """The directory of another table."""
    catalog = Catalog(str(warehouse))
    other = catalog.create_table("other.t", "k BIGINT, v STRING", primary_key=["k"])
    return Path(fill(other).paths.root)


def read_all(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("directory", DIRECTORIES.split())
def test_a_link_in_place_of_a_directory_leads_no_step_to_another_table(
    table: Table, victim: Path, directory: str
) -> None:
    link = Path(table.paths.root) / directory
    if link.exists():
        link.rename(link.with_name("moved"))
    link.symlink_to(victim / directory)
    backdate_files(table)
    before = read_all(victim)

    for attempt in ATTEMPTS.values():
        with suppress(PaimonError):
            attempt(table)
    with suppress(PaimonError):
        Catalog(str(victim.parents[1])).drop_table("db.t")

    assert read_all(victim) == before


def data_file(table: Table) -> Path:
    return next(Path(table.paths.root).rglob("bucket-0/*.parquet"))


def test_a_link_in_place_of_a_data_file_shows_no_rows_of_another_table(
    table: Table, victim: Path
) -> None:
    path = data_file(table)
    path.unlink()
    path.symlink_to(next(victim.rglob("bucket-0/*.parquet")))

    for read in (rows_of, lambda t: compact(t, strategy="full")):
        with pytest.raises(NotAllowedError, match="leads through a symbolic link"):
            read(table)


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "FILE:///"])
def test_an_external_path_in_a_manifest_shows_no_rows_of_another_table(
    table: Table, victim: Path, prefix: str
) -> None:
    stolen = next(victim.rglob("bucket-0/*.parquet"))
    path = f"{prefix}{str(stolen)[prefix.endswith('///') :]}"
    edit_files(table, 1, external_path=path, file_name=stolen.name)

    for read in (rows_of, lambda t: compact(t, strategy="full")):
        with pytest.raises(NotAllowedError, match="'allowed-external-paths'"):
            read(table)
    assert stolen.exists()


def test_a_link_in_the_shared_iceberg_directory_is_not_followed(
    warehouse: Path, victim: Path
) -> None:
    options = {"bucket": "1", "metadata.iceberg.storage": "hadoop-catalog"}
    catalog = Catalog(str(warehouse))
    table = catalog.create_table("db.i", "k INT", primary_key=["k"], options=options)
    iceberg = warehouse / "iceberg"
    for link in (iceberg / "db", iceberg / "db" / "i", iceberg / "db" / "i" / "metadata"):
        before = read_all(victim)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(victim)
        table.upsert(table_of("k", [(1,)]))
        with pytest.raises(PaimonError, match="symbolic link"):
            catalog.drop_table("db.i")
        link.unlink()
        assert read_all(victim) == before


@pytest.mark.parametrize("if_exists", [False, True])
def test_a_link_in_place_of_a_database_drops_no_table_of_another_one(
    warehouse: Path, victim: Path, if_exists: bool
) -> None:
    (warehouse / "linked.db").symlink_to(victim.parent)
    catalog, before = Catalog(str(warehouse)), read_all(victim)

    assert "linked" not in catalog.databases()
    with pytest.raises(InputError, match=r"database 'linked' .* is a symbolic link"):
        catalog.drop_database("linked", cascade=True, if_exists=if_exists)

    assert read_all(victim) == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("level", range(1, 5))
def test_an_external_path_through_a_link_in_the_iceberg_directory_is_refused(
    warehouse: Path, table: Table, victim: Path, level: int
) -> None:
    parts = ("iceberg", "db", "t", "metadata")
    stolen = next(victim.rglob("bucket-0/*.parquet"))
    link, own = warehouse.joinpath(*parts[:level]), Path(table.paths.root) / "own"
    link.parent.mkdir(parents=True, exist_ok=True)
    if level < len(parts):  # a link to directories of the attacker, the last of which is a link
        inner = own.joinpath(*parts[level:])
        inner.parent.mkdir(parents=True)
        inner.symlink_to(stolen.parent)
        link.symlink_to(own)
    else:
        link.symlink_to(stolen.parent)
    path = f"file:{warehouse.joinpath(*parts, stolen.name)}"
    hostile = {"external_path": path, "file_name": stolen.name, "file_size": stolen.stat().st_size}
    before = read_all(victim)
    for number in (1, 2):
        edit_files(table, number, **hostile)

    for read in (rows_of, lambda t: compact(t, strategy="full")):
        with pytest.raises(NotAllowedError, match="leads through a symbolic link"):
            read(table)
    for attempt in ATTEMPTS.values():
        with suppress(PaimonError):
            attempt(table)

    assert read_all(victim) == before


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[LocalFileIO]:
    (tmp_path / "root" / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"precious")
    yield LocalFileIO().confine((str(tmp_path / "root"),))
    assert (tmp_path / "outside" / "file").read_bytes() == b"precious"
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]


CALLS: dict[str, Callable[[LocalFileIO, str], object]] = {
    "open_input": lambda io, path: io.open_input(path),
    "open_output": lambda io, path: io.open_output(path),
    "read_bytes": lambda io, path: io.read_bytes(path),
    "create": lambda io, path: io.create(path, b""),
    "write": lambda io, path: io.write(path, b""),
    "list_dir": lambda io, path: list(io.list_dir(path)),
    "exists": lambda io, path: io.exists(path),
    "size": lambda io, path: io.size(path),
    "delete": lambda io, path: io.delete(path),
    "delete_dir": lambda io, path: io.delete_dir(path),
    "make_dir": lambda io, path: io.make_dir(path),
    "rename_dir": lambda io, path: io.rename_dir(path, f"{path}2"),
    "move": lambda io, path: io.move(path, f"{path}2"),
    "check_readable": lambda io, path: io.check_readable(path),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("path", ["outside/file", "outside", "root2/file", "root/link/file"])
def test_no_call_leaves_the_roots(
    tmp_path: Path, confined: LocalFileIO, call: str, path: str
) -> None:
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")

    with pytest.raises(NotAllowedError):
        CALLS[call](confined, str(tmp_path / path))


def test_a_directory_that_was_replaced_by_a_link_after_its_listing_is_not_entered(
    tmp_path: Path, confined: LocalFileIO
) -> None:
    inner = tmp_path / "root" / "inner"
    (inner / "file").write_bytes(b"own")
    [listed] = confined.list_dir(str(inner))
    inner.rename(tmp_path / "root" / "moved")
    inner.symlink_to(tmp_path / "outside")

    with pytest.raises(NotAllowedError, match="symbolic link"):
        confined.delete(listed.path)
    assert not confined.delete_empty_dir(str(inner))


def test_a_file_in_place_of_a_directory_is_not_deleted(tmp_path: Path) -> None:
    """Nor is a link that is replaced by a directory again, after it was not followed."""
    (tmp_path / "bucket-0").write_bytes(b"own")
    deleter = SafeDeleter(io=LocalFileIO(), roots=(str(tmp_path),))

    assert not deleter.delete(f"{tmp_path}/bucket-0/data-1.parquet")
    assert deleter.refused == [f"{tmp_path}/bucket-0/data-1.parquet"]


def test_a_link_that_stays_in_the_roots_is_followed_to_read(
    tmp_path: Path, confined: LocalFileIO
) -> None:
    (tmp_path / "root" / "inner" / "file").write_bytes(b"own")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "root" / "inner")
    linked = str(tmp_path / "root" / "link" / "file")

    assert confined.read_bytes(linked) == b"own"
    assert confined.exists(linked)
    with pytest.raises(NotAllowedError, match="not followed to change or delete"):
        confined.delete(linked)


@pytest.mark.parametrize("linked", ["db.db/linked", "linked.db"])
def test_a_link_in_place_of_a_table_leads_no_step_to_another_table(
    warehouse: Path, victim: Path, linked: str
) -> None:
    path = warehouse / linked
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim if path.parent.name == "db.db" else victim.parent)
    identifier = "db.linked" if path.parent.name == "db.db" else "linked.t"
    catalog, before = Catalog(str(warehouse)), read_all(victim)

    attempts: dict[str, Callable[[Table], object]] = {
        **ATTEMPTS,
        "rows": rows_of,
        "drop": lambda _: catalog.drop_table(identifier),
    }
    del attempts["check"]  # reports the link

    for attempt in attempts.values():
        with pytest.raises(NotAllowedError, match="symbolic link"):
            attempt(catalog.table(identifier))

    assert path.is_symlink()
    assert read_all(victim) == before


def test_a_link_in_place_of_an_external_directory_is_not_followed(
    warehouse: Path, victim: Path, tmp_path: Path
) -> None:
    (tmp_path / "fast" / "db.db").mkdir(parents=True)
    (tmp_path / "fast" / "db.db" / "t").symlink_to(victim)
    options = {
        "bucket": "1",
        "data-file.external-paths": f"file:{tmp_path}/fast/db.db/t",
        "data-file.external-paths.strategy": "round-robin",
    }
    catalog = Catalog(str(warehouse), allowed_external_paths=[f"{tmp_path}/fast"])
    table = catalog.create_table("db.t", "k BIGINT, v STRING", primary_key=["k"], options=options)
    before = read_all(victim)

    with pytest.raises(NotAllowedError, match="symbolic link"):
        table.upsert(table_of("k v", [(1, "new")]))
    assert read_all(victim) == before

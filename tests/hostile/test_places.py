"""Directories outside of tables, which the operator allows to one table or to a server."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hostile.test_links import ATTEMPTS, read_all
from support.damage import edit_files
from support.faulty_server import Answer, run_faulty_server
from support.histories import backdate_files
from support.tables import rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.catalog.rest import rest_client
from paimon_orch.catalog.store_options import confine_to_served_directory, open_served_location
from paimon_orch.errors import InputError, NotAllowedError, PaimonError
from paimon_orch.steps import Quarantine, remove_orphan_files
from paimon_orch.table.permissions import TablePermissions
from paimon_orch.table.table import Table

TEMPLATES = ["", "/{table}", "/{database}/x", "/{database}.{table}", "/x/{table}/{database}", "/*"]
NAMES = ["db.t", "other.t", "db.t2", "t.db", "{table}.t", "{database}.{table}", "t.t.t", "{table}.{database}"]  # fmt: skip


@pytest.mark.parametrize("template", TEMPLATES[:-1])
def test_an_allowed_directory_is_that_of_one_table(template: str) -> None:
    permissions = TablePermissions.parse([f"/fast{template}"], ())
    directories = [f"{permissions.list_directories(name)[0]}/" for name in NAMES]

    assert all(path.startswith("/fast/") for path in directories)
    for number, path in enumerate(directories):
        assert not any(other.startswith(path) for other in directories[number + 1 :])


@pytest.mark.parametrize("path", ["{database}{table}", "{table}.{database}", "{table}-{database}"])
def test_a_directory_that_may_be_that_of_two_tables_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="may be the same directory for two tables"):
        TablePermissions.parse([f"/fast/{path}"], ())


def create(root: Path, name: str, external: str) -> Table:
    """Create a table with external data files, and fill it."""
    options = {
        "bucket": "1",
        "data-file.external-paths": f"file:{root}/fast/{external}",
        "data-file.external-paths.strategy": "round-robin",
    }
    catalog = Catalog(str(root / "w"), allowed_external_paths=[f"{root}/fast"])
    table = catalog.create_table(name, "k BIGINT, v STRING", primary_key=["k"], options=options)
    for key in range(3):
        table.upsert(table_of("k v", [(key, name)]))
    return table


def test_an_allowed_directory_is_divided_between_the_tables(tmp_path: Path) -> None:
    victim = create(tmp_path, "other.t", "other.db/t")
    stolen = next((tmp_path / "fast" / "other.db" / "t").rglob("*.parquet"))
    table = create(tmp_path, "db.t", "db.db/t/deeper")
    before = read_all(tmp_path / "fast" / "other.db")
    for number in (1, 2):
        edit_files(table, number, external_path=f"file:{stolen}", file_name=stolen.name)
    backdate_files(table)

    with pytest.raises(NotAllowedError, match="'allowed-external-paths'"):
        rows_of(table)
    for attempt in ATTEMPTS.values():
        with suppress(PaimonError):
            attempt(table)

    assert read_all(tmp_path / "fast" / "other.db") == before
    assert len(rows_of(victim)) == 3


def claim(schema: Path, path: Path) -> None:
    """Ask for a directory of another table."""
    value = json.loads(schema.read_bytes())
    value["options"] |= {
        "data-file.external-paths": f"file:{path}",
        "data-file.external-paths.strategy": "round-robin",
    }
    schema.write_text(json.dumps(value))


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("attack", ["deep schema", "pipe", "claim"])
def test_a_hostile_table_of_the_same_name_does_not_affect_the_cleanup(
    tmp_path: Path, attack: str, is_shared: bool
) -> None:
    external = tmp_path / "fast" / "db.db" / "t"
    create(tmp_path, "db.t", "db.db/t")
    hostile = Catalog(str(tmp_path / "w")).create_table("evil.t", "k INT")
    schema = Path(hostile.paths.schema_dir) / "schema-0"
    if attack == "claim":
        claim(schema, external)
    elif attack == "pipe":
        schema.unlink()
        os.mkfifo(schema)
    else:
        schema.write_bytes(b"[" * 100_000)
    orphan = external / "bucket-0" / "data-orphan.parquet"
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    allowed = [f"{tmp_path}/fast{'/*' if is_shared else ''}"]
    table = Catalog(str(tmp_path / "w"), allowed_external_paths=allowed).table("db.t")

    result = remove_orphan_files(table, older_than=1_000)

    assert result.files == (0 if is_shared else 1)
    skipped = [f"{external}: the table {hostile.paths.root}"] if is_shared else []
    assert [
        each.split(" may")[0].split(",")[0] for each in result.skipped_external_paths
    ] == skipped
    Quarantine.of(table).list_folders()


def test_only_a_directory_of_one_table_is_its_own() -> None:
    one = TablePermissions.parse(["/fast"], ())
    two = TablePermissions.parse(["/fast", "/fast/{database}/{table}/x"], ())
    shared = TablePermissions.parse(["/fast", "/fast/db.db/*"], ())
    path = "/fast/db.db/t/more"
    assert one.owns("db.t$branch_b", path)
    assert not one.owns("db.t2", path)
    assert not two.owns("db.t", path)
    assert not shared.owns("db.t", path)


def test_a_table_that_asks_for_the_whole_directory_is_refused(tmp_path: Path) -> None:
    message = (
        r"asks for the directory .*/fast, .*allowed for this table: .*/fast/db\.db/t\).*/fast/\*"
    )
    with pytest.raises(NotAllowedError, match=message):
        create(tmp_path, "db.t", "")


LOCATIONS = [
    "/etc",
    "file:/etc",
    "file:///etc",
    "~",
    "{warehouse}2/x",
    "{warehouse}/../x",
    "{warehouse}",
    "/",
    "x",
]


@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("allowed", [(), ("/elsewhere/*", "/{table}")])
def test_a_server_names_no_local_directory_outside_of_the_warehouse(
    tmp_path: Path, location: str, allowed: tuple[str, ...]
) -> None:
    options = {"warehouse": f"file:{tmp_path}/w", "allowed-external-paths": ",".join(allowed)}
    io, root = open_served_location(options, location.format(warehouse=f"{tmp_path}/w"))

    with pytest.raises(
        NotAllowedError, match=r"local directory .* for db\.t, which is not allowed"
    ):
        confine_to_served_directory(options, io, root, "db.t")


def test_a_server_names_local_directories_that_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    options = {"warehouse": f"{tmp_path}/link", "allowed-external-paths": "/a,/b/*"}
    for root in (f"{tmp_path}/link/x", f"{tmp_path}/x/y", "/a/db.db/t", "/a/db.db/t/x", "/b/any"):
        confine_to_served_directory(options, *open_served_location(options, root), "db.t")


def confine(options: dict[str, Any], location: str) -> str:
    """Open a location that a server names; return the root."""
    io, root = open_served_location(options, location)
    confine_to_served_directory(options, io, root, "db.t")
    return root


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of a catalog, with a configuration of Hadoop."""
    pytest.importorskip("hdfs_native")
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://default:8020</value>"
        "</property><property><name>dfs.ha.namenodes.lake</name><value>a,b</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return {"warehouse": "hdfs://own/w", "uri": "thrift://server:1", "allowed-hosts": "ok:9000"}


@pytest.mark.parametrize("authority", ["10.0.0.1:8020", "own:9000", "ok", "ok:1", ":8020", "a"])
def test_a_server_names_no_name_node(hdfs: dict[str, Any], authority: str) -> None:
    with pytest.raises(NotAllowedError, match=f"names hdfs://{authority} .* 'allowed-hosts'"):
        confine(hdfs, f"hdfs://{authority}/w/db.db/t")


@pytest.mark.parametrize(
    "authority", ["own", "own:8020", "default", "", "lake", "ok:9000", "server:8020"]
)
def test_a_server_names_a_known_hdfs(hdfs: dict[str, Any], authority: str) -> None:
    assert confine(hdfs, f"hdfs://{authority}/w/db.db/t").endswith("/w/db.db/t")


@pytest.mark.parametrize("location", ["hdfs://[x/t", "s3://[x/t", "abfs://[c@d/t"])
def test_a_location_that_cannot_be_parsed_is_refused(location: str) -> None:
    with pytest.raises(InputError, match="is not a valid URI"):
        confine({}, location)


def test_a_rest_server_names_no_directory_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_client, "_configs", {})
    table = {"path": f"file:{tmp_path}", "id": "1", "schemaId": 0, "schema": {}}
    options: dict[str, Any] = {"metastore": "rest", "token": "t", "warehouse": "name"}
    with run_faulty_server() as server:
        server.answers = [Answer(body=table)]
        with pytest.raises(NotAllowedError, match=f"local directory {tmp_path} for db.t"):
            Catalog(uri=server.uri, **options).table("db.t")
        location, before = f"file:{tmp_path}/new", len(server.requests)
        with pytest.raises(NotAllowedError, match=f"local directory {tmp_path}/new for db.n"):
            Catalog(uri=server.uri, **options).create_table(
                "db.n", "k INT", options={"path": location}
            )
        assert len(server.requests) == before, "the table is refused before it is created"
        server.answers = [Answer(body=table)]
        allowed = Catalog(uri=server.uri, allowed_external_paths=[f"{tmp_path}/*"], **options)
        assert allowed.table("db.t").paths.root == str(tmp_path)

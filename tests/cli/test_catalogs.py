"""Named catalogs and options of catalogs on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Run, assert_fails
from support.tables import new_table, table_of

from paimon_orch import Catalog

SECRET = "very-secret-word"  # noqa: S105 - not a password


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the warehouse of the configured catalog ``prod``."""
    root = tmp_path / "wh"
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    (tmp_path / ".paimon_orch.yaml").write_text(f"catalog:\n  prod: {{warehouse: {root}}}\n")
    return root


def test_commands_take_the_name_of_a_catalog(root: Path, run: Run) -> None:
    assert run("create", "prod", "db.t", "--columns", "k INT").out == "created db.t in prod\n"
    assert run("tables", "prod").out == "db.t\n"
    assert (root / "db.db" / "t").is_dir()


def test_hints_name_the_catalog(root: Path, run: Run) -> None:
    new_table(root, deletion_vectors__enabled="true").upsert(table_of("k v", [(1, "a")]))

    answer = run("read", "prod", "db.t", "--format", "csv")

    assert "run `paimon-orch compact prod db.t`" in answer.error
    assert_fails(run("sync-iceberg", "prod", "db.t"), "run: paimon-orch alter prod db.t --set")


def test_the_hint_for_a_missing_partition_lists_the_partitions(root: Path, run: Run) -> None:
    new_table(root, "dt STRING, k INT", key=(), partition_by=["dt"], bucket="-1")
    answer = run("compact", "prod", "db.t", "--partitions", "dt=a")
    assert_fails(answer, "run paimon-orch read prod 'db.t$partitions'")


def test_options_open_a_catalog_without_a_name(root: Path, run: Run) -> None:
    new_table(root)
    options = ["--catalog-option", "metastore=filesystem"]
    assert run(*options, "tables", root).out == "db.t\n"
    assert run(*options, "--catalog-option", f"warehouse={root}", "tables", root).out == "db.t\n"
    answer = run(*options, "--catalog-option", "warehouse=/other", "tables", root)
    assert_fails(answer, "the option 'warehouse' contradicts the location")


def test_options_override_those_of_a_named_catalog(root: Path, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Catalog(str(other)).create_table("db.u", "k INT")
    assert run("--catalog-option", f"warehouse={other}", "tables", "prod").out == "db.u\n"
    answer = run("--catalog-option", f"token={SECRET}", "tables", "prod")
    assert_fails(answer, "has no option 'token'")
    assert SECRET not in answer.error


def test_options_of_an_unknown_catalog_are_refused(root: Path, run: Run) -> None:
    answer = run("--catalog-option", f"token={SECRET}", "tables", "prdo")
    assert_fails(answer, "(token) need the option 'metastore', or the name of a configured catalog")
    assert SECRET not in answer.error


@pytest.mark.parametrize("switch", ["--catalog-option", "--storage-option"])
def test_a_malformed_option_is_not_printed(switch: str, run: Run) -> None:
    for text in (SECRET, f"={SECRET}"):
        answer = run(switch, text, "tables", "prod")
        assert_fails(answer, f"{switch} must look like name=value")
        assert SECRET not in answer.error
    answer = run(switch, f"token={SECRET}", switch, "token=other", "tables", "prod")
    assert_fails(answer, f"{switch} token is given twice")
    assert SECRET not in answer.error


def test_storage_options_are_added_to_those_of_a_named_catalog(root: Path, run: Run) -> None:
    answer = run("--storage-option", "key=a", "tables", "prod")
    assert_fails(answer, "is local and cannot have storage options; got key")


def test_configured_catalogs_are_listed_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    assert run("catalogs").out == "none\n"
    (tmp_path / ".paimon_orch.yaml").write_text(
        "catalog:\n"
        f"  my-db: {{metastore: jdbc, uri: 'jdbc:postgresql://h/d?password={SECRET}', "
        f"warehouse: s3://lake/wh, jdbc.password: {SECRET}}}\n"
        f"  rest: {{metastore: rest, uri: 'https://me:{SECRET}@host/api', token: {SECRET}}}\n"
    )
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__MY_DB__LOCK__ENABLED", "true")
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__LAKE__WAREHOUSE", "/lake")

    text, document = run("catalogs"), run("catalogs", "--json")

    assert text.out.splitlines() == [
        "lake filesystem /lake",
        "my-db jdbc jdbc:postgresql://h/d?password=*** s3://lake/wh",
        "rest rest https://***@host/api",
    ]
    assert document.json[1] == {
        "name": "my-db",
        "metastore": "jdbc",
        "warehouse": "s3://lake/wh",
        "uri": "jdbc:postgresql://h/d?password=***",
    }
    assert json.loads(document.out)[0]["uri"] is None
    assert SECRET not in text.out + document.out


def test_a_catalog_of_variables_only_can_be_opened_by_its_listed_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__MY_LAKE__WAREHOUSE", str(tmp_path / "wh"))
    new_table(tmp_path / "wh")

    assert run("catalogs").out == f"my_lake filesystem {tmp_path}/wh\n"
    assert run("tables", "my_lake").out == run("tables", "my-lake").out == "db.t\n"


def test_a_jdbc_catalog_is_opened_by_options_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    uri, warehouse = f"jdbc:sqlite:{tmp_path}/catalog.db", str(tmp_path / "wh")
    options = ["--catalog-option", "metastore=jdbc", "--catalog-option", f"uri={uri}"]
    create = ["create", "db.t", "--columns", "k INT NOT NULL", "--primary-key", "k"]
    create.insert(1, warehouse)
    assert run(*options, *create, "--option", "deletion-vectors.enabled=true").status == 0
    assert run(*options, "tables", warehouse).out == "db.t\n"
    catalog = Catalog(metastore="jdbc", uri=uri, warehouse=warehouse)
    catalog.table("db.t").upsert(table_of("k", [(1,)]))

    read = ["read", warehouse, "db.t", "--format", "csv"]
    assert "run `paimon-orch compact CATALOG db.t`" in run(*options, *read).error

    for name, value in {"METASTORE": "jdbc", "URI": uri, "WAREHOUSE": warehouse}.items():
        monkeypatch.setenv(f"PAIMON_ORCH_CATALOG__PROD__{name}", value)
    assert run("catalogs").out == f"prod jdbc {uri} {warehouse}\n"
    read[1] = "prod"
    assert "run `paimon-orch compact prod db.t`" in run(*read).error

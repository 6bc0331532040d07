"""Which arguments of the surfaces open which catalog."""

from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table

from paimon_orch import Catalog, InputError
from paimon_orch.catalog.open_catalog import open_catalog


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the warehouse of the configured catalog ``prod``."""
    root = tmp_path / "wh"
    monkeypatch.setenv("PAIMON_ORCH_HOME", str(tmp_path))
    (tmp_path / ".paimon_orch.yaml").write_text(f"catalog:\n  prod: {{warehouse: {root}}}\n")
    new_table(root)
    return str(root)


def test_a_location_is_a_warehouse_or_a_name(root: str) -> None:
    assert open_catalog(root).tables("db") == ["t"]
    assert open_catalog("prod").tables("db") == ["t"]
    assert (open_catalog(root).name, open_catalog("prod").name) == (None, "prod")


def test_a_name_must_be_configured(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_catalog(name="prod").uri == root
    with pytest.raises(InputError, match=r"no catalog 'wh' is configured .*catalogs: prod"):
        open_catalog(name="wh")  # also the name of a directory


def test_options_override_those_of_a_named_catalog(tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    Catalog(other).create_table("db.u", "k INT")
    options = {"warehouse": other}
    for catalog in (
        open_catalog("prod", catalog_options=options),
        open_catalog(name="prod", catalog_options=options),
    ):
        assert (catalog.name, catalog.tables("db")) == ("prod", ["u"])


@pytest.mark.parametrize("has_location", [True, False])
def test_a_metastore_opens_a_catalog_without_a_name(root: str, *, has_location: bool) -> None:
    options = {"metastore": "filesystem"} | ({} if has_location else {"warehouse": root})
    catalog = open_catalog(root if has_location else None, catalog_options=options)
    assert (catalog.name, catalog.tables("db")) == (None, ["t"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a warehouse or the name of a configured catalog"),
        ({"name": "prod", "location": "/x"}, "'prod' has a warehouse; remove the location '/x'"),
        (
            {"name": "prod", "catalog_options": {"metastore": "rest"}},
            "'prod' is configured; remove the option 'metastore'",
        ),
        (
            {
                "location": "/x",
                "catalog_options": {"metastore": "filesystem", "warehouse": "/y"},
            },
            "'warehouse' contradicts the location '/x'",
        ),
        (
            {"location": "/x", "catalog_options": {"uri": "u"}},
            r"\(uri\) need the option 'metastore'",
        ),
        ({"catalog_options": {"uri": "u"}}, r"\(uri\) need the option 'metastore'"),
    ],
)
def test_contradictions_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_catalog(**arguments)

"""Which options open which catalog, and which are refused."""

from pathlib import Path
from typing import Any

import pytest
from support.tables import get_file_system

from paimon_orch import Catalog, InputError
from paimon_orch.storage.object_store import FsspecFileIO


def test_the_metastore_filesystem_needs_a_warehouse(tmp_path: Path) -> None:
    catalog = Catalog(metastore="filesystem", warehouse=str(tmp_path))
    catalog.create_table("db.t", "k INT")
    assert Catalog(str(tmp_path)).tables("db") == ["t"]
    with pytest.raises(InputError, match="needs the option 'warehouse'"):
        Catalog(metastore="filesystem")


def test_a_catalog_without_options_is_refused() -> None:
    with pytest.raises(InputError, match="needs a warehouse or the name of a configured catalog"):
        Catalog()


def test_an_unknown_metastore_is_refused() -> None:
    with pytest.raises(InputError, match=r"metastore 'glue' must be one of filesystem"):
        Catalog(metastore="glue")


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"has no option 'warehous'; did you mean 'warehouse'\?"):
        Catalog(metastore="filesystem", warehous="/lake")


def test_options_of_the_store_begin_with_storage() -> None:
    options: dict[str, Any] = {"storage.anon": "true", "storage.key": "a key"}
    catalog = Catalog(metastore="filesystem", warehouse="memory://open/wh", **options)
    io = get_file_system(catalog).io
    assert isinstance(io, FsspecFileIO)
    assert dict(io.options.resolve()) == {"anon": True, "key": "a key"}


def test_new_tables_get_the_table_defaults_of_the_catalog(tmp_path: Path) -> None:
    defaults: dict[str, Any] = {"table-default.bucket": "3", "table-default.file.format": "orc"}
    catalog = Catalog(metastore="filesystem", warehouse=str(tmp_path), **defaults)
    table = catalog.create_table("db.t", "k INT", primary_key=["k"], options={"bucket": "1"})
    assert table.load().schema.options["bucket"] == "1"
    assert table.load().schema.options["file.format"] == "orc"

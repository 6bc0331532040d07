"""Storage options on the command line and in the environment."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from support.tables import get_file_system
from typer.testing import CliRunner

from paimon_orch.catalog import open_catalog
from paimon_orch.catalog.catalog import Catalog
from paimon_orch.cli import app as cli
from paimon_orch.storage.object_store import FsspecFileIO
from paimon_orch.storage.object_store_options import STORAGE_OPTIONS_ENV

COLUMNS = ("--columns", "id BIGINT")


def test_storage_options_precede_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv(STORAGE_OPTIONS_ENV, json.dumps({"secret": "of-the-environment"}))
    opened: list[Catalog] = []

    def catalog(uri: str, **options: Any) -> Catalog:
        opened.append(Catalog(uri, **options))
        return opened[-1]

    monkeypatch.setattr(open_catalog, "Catalog", catalog)
    root = f"memory://{uuid4()}/wh"
    arguments = [
        "--storage-option",
        "key=a=b",
        "--storage-option",
        "anon=true",
        "create",
        root,
        "db.t",
    ]

    result = CliRunner().invoke(cli.app, [*arguments, *COLUMNS])

    assert result.exit_code == 0, result.output
    assert Catalog(root).tables("db") == ["t"]
    io = get_file_system(opened[0]).io
    assert isinstance(io, FsspecFileIO)
    assert io.options.resolve() == {"key": "a=b", "anon": True, "secret": "of-the-environment"}


def test_storage_options_apply_to_one_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    options_of_calls: list[dict[str, Any]] = []

    def catalog(uri: str, **options: Any) -> Catalog:
        options_of_calls.append(
            {name: value for name, value in options.items() if name != "allowances"}
        )
        return Catalog(uri, **options)

    monkeypatch.setattr(open_catalog, "Catalog", catalog)
    for arguments in (["--storage-option", "key=mine"], []):
        root = f"memory://{uuid4()}/wh"
        CliRunner().invoke(cli.app, [*arguments, "create", root, "db.t", *COLUMNS])
    assert options_of_calls == [{"key": "mine"}, {}]

"""Capabilities of stores: those of each scheme, and code that asks for them and not for a class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_orch.storage import ExclusiveCreation, FsspecFileIO, LocalFileIO
from paimon_orch.storage.object_store_options import StorageOptions

CLASSES = {"LocalFileIO", "FsspecFileIO", "HdfsFileIO"}


@pytest.mark.parametrize(
    ("scheme", "options", "means"),
    [
        ("s3a", {}, ExclusiveCreation.CONDITIONAL_PUT),
        ("gs", {}, ExclusiveCreation.CONDITIONAL_PUT),
        ("abfss", {}, ExclusiveCreation.CONDITIONAL_PUT),
        ("s3", {"lock_path": "/lock"}, ExclusiveCreation.LOCK_FILE),
        ("memory", {}, ExclusiveCreation.ONE_PROCESS),
        ("oss", {}, ExclusiveCreation.CONDITIONAL_PUT),
        ("wasb", {}, None),
        ("ftp", {}, None),
    ],
)
def test_object_stores_create_by_the_means_of_their_scheme(
    scheme: str, options: dict[str, Any], means: ExclusiveCreation | None
) -> None:
    io = FsspecFileIO(f"{scheme}://bucket/warehouse", StorageOptions.of(options))

    assert io.capabilities.exclusive_creation is means
    assert not io.capabilities.has_directories
    assert not io.capabilities.has_atomic_rename
    assert io.capabilities.has_bulk_delete is (scheme in {"s3", "s3a", "oss"})


def test_local_file_systems_create_by_hard_links() -> None:
    capabilities = LocalFileIO.capabilities

    assert capabilities.exclusive_creation is ExclusiveCreation.HARD_LINK
    assert capabilities.is_local
    assert capabilities.has_directories


def _find_class_checks(package: Path) -> Iterator[str]:
    for file in sorted(package.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if file.parent.name == "storage" or not any(name in text for name in CLASSES):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                if names & CLASSES:
                    yield f"{file.relative_to(package)}:{node.lineno}"


def test_code_outside_of_the_storage_asks_for_no_class(repository: Path) -> None:
    assert list(_find_class_checks(repository / "paimon_orch")) == []

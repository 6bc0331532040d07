"""The package as an archive for workers that do not have it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paimon_orch.errors import InputError
from paimon_orch.spark import package_archive


def test_the_archive_contains_the_package(tmp_path: Path, repository: Path) -> None:
    archive = package_archive(tmp_path)

    names = set(zipfile.ZipFile(archive).namelist())
    sources = {
        path.relative_to(repository).as_posix()
        for package in ("paimon_orch", "pyspark_paimon")
        for path in (repository / package).rglob("*.py")
    }
    assert sources <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_python_imports_the_package_from_the_archive(tmp_path: Path) -> None:
    archive = package_archive(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); from paimon_orch.steps import "
        "run_compaction; print(sys.modules[run_compaction.__module__].__file__)"
    )

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert process.stdout.startswith(str(archive))


@pytest.mark.slow
def test_archives_of_equal_source_files_are_equal(tmp_path: Path) -> None:
    first, second = package_archive(tmp_path / "a"), package_archive(tmp_path / "b")

    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert package_archive(tmp_path / "a") == first


def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        package_archive(tmp_path / "file")

"""The test data in the repository is complete and unpacked once; missing data is an error."""

from __future__ import annotations

import lzma
import multiprocessing
import shutil
from pathlib import Path

import pytest
from support.golden import GOLDEN, golden_tables
from support.packed_data import (
    DATA,
    WRITERS,
    TestDataError,
    data_file,
    golden_folder,
    pack,
    tar_bytes,
)

TABLES = {"java-0.9": 105, "java-2.0": 125, "pypaimon-2.1": 21, "pypaimon-rust-0.4": 11}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with copies of the smallest archive under the names of all archives."""
    folder = tmp_path / "data"
    (folder / "golden").mkdir(parents=True)
    for writer in WRITERS:
        shutil.copy(DATA / "golden" / f"{WRITERS[-1]}.tar.xz", folder / f"golden/{writer}.tar.xz")
    return folder


def test_every_golden_table_exists() -> None:
    counts = dict.fromkeys(WRITERS, 0)
    for name, folder, _ in golden_tables():
        assert (folder / "warehouse").is_dir()
        counts[name.partition("/")[0]] += 1

    assert counts == TABLES


@pytest.mark.sampled(1)
@pytest.mark.parametrize("writer", WRITERS)
def test_archives_equal_a_new_packing_of_their_files(writer: str) -> None:
    archive = lzma.decompress((DATA / "golden" / f"{writer}.tar.xz").read_bytes())

    assert tar_bytes(GOLDEN / writer) == archive


def test_archives_of_equal_files_are_equal(tmp_path: Path) -> None:
    packed = [tmp_path / "one.tar.xz", tmp_path / "two.tar.xz"]
    for archive in packed:
        folder = tmp_path / archive.stem / "w"
        # The copies have new modification times.
        shutil.copytree(GOLDEN / "pypaimon-2.1" / "append", folder)
        pack(folder, archive)

    assert packed[0].read_bytes() == packed[1].read_bytes()


def test_a_missing_archive_is_an_error(data: Path, tmp_path: Path) -> None:
    (data / "golden" / "java-2.0.tar.xz").unlink()

    with pytest.raises(TestDataError, match=r"java-2\.0\.tar\.xz.*git checkout"):
        golden_folder(data, tmp_path / "cache")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", ["changed", "cut", "empty", "no archive"])
def test_a_damaged_archive_is_an_error_and_leaves_nothing(
    damage: str, data: Path, tmp_path: Path
) -> None:
    path, cache = data / "golden" / "java-2.0.tar.xz", tmp_path / "cache"
    good = path.read_bytes()
    middle = len(good) // 2
    changed = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    path.write_bytes({"changed": changed, "cut": good[:middle], "empty": b""}.get(damage, b"text"))

    for _ in range(2):
        with pytest.raises(TestDataError, match=r"java-2\.0\.tar\.xz is damaged.*git checkout"):
            golden_folder(data, cache)
    assert [entry.name for entry in cache.iterdir() if entry.is_dir()] == []


@pytest.mark.slow
def test_processes_that_start_together_unpack_an_archive_once(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.starmap(golden_folder, [(data, cache)] * 6)

    assert set(folders) == {entry for entry in cache.iterdir() if entry.is_dir()}
    assert len(set(folders)) == 1


@pytest.mark.slow
def test_unpacked_files_equal_those_of_the_archives_and_are_read_only(
    data: Path, tmp_path: Path
) -> None:
    folder = golden_folder(data, tmp_path / "cache")

    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o444}
    assert len(files) == len([p for p in (GOLDEN / WRITERS[-1]).rglob("*") if p.is_file()])


def test_a_missing_or_damaged_vector_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cut.json.xz").write_bytes(lzma.compress(b"{}")[:-9])

    for name in ("none.json", "cut.json"):
        with pytest.raises(TestDataError, match=rf"tests/data/{name}"):
            data_file(name, tmp_path)

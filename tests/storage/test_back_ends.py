"""The storage contract for every back end, with races between processes on shared ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from support.commit_race import ROUNDS, append_concurrently, count_winners
from support.storage_contract import StorageContract
from support.tables import rows_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CorruptFileError
from paimon_orch.storage import FileIO, resolve_warehouse

if TYPE_CHECKING:
    from storage.conftest import Bucket


class TestLocal(StorageContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)

    @pytest.fixture
    def io(self, root: str) -> FileIO:
        return resolve_warehouse(root)[0]

    @pytest.fixture
    def catalog(self, root: str) -> Catalog:
        return Catalog(root)

    def test_a_directory_is_not_a_file(self, io: FileIO, root: str) -> None:
        for read in (io.read_bytes, io.open_input):
            with pytest.raises(CorruptFileError, match="is a directory, but a file is expected"):
                read(root)


class TestMemory(StorageContract):
    @pytest.fixture
    def root(self) -> str:
        pytest.importorskip("fsspec")
        return f"memory://{uuid4()}/warehouse"

    @pytest.fixture
    def io(self, root: str) -> FileIO:
        return resolve_warehouse(root)[0]

    @pytest.fixture
    def catalog(self, root: str) -> Catalog:
        return Catalog(root)


class ObjectStoreContract(StorageContract):
    """Base class; subclasses define the fixture ``bucket``."""

    @pytest.fixture
    def bucket(self) -> Bucket:
        raise NotImplementedError

    @pytest.fixture
    def root(self, bucket: Bucket) -> str:
        return bucket.root

    @pytest.fixture
    def io(self, bucket: Bucket) -> FileIO:
        return bucket.io

    @pytest.fixture
    def catalog(self, bucket: Bucket) -> Catalog:
        return Catalog(bucket.root, **bucket.options)


@pytest.mark.slow
class TestS3(ObjectStoreContract):
    keeps_empty_directories = True

    @pytest.fixture
    def bucket(self, s3: Bucket) -> Bucket:
        return s3


class TestAzure(ObjectStoreContract):
    refused_names = ("a?", "b?")

    @pytest.fixture
    def bucket(self, azure: Bucket) -> Bucket:
        return azure


class TestGoogleCloudStorage(ObjectStoreContract):
    @pytest.fixture
    def bucket(self, gcs: Bucket) -> Bucket:
        return gcs


@pytest.fixture(params=["local", "locked", "s3", "azure", "gcs"])
def shared_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Return a location that several processes can use, and its options."""
    if request.param == "local":
        return str(tmp_path), {}
    if request.param == "locked":  # the store has no trusted exclusive creation
        options = {"lock_path": str(tmp_path / "lock"), "auto_mkdir": True}
        return f"local://{tmp_path}/warehouse", options
    bucket: Bucket = request.getfixturevalue(request.param)
    return bucket.root, bucket.options


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_exactly_one_of_many_processes_creates_a_file(
    shared_root: tuple[str, dict[str, Any]],
) -> None:
    assert count_winners(*shared_root) == dict.fromkeys(range(ROUNDS), 1)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_concurrent_commits_keep_all_rows(shared_root: tuple[str, dict[str, Any]]) -> None:
    root, options = shared_root
    table = Catalog(root, **options).create_table(
        "db.t", "process INT, number INT", options={"commit.max-retries": "50"}
    )

    written = append_concurrently(root, options, processes=3, appends=4)

    assert rows_of(table) == sorted(written)
    assert table.stores.snapshots.ids() == list(range(1, len(written) + 1))

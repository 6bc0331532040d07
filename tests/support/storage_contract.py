"""The contract of all file systems; the tests of each file system inherit it."""

from __future__ import annotations

import io as streams
import pickle
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from support.tables import get_file_system, rows_of, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.format.paths import TablePaths
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.storage.object_store import FsspecFileIO
from paimon_orch.table.table import Table

MEGABYTE = 1 << 20


class StorageContract:
    """Base class; subclasses define the fixtures ``io``, ``root`` (a new directory) and ``catalog``."""

    refused_names: Collection[str] = ()
    """Names of files that the client of the store would take for another name."""
    keeps_empty_directories = False
    """Whether the server lists directories whose objects were deleted."""

    @pytest.fixture
    def io(self) -> FileIO:
        raise NotImplementedError

    @pytest.fixture
    def root(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def catalog(self) -> Catalog:
        raise NotImplementedError

    def is_gone(self, io: FileIO, directory: str) -> bool:
        """Return whether a deleted directory has no file."""
        if self.keeps_empty_directories:
            return io.list_tree(directory) == []
        return not io.exists(directory)

    def test_a_file_is_created_once(self, io: FileIO, root: str) -> None:
        path = f"{root}/t/snapshot/snapshot-1"

        assert io.create(path, b"first")
        assert not io.create(path, b"second")

        assert io.read_bytes(path) == b"first"
        names = [info.name for info in io.list_dir(f"{root}/t/snapshot")]
        assert names == ["snapshot-1"], "nothing temporary is left"

    def test_few_files_are_listed_at_once_or_not_at_all(self, io: FileIO, root: str) -> None:
        """Only S3 does that."""
        names = ["schema/schema-0", "snapshot/LATEST", "snapshot/snapshot-1", "tag/tag-a"]
        for name in names:
            io.write(f"{root}/t/{name}", name.encode())
        listed = io.list_few(f"{root}/t/s", 3)
        directories = io.list_few(f"{root}/t/", 3, with_directories=True)

        assert io.list_few(f"{root}/t/s", 2) is None
        if listed is None:
            assert directories is None
            return
        folders = [io.list_dir(f"{root}/t/{folder}") for folder in ("schema", "snapshot")]
        assert listed == [info for folder in folders for info in folder]
        assert directories == [info for info in io.list_dir(f"{root}/t") if info.is_dir]
        assert len(directories) == 3

    def test_a_file_is_replaced(self, io: FileIO, root: str) -> None:
        path = f"{root}/t/snapshot/LATEST"
        for content in (b"1", b"22", b"3"):
            io.write(path, content)
            assert io.read_bytes(path) == content

    def test_a_listing_has_names_sizes_and_directories(self, io: FileIO, root: str) -> None:
        before = time.time()
        io.write(f"{root}/t/file", b"12345")
        io.write(f"{root}/t/folder/below", b"")
        io.write(f"{root}/t2/other", b"")

        entries = {info.path: info for info in io.list_dir(f"{root}/t")}

        assert set(entries) == {f"{root}/t/file", f"{root}/t/folder"}
        file = entries[f"{root}/t/file"]
        assert (file.name, file.size, file.is_dir) == ("file", 5, False)
        assert before - 5 < file.modified < time.time() + 5, "clocks and whole seconds"
        assert entries[f"{root}/t/folder"].is_dir

    def test_a_listing_is_never_stale(self, io: FileIO, root: str) -> None:
        for number in range(3):
            assert io.create(f"{root}/t/file-{number}", b"")
            assert len(list(io.list_dir(f"{root}/t"))) == number + 1
        io.delete(f"{root}/t/file-1")
        assert len(list(io.list_dir(f"{root}/t"))) == 2

    def test_a_listing_of_all_files_has_those_of_all_directories(
        self, io: FileIO, root: str
    ) -> None:
        for name in ("file", "folder/below", "folder/in/folder/file", "empty name/a?b*"):
            io.write(f"{root}/t/{name}", name.encode())
        for other in ("t2/other", "t2", "other"):
            io.write(f"{root}/{other}x", b"")

        def walk(path: str) -> Iterator[FileInfo]:
            for info in io.list_dir(path):
                yield from walk(info.path) if info.is_dir else [info]

        files = io.list_tree(f"{root}/t")

        if files is None:
            assert io.capabilities.has_directories
            return
        assert sorted(files, key=lambda info: info.path) == sorted(
            walk(f"{root}/t"), key=lambda info: info.path
        )
        assert len(files) == 4
        assert io.list_tree(f"{root}/missing") == []

    def test_listing_a_missing_directory_is_empty(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/file", b"x")

        assert list(io.list_dir(f"{root}/missing")) == []
        assert list(io.list_dir(f"{root}/file")) == []

    def test_a_prefix_of_a_file_name_is_not_an_existing_file(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/folder/file", b"")

        assert io.exists(f"{root}/folder/file")
        assert io.exists(f"{root}/folder")
        assert not io.exists(f"{root}/folder/fil")
        assert not io.exists(f"{root}/fold")

        assert io.file_exists(f"{root}/folder/file"), "it is empty"
        assert not io.file_exists(f"{root}/folder/fil")

    def test_missing_files_raise_the_same_error(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/file", b"")
        for read in (io.read_bytes, io.open_input, io.size):
            with pytest.raises(FileNotFoundError):
                read(f"{root}/missing")
        for size in (0, 1, 3 * MEGABYTE):
            with pytest.raises(FileNotFoundError):
                io.open_input(f"{root}/missing", size)
        io.delete(f"{root}/missing")
        io.delete_dir(f"{root}/missing")

    def test_a_new_file_is_visible_after_it_is_closed(self, io: FileIO, root: str) -> None:
        path = f"{root}/t/bucket-0/data"
        with io.open_output(path) as sink:
            sink.write(b"rows")
            sink.write(memoryview(b" and more"))
            assert sink.tell() == 13

        assert (io.size(path), io.read_bytes(path)) == (13, b"rows and more")

    def test_an_empty_file_exists(self, io: FileIO, root: str) -> None:
        path = f"{root}/t/empty"
        with io.open_output(path):
            pass

        assert (io.size(path), io.read_bytes(path)) == (0, b"")
        with io.open_input(path) as source:
            assert source.read() == b""

        with io.open_input(path, 0) as source:
            assert source.read() == b""

    @pytest.mark.parametrize("size", [0, 1, 2000, MEGABYTE, 3 * MEGABYTE])
    @pytest.mark.parametrize("difference", [-MEGABYTE, -1, 1, MEGABYTE])
    def test_a_file_of_another_size_is_refused(
        self, io: FileIO, root: str, size: int, difference: int
    ) -> None:
        stated, path = size + difference, f"{root}/data"
        if stated < 0:
            return
        io.write(path, bytes(size))
        with pytest.raises(CorruptFileError) as caught:
            io.open_input(path, stated).close()
        assert str(caught.value) == (
            f"{path}: has {size} bytes, but its manifest entry states {stated}"
        )

    def test_many_files_are_deleted(self, io: FileIO, root: str) -> None:
        names = ["a", "b*", "b?", "[b]", "c=%2F é&<", "missing"]
        names = [name for name in names if name not in self.refused_names]
        for name in (*names[:-1], "bx", "b"):
            io.write(f"{root}/t/{name}", b"x")

        io.delete_many([f"{root}/t/{name}" for name in names])
        io.delete_many([])

        assert {info.name for info in io.list_dir(f"{root}/t")} == {"b", "bx"}

    @pytest.mark.parametrize("is_size_known", [False, True])
    def test_files_support_random_reads(self, io: FileIO, root: str, is_size_known: bool) -> None:
        content = bytes(range(256)) * (3 * MEGABYTE // 256)
        io.write(f"{root}/data", content)

        size = len(content) if is_size_known else None
        with io.open_input(f"{root}/data", size) as source:
            assert source.read(10) == content[:10]
            assert source.tell() == 10
            assert source.seek(-4, streams.SEEK_END) == len(content) - 4
            assert source.read(100) == content[-4:]
            assert source.read(1) == b""
            source.seek(MEGABYTE - 3)
            assert source.read(6) == content[MEGABYTE - 3 : MEGABYTE + 3]
            assert source.seek(5, streams.SEEK_CUR) == MEGABYTE + 8
            assert source.read(2 * MEGABYTE) == content[MEGABYTE + 8 :]
            source.seek(0)
            assert source.read() == content
            source.seek(len(content) + 10)
            assert source.read(1) == b""

    @pytest.mark.parametrize("name", ["a*", "[ab]", "a?", "{a}", "a b", "a%2F", "ä", "a#b", "~"])  # fmt: skip
    def test_special_characters_in_names_are_not_patterns(
        self, io: FileIO, root: str, name: str
    ) -> None:
        if name in self.refused_names:
            with pytest.raises(CorruptFileError, match="is refused"):
                io.write(f"{root}/t/{name}", b"")
            return
        for other_name in ("a", "b", "ab", name):
            io.write(f"{root}/t/{other_name}", other_name.encode())

        assert io.read_bytes(f"{root}/t/{name}") == name.encode()
        assert name in {info.name for info in io.list_dir(f"{root}/t")}
        io.delete(f"{root}/t/{name}")

        assert {info.name for info in io.list_dir(f"{root}/t")} == {"a", "b", "ab"}

    def test_removing_a_directory_keeps_directories_with_the_same_prefix(
        self, io: FileIO, root: str
    ) -> None:
        for path in ("t/a", "t/b/c", "t2/a", "other/t/a"):
            io.write(f"{root}/{path}", b"")

        io.delete_dir(f"{root}/t")

        assert self.is_gone(io, f"{root}/t")
        assert io.exists(f"{root}/t2/a")
        assert io.exists(f"{root}/other/t/a")

    def test_a_directory_is_created_and_renamed_or_refused(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/old/t/file", b"1")
        io.write(f"{root}/taken/file", b"2")
        if not io.capabilities.has_directories:
            with pytest.raises(UnsupportedError, match="no empty directories"):
                io.make_dir(f"{root}/empty")
            with pytest.raises(UnsupportedError, match="no atomic rename"):
                io.rename_dir(f"{root}/old", f"{root}/new")
        else:
            assert io.make_dir(f"{root}/a/empty")
            assert not io.make_dir(f"{root}/a/empty")
            assert not io.rename_dir(f"{root}/old", f"{root}/taken")
            assert io.rename_dir(f"{root}/old", f"{root}/b/new")
            assert not io.exists(f"{root}/old")
            assert io.read_bytes(f"{root}/b/new/t/file") == b"1"
            with pytest.raises(FileNotFoundError):
                io.rename_dir(f"{root}/old", f"{root}/c")
        assert io.read_bytes(f"{root}/taken/file") == b"2"

    def test_removing_an_empty_directory_refuses_directories_with_files(
        self, io: FileIO, root: str
    ) -> None:
        io.write(f"{root}/t/full/file", b"1")

        assert not io.delete_empty_dir(f"{root}/t/full")
        assert not io.delete_empty_dir(f"{root}/t/missing")
        assert not io.delete_empty_dir(f"{root}/t/full/file")
        assert io.read_bytes(f"{root}/t/full/file") == b"1"
        io.delete(f"{root}/t/full/file")
        io.delete_empty_dir(f"{root}/t/full")

        assert self.is_gone(io, f"{root}/t/full")

    def test_a_file_is_not_moved_to_an_existing_file(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/t/a", b"a")
        io.write(f"{root}/t/b", b"b")

        assert not io.move(f"{root}/t/a", f"{root}/t/b")
        assert io.move(f"{root}/t/a", f"{root}/u/v/a")

        assert (io.read_bytes(f"{root}/u/v/a"), io.read_bytes(f"{root}/t/b")) == (b"a", b"b")
        assert [info.name for info in io.list_dir(f"{root}/t")] == ["b"]
        with pytest.raises(FileNotFoundError):
            io.move(f"{root}/t/a", f"{root}/t/c")

    @pytest.mark.parametrize(
        "name", ["../secret", "a/../../secret", "..", "/etc/passwd", "a/./b", "a\0b", ""]
    )
    def test_a_name_with_parent_references_is_refused(
        self, io: FileIO, root: str, name: str
    ) -> None:
        io.write(f"{root}/secret", b"untouched")
        path = f"{root}/t/{name}"
        for use in (io.read_bytes, io.open_input, io.open_output, io.size, io.exists):
            with pytest.raises(CorruptFileError, match="is refused"):
                use(path)
        for remove in (io.delete, io.delete_dir):
            with pytest.raises(CorruptFileError, match="is refused"):
                remove(path)
        for put in (io.create, io.write):
            with pytest.raises(CorruptFileError, match="is refused"):
                put(path, b"overwritten")
        with pytest.raises(CorruptFileError, match="is refused"):
            list(io.list_dir(path))
        assert io.read_bytes(f"{root}/secret") == b"untouched"
        assert [info.name for info in io.list_dir(root)] == ["secret"]

    def test_a_path_of_another_store_is_refused(self, io: FileIO) -> None:
        for path in ("other://bucket/file", "relative/file"):
            with pytest.raises(UnsupportedError, match="different store"):
                io.read_bytes(path)

    @pytest.mark.parametrize("branch", ["../../../../etc", "a/../../../../x"])
    def test_branch_and_tag_names_cannot_leave_the_table(
        self, catalog: Catalog, branch: str
    ) -> None:
        table = catalog.create_table("db.t", "k BIGINT")
        with pytest.raises(CorruptFileError, match="is refused"):
            table.stores.snapshots.tag(f"a/{branch}")
        outside = Table("db.t", table.io, TablePaths(table.paths.root, f"a/{branch}"))
        with pytest.raises(CorruptFileError, match="is refused"):
            outside.stores.schemas.ids()

    def test_file_io_can_be_pickled(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/file", b"content")

        again: FileIO = pickle.loads(pickle.dumps(io))  # noqa: S301 - our own bytes

        assert again.read_bytes(f"{root}/file") == b"content"

    @pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
    def test_a_table_is_written_compacted_read_and_dropped(
        self, catalog: Catalog, kind: str
    ) -> None:
        options = {"bucket": "2", "deletion-vectors.enabled": "true", "file.format": kind}
        table = catalog.create_table(
            "db.t", "dt STRING, k BIGINT, v STRING", primary_key=["dt", "k"],
            partition_by=["dt"], options=options,
        )  # fmt: skip
        for version in "ab":
            rows = [(day, key, f"{version}{key}") for day in ("x/y", "z") for key in range(3)]
            table.upsert(table_of("dt k v", rows))
        table.delete(pa.table({"dt": ["z"], "k": [1]}))

        result = compact.compact(table, InProcessExecutor())

        assert result.level0_after == 0
        expected = [("x/y", 0, "b0"), ("x/y", 1, "b1"), ("x/y", 2, "b2"), ("z", 0, "b0"), ("z", 2, "b2")]  # fmt: skip
        assert rows_of(catalog.table("db.t")) == expected
        assert rows_of(catalog.table("db.t"), filter="dt = 'z' AND k > 0") == expected[-1:]
        assert (catalog.databases(), catalog.tables("db")) == (["db"], ["t"])
        catalog.drop_table("db.t")
        assert catalog.databases() in ([], ["db"])
        assert self.is_gone(get_file_system(catalog).io, table.paths.root)

    def test_a_table_is_expired_cleaned_and_checked(self, catalog: Catalog) -> None:
        # With precision 0, files need not be one second old.
        backend = get_file_system(catalog)
        if isinstance(backend.io, FsspecFileIO):
            backend.io = replace(backend.io, time_precision_seconds=0)
        table = catalog.create_table("db.t", "k BIGINT", primary_key=["k"], options={"bucket": "1"})
        for key in range(4):
            table.upsert(pa.table({"k": [key]}))
        compact.compact(table, InProcessExecutor(), strategy="full")
        orphan = f"{table.paths.root}/bucket-0/data-x.parquet"
        table.io.write(orphan, b"12345")
        quarantine = Quarantine(table.io, table.paths.root)

        assert expire_snapshots(table, retain_max=1).snapshots == 4
        now = int(time.time() * 1000)
        assert remove_orphan_files(table, older_than=now, quarantine=True).files == 1
        assert not table.io.exists(orphan)
        assert quarantine.restore() == 1
        assert rows_of(table) == [(0,), (1,), (2,), (3,)]
        now = int(time.time() * 1000)  # a moved object has a new modification time
        assert remove_orphan_files(table, older_than=now).bytes == 5

        assert not table.io.exists(orphan)
        assert table.stores.snapshots.ids() == [5]
        assert check(table, deep=True).findings == ()

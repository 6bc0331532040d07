"""HDFS: the contract of storage, races, lost answers, failover, viewfs, forks and kills on a cluster."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from support.commit_race import ROUNDS, append_concurrently, count_winners
from support.hdfs.cluster import MOUNT_TABLE, NAME_SERVICE, HdfsCluster
from support.hdfs.kill import run_killed_appends
from support.stalling_proxy import run_stalling_proxy
from support.storage_contract import StorageContract
from support.tables import rows_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import AccessDeniedError, CorruptFileError, StorageError, UnsupportedError
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import FileIO, hdfs_client, resolve_warehouse, store_operation
from paimon_orch.storage.hdfs import HdfsFileIO, _HdfsOutput
from paimon_orch.storage.hdfs_client import ConnectionLostError, HdfsClient

IMPATIENT = RetryPolicy(attempts=3, min_wait=0.01, max_wait=0.01)


@pytest.fixture
def root(hdfs_cluster: HdfsCluster) -> str:
    """Return a new directory."""
    return f"{hdfs_cluster.uri}/tests/{uuid4()}"


@pytest.fixture
def io(root: str) -> HdfsFileIO:
    io = resolve_warehouse(root)[0]
    assert isinstance(io, HdfsFileIO)
    return io


@pytest.fixture
def config_dir(hdfs_cluster: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of Hadoop's configuration, with the name service and a mount table."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return hdfs_cluster.write_configuration(tmp_path)


class TestHdfs(StorageContract):
    @pytest.fixture
    def root(self, hdfs_cluster: HdfsCluster) -> str:
        return f"{hdfs_cluster.uri}/tests/{uuid4()}"

    @pytest.fixture
    def io(self, root: str) -> FileIO:
        return resolve_warehouse(root)[0]

    @pytest.fixture
    def catalog(self, root: str) -> Catalog:
        return Catalog(root)

    def test_a_directory_is_not_a_file(self, io: FileIO, root: str) -> None:
        io.write(f"{root}/t/file", b"1")
        for read in (io.read_bytes, io.open_input):
            with pytest.raises(CorruptFileError, match="is a directory, but a file is expected"):
                read(f"{root}/t")
        with pytest.raises(IsADirectoryError):
            io.delete(f"{root}/t")
        assert not io.file_exists(f"{root}/t")


def test_a_table_below_a_mount_of_viewfs(hdfs_cluster: HdfsCluster, config_dir: Path) -> None:
    name = str(uuid4())
    root = f"viewfs://{MOUNT_TABLE}/mounted/{name}"
    catalog = Catalog(root)
    table = catalog.create_table("db.t", "k INT", primary_key=["k"], options={"bucket": "1"})
    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))
    compact.compact(table, InProcessExecutor(), strategy="full")
    catalog.rename_table("db.t", "db.u")

    for uri in (root, f"hdfs:///target/{name}", f"{hdfs_cluster.uri}/target/{name}"):
        assert Catalog(uri).tables("db") == ["u"]
        assert rows_of(Catalog(uri).table("db.u")) == [(1,)]
    with pytest.raises(UnsupportedError, match="is below no mount"):
        resolve_warehouse(f"viewfs://{MOUNT_TABLE}/elsewhere")[0].exists(
            root.replace("mounted", "x")
        )


@pytest.mark.timeout(400)
def test_exactly_one_of_many_processes_creates_a_file(root: str) -> None:
    assert count_winners(root, {}) == dict.fromkeys(range(ROUNDS), 1)


@pytest.mark.timeout(400)
def test_concurrent_commits_keep_all_rows(root: str) -> None:
    table = Catalog(root).create_table(
        "db.t", "process INT, number INT", options={"commit.max-retries": "50"}
    )

    written = append_concurrently(root, {}, processes=3, appends=4)

    assert rows_of(table) == sorted(written)
    assert table.stores.snapshots.ids() == list(range(1, len(written) + 1))


def test_new_files_have_the_permissions_and_replication_of_the_settings(root: str) -> None:
    options = {"fs.permissions.umask-mode": "007", "dfs.replication": "2"}
    io = resolve_warehouse(root, options)[0]
    assert isinstance(io, HdfsFileIO)
    io.make_dir(f"{root}/d")
    io.create(f"{root}/d/file", b"1")

    def find_info(name: str) -> Any:
        path = f"/{root.split('/', 3)[3]}/{name}"
        return io.client.call(path, lambda client: client.get_file_info(path))

    directory, file = find_info("d"), find_info("d/file")

    assert (directory.permission, file.permission, file.replication) == (0o770, 0o660, 2)


LOST = ConnectionLostError("the connection is lost")


@contextmanager
def losing_answers(
    patch: pytest.MonkeyPatch,
    *,
    of: str,
    is_executed: bool,
    times: int = 1,
    error: Exception = LOST,
) -> Iterator[list[str]]:
    """Let calls of a method of hdfs-native fail, before or after they are executed."""
    original, lost = HdfsClient.call, list[str]()

    class Losing:
        def __init__(self, client: Any) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._client, name)
            if name != of or len(lost) == times:
                return method
            lost.append(name)

            def lose(*arguments: Any) -> None:
                if is_executed:
                    method(*arguments)
                raise error

            return lose

    def call(self: HdfsClient, path: str, make: Callable[[Any], Any]) -> Any:
        return original(self, path, lambda client: make(Losing(client)))

    with patch.context() as context:
        context.setattr(HdfsClient, "call", call)
        yield lost


def names_in(io: FileIO, path: str) -> list[str]:
    return sorted(info.name for info in io.list_dir(path))


@pytest.mark.parametrize("error", [LOST, AccessDeniedError("the ticket has expired")])
def test_a_creation_with_a_lost_answer_has_succeeded(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with losing_answers(monkeypatch, of="rename", is_executed=True, error=error) as lost:
        assert io.create(f"{root}/file", b"mine")
    assert lost == ["rename"]
    assert names_in(io, root) == ["file"]


def test_a_creation_that_did_not_arrive_never_happens(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        losing_answers(monkeypatch, of="rename", is_executed=False),
        pytest.raises(StorageError, match=r"was not created: .*the connection is lost"),
    ):
        io.create(f"{root}/file", b"mine")
    assert names_in(io, root) == []
    assert io.create(f"{root}/file", b"mine")


def test_a_creation_is_unknown_if_the_ticket_expires_before_it_is_found_out(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = AccessDeniedError("the ticket has expired")
    with (
        losing_answers(monkeypatch, of="rename", is_executed=True),
        losing_answers(monkeypatch, of="delete", is_executed=False, error=expired),
        losing_answers(monkeypatch, of="read", is_executed=False, error=expired),
        pytest.raises(StorageError, match="it is unknown whether the file was created"),
    ):
        io.create(f"{root}/file", b"mine")


def test_a_write_is_not_acknowledged_if_only_its_deletion_is_executed(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    io.write(f"{root}/file", b"1")
    with (
        losing_answers(monkeypatch, of="rename", is_executed=False),
        losing_answers(monkeypatch, of="delete", is_executed=True) as deletions,
        pytest.raises(StorageError, match="the connection is lost"),
    ):
        io.write(f"{root}/file", b"2")
    assert deletions == ["delete"]
    assert io.read_bytes(f"{root}/file") == b"1"


def test_a_request_that_arrives_late_does_not_empty_a_complete_file(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = list[Callable[[Any], Any]]()

    class Delaying:
        def __init__(self, client: Any) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

        def create(self, *arguments: Any) -> Any:
            if late:
                return self._client.create(*arguments)
            late.append(lambda client: client.create(*arguments))
            raise LOST

    call = HdfsClient.call
    with monkeypatch.context() as patch:
        patch.setattr(
            HdfsClient,
            "call",
            lambda self, path, make: call(self, path, lambda c: make(Delaying(c))),
        )
        with io.open_output(f"{root}/data") as sink:
            sink.write(b"rows")
    [request] = late

    with pytest.raises(FileExistsError):
        io.client.call(f"{root}/data", request)

    assert io.read_bytes(f"{root}/data") == b"rows"


def test_a_creation_is_unknown_if_nothing_can_be_found_out(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("no connection")

    with monkeypatch.context() as context:
        for name in ("_rename", "_delete_name", "read_bytes"):
            context.setattr(HdfsFileIO, name, fail)
        with pytest.raises(StorageError, match="it is unknown whether the file was created"):
            io.create(f"{root}/file", b"mine")


@pytest.mark.parametrize("is_executed", [False, True])
@pytest.mark.parametrize("method", ["create", "delete", "mkdirs", "read", "rename"])
def test_other_calls_survive_a_lost_answer(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch, method: str, is_executed: bool
) -> None:
    io.write(f"{root}/d/file", b"1")
    with losing_answers(monkeypatch, of=method, is_executed=is_executed) as lost:
        if method == "delete":
            io.delete(f"{root}/d/file")
            assert not io.exists(f"{root}/d/file")
        elif method == "mkdirs":
            assert io.make_dir(f"{root}/e")
        elif method == "read":
            assert io.read_bytes(f"{root}/d/file") == b"1"
        elif method == "create" or is_executed:
            io.write(f"{root}/d/file", b"2")
            assert io.read_bytes(f"{root}/d/file") == b"2"
        else:
            with pytest.raises(StorageError, match="the connection is lost"):
                io.write(f"{root}/d/file", b"2")
            assert io.read_bytes(f"{root}/d/file") == b"1"
    assert lost == [method]
    assert not [name for name in names_in(io, root) if name.endswith(".tmp")]
    assert not [name for name in names_in(io, f"{root}/d") if name.endswith(".tmp")]


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_rename_of_a_directory_with_a_lost_answer(
    io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch, is_executed: bool
) -> None:
    io.write(f"{root}/old/file", b"1")
    with losing_answers(monkeypatch, of="rename", is_executed=is_executed):
        if is_executed:
            assert io.rename_dir(f"{root}/old", f"{root}/new")
        else:
            with pytest.raises(StorageError, match="the connection is lost"):
                io.rename_dir(f"{root}/old", f"{root}/new")
    assert io.exists(f"{root}/new") is is_executed
    assert io.exists(f"{root}/old") is not is_executed


def test_a_writer_goes_on_after_a_failover(hdfs_cluster: HdfsCluster, config_dir: Path) -> None:
    root = f"hdfs:///tests/{uuid4()}"
    table = Catalog(root).create_table("db.t", "k INT")
    assert table.paths.root.startswith(f"hdfs://{NAME_SERVICE}/tests/")
    table.append(pa.table({"k": pa.array([1], pa.int32())}))

    hdfs_cluster.send("standby", 0)
    takes_over = threading.Timer(1.5, lambda: hdfs_cluster.send("active", 1))
    takes_over.start()
    try:
        table.append(pa.table({"k": pa.array([2], pa.int32())}))
        assert rows_of(table) == [(1,), (2,)]
    finally:
        takes_over.join()
        hdfs_cluster.send("standby", 1)
        hdfs_cluster.send("active", 0)
    table.append(pa.table({"k": pa.array([3], pa.int32())}))
    assert rows_of(table) == [(1,), (2,), (3,)]


def test_a_write_waits_for_the_end_of_safe_mode(
    hdfs_cluster: HdfsCluster, io: HdfsFileIO, root: str
) -> None:
    io.write(f"{root}/file", b"1")
    hdfs_cluster.send("safe", 0)
    leaves = threading.Timer(0.7, lambda: hdfs_cluster.send("unsafe", 0))
    leaves.start()
    try:
        assert io.read_bytes(f"{root}/file") == b"1"
        assert io.create(f"{root}/other", b"2")
    finally:
        leaves.join()


def test_safe_mode_that_does_not_end_is_an_error(
    hdfs_cluster: HdfsCluster, io: HdfsFileIO, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    io.write(f"{root}/file", b"1")
    monkeypatch.setattr("paimon_orch.storage.hdfs.STORE_CALL", IMPATIENT)
    hdfs_cluster.send("safe", 0)
    try:
        with pytest.raises(StorageError, match="cannot be written: SafeModeException") as caught:
            io.create(f"{root}/other", b"2")
    finally:
        hdfs_cluster.send("unsafe", 0)
    assert "\n" not in str(caught.value), "Java's stack trace is left out"


def test_a_name_node_that_does_not_answer_ends_in_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("hdfs_native")
    monkeypatch.setattr("paimon_orch.storage.hdfs.STORE_CALL", IMPATIENT)
    monkeypatch.setattr(hdfs_client, "CALL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        root = f"hdfs://127.0.0.1:{server.getsockname()[1]}/wh"
        with pytest.raises(StorageError, match=r"no answer within 0\.2 seconds"):
            resolve_warehouse(root)[0].exists(root)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
def test_an_unreachable_name_node_ends_in_an_error(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    pytest.importorskip("hdfs_native")
    monkeypatch.setattr("paimon_orch.storage.hdfs.STORE_CALL", IMPATIENT)
    root = f"hdfs://{host}/wh"
    with pytest.raises(
        StorageError, match=r"Connection refused|is a name service, set HADOOP_CONF"
    ):
        resolve_warehouse(root)[0].exists(root)


_AS_ANOTHER_USER = """
import sys
from paimon_orch.errors import AccessDeniedError, InputError, StorageError
from paimon_orch.storage import resolve_warehouse
root = sys.argv[1]
io = resolve_warehouse(root, {"user": "guest"})[0]
print(io.read_bytes(f"{root}/file"))
try:
    io.create(f"{root}/other", b"")
except StorageError as error:
    print(error)
try:
    resolve_warehouse(root, {"user": "another"})[0].exists(root)
except InputError as error:
    print(error)
"""


def test_the_user_is_that_of_the_option(io: HdfsFileIO, root: str) -> None:
    io.create(f"{root}/file", b"1")
    environment = {name: text for name, text in os.environ.items() if name != "HADOOP_USER_NAME"}

    command = [sys.executable, "-c", _AS_ANOTHER_USER, root]
    answer = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=100
    )

    content, refusal, other_user = answer.stdout.splitlines()
    assert content == "b'1'"
    assert "Permission denied: user=guest, access=WRITE" in refusal
    assert (
        "is used by the user another, but HADOOP_USER_NAME is guest in this process" in other_user
    )


def test_a_cluster_without_kerberos_is_not_used_with_it(root: str) -> None:
    """The cluster accepts it, so this shows that the setting arrives at the client."""
    options = {"hadoop.security.authentication": "kerberos"}
    io = resolve_warehouse(root, options)[0]
    assert isinstance(io, HdfsFileIO)
    assert io.client.settings.requires_kerberos


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (
            {},
            (
                'FatalRPCError("org.apache.hadoop.security.AccessControlException", '
                '"SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]\\n\\tat x")'
            ),
            "demands Kerberos.*hadoop.security.authentication is not set to kerberos",
        ),
        (
            {"hadoop.security.authentication": "kerberos"},
            r'GSSAPIError(GssMajorCodes { raw: "0x0" }, 25, "Cannot find KDC for realm \"LAKE\"")',
            'cannot be used with Kerberos: Cannot find KDC for realm "LAKE"; /etc/krb5.conf',
        ),
        (
            {"hadoop.security.authentication": "kerberos"},
            "NoSASLMechanism",
            "cannot be used with Kerberos: NoSASLMechanism",
        ),
    ],
)
def test_an_error_of_kerberos_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], text: str, message: str
) -> None:
    pytest.importorskip("hdfs_native")

    def fail(_: str) -> None:
        raise RuntimeError(text)

    client = type("Client", (), {"get_file_info": staticmethod(fail)})()
    monkeypatch.setattr(HdfsClient, "_open", lambda _: client)
    root = f"hdfs://{uuid4()}/wh"

    with pytest.raises(AccessDeniedError, match=message):
        resolve_warehouse(root, options)[0].exists(root)


_END_DURING_A_CALL = """
import time
from paimon_orch.storage.hdfs_client import _Calls
def call():
    time.sleep(0.1)
    print("returned", flush=True)
_Calls.start(call)
"""


def test_a_process_ends_after_calls_that_are_about_to_return() -> None:
    """Python would end their threads, and with them the process, by SIGABRT after its work."""
    command = [sys.executable, "-c", _END_DURING_A_CALL]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "returned\n"


# The answers to most calls are pending when the connection breaks, while others are being sent.
_LOOK_UP_UNTIL_THE_INPUT_ENDS = """
import sys, threading
from paimon_orch.errors import StorageError
from paimon_orch.retry_policy import SINGLE_ATTEMPT
from paimon_orch.storage import hdfs, resolve_warehouse
hdfs.STORE_CALL = SINGLE_ATTEMPT
io, root = resolve_warehouse(sys.argv[1])
ends = threading.Event()
def look_up():
    while not ends.is_set():
        try:
            io.exists(root)
        except StorageError:
            pass
threads = [threading.Thread(target=look_up) for _ in range(16)]
for thread in threads:
    thread.start()
print(flush=True)
sys.stdin.read()
ends.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.timeout(200)
def test_connections_that_break_during_calls_do_not_stop_the_process(
    hdfs_cluster: HdfsCluster,
) -> None:
    with (
        run_stalling_proxy(hdfs_cluster.ports[0]) as proxy,
        subprocess.Popen(
            [sys.executable, "-c", _LOOK_UP_UNTIL_THE_INPUT_ENDS, f"hdfs://{proxy.address}/tests"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            for _ in range(50):
                time.sleep(0.1)
                proxy.cut()
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


class SilentClient:
    """A client of hdfs-native that does not answer some calls before the end of a test."""

    def __init__(self, *silent: str) -> None:
        self.silent, self.calls, self.ends = set(silent), list[str](), threading.Event()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            self.calls.append(name)
            if name in self.silent:
                self.ends.wait(60)
            return self

        return call


@pytest.fixture
def impatient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the calls of an operation have 0.6 seconds, and those after a failure 0.1."""
    pytest.importorskip("hdfs_native")
    monkeypatch.setattr(hdfs_client, "CALL_SECONDS", 0.6)
    monkeypatch.setattr(store_operation, "STORE_RETRY_SECONDS", 0.1)
    monkeypatch.setattr("paimon_orch.storage.hdfs.STORE_CALL", RetryPolicy(attempts=9, timeout=0.1))


@contextmanager
def using(client: SilentClient, patch: pytest.MonkeyPatch) -> Iterator[HdfsFileIO]:
    patch.setattr(HdfsClient, "_open", lambda _: client)
    io = resolve_warehouse(f"hdfs://{uuid4()}/wh")[0]
    assert isinstance(io, HdfsFileIO)
    try:
        yield io
    finally:
        client.ends.set()


def test_the_calls_of_a_creation_without_answers_share_one_time(
    monkeypatch: pytest.MonkeyPatch, impatient_calls: None
) -> None:
    client = SilentClient("rename", "delete", "read")
    with using(client, monkeypatch) as io:
        path = f"{io.client.settings.root}/wh/snapshot-1"
        with pytest.raises(
            StorageError, match=r"unknown whether .*no answer within 0\.[3-6]\d* seconds"
        ):
            io.create(path, b"mine")
    assert client.calls == ["create", "write", "close", "rename", "delete", "read"]


@pytest.mark.parametrize("silent", ["write", "close"])
def test_a_file_that_cannot_be_written_is_not_written_on(
    monkeypatch: pytest.MonkeyPatch, impatient_calls: None, silent: str
) -> None:
    client = SilentClient(silent)
    with using(client, monkeypatch) as io:
        path = f"{io.client.settings.root}/wh/data"
        with (
            pytest.raises(StorageError, match=r"data cannot be written: no answer within"),
            io.open_output(path) as sink,
        ):
            sink.write(bytes(3 << 20))
    assert client.calls.count(silent) == 1


def test_a_panic_of_the_client_is_an_error_after_which_the_call_is_repeated(
    monkeypatch: pytest.MonkeyPatch, impatient_calls: None
) -> None:
    class Panic(BaseException):
        pass

    def panic(_: str) -> None:
        raise Panic("removal index (is 2) should be < len (is 2)")

    client = SilentClient()
    monkeypatch.setattr(client, "get_file_info", panic, raising=False)
    with (
        using(client, monkeypatch) as io,
        pytest.raises(StorageError, match=r"cannot be looked up: removal index"),
    ):
        io.exists(f"{io.client.settings.root}/wh")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_gets_an_error_and_does_not_hang(io: HdfsFileIO, root: str) -> None:
    io.write(f"{root}/file", b"1")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def read() -> None:
        try:
            io.read_bytes(f"{root}/file")
        except UnsupportedError as error:
            answers.put(str(error))

    child = context.Process(target=read)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork() warns of threads
        child.start()
    assert f"was forked from process {os.getpid()}" in answers.get(timeout=60)
    child.join(60)


@pytest.mark.timeout(400)
def test_a_killed_append_is_visible_or_not(root: str) -> None:
    table = Catalog(root).create_table("db.t", "number BIGINT")
    expected, outcomes = list[tuple[int]](), list[bool]()
    with run_killed_appends(root) as append:
        for moment in itertools.count():
            is_killed = append(moment)
            rows = rows_of(table)
            assert rows in (expected, [*expected, (moment,)])
            outcomes.append(rows != expected)
            expected = rows
            if not is_killed:
                break

    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (False, True)
    assert len(outcomes) > 8
    remove_orphan_files(table, older_than=int(time.time() * 1000) + 1)
    assert check(table, deep=True).findings == ()


def test_large_data_is_sent_in_parts_of_eight_mebibytes() -> None:
    parts = list[bytes]()
    client: Any = SimpleNamespace(call=lambda _path, make: make(None))
    writer = SimpleNamespace(write=parts.append, close=lambda: None)
    output: Any = _HdfsOutput(client, "/f", writer)
    with BufferedWriter(output, 1 << 20) as sink:
        sink.write(bytes(17 << 20))

    assert [len(part) for part in parts] == [8 << 20, 8 << 20, 1 << 20]

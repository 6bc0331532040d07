"""Settings of HDFS: Hadoop's files, name services, mounts, options; none of the tests has a cluster."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from support.hdfs.cluster import write_settings

from paimon_orch.catalog.store_options import open_location
from paimon_orch.errors import (
    CorruptFileError,
    FileNotCreatedError,
    InputError,
    MissingPackageError,
    UnsupportedError,
    is_temporary,
)
from paimon_orch.retry_policy import RetryPolicy
from paimon_orch.storage import ExclusiveCreation, FileIO, hdfs, resolve_warehouse
from paimon_orch.storage.hdfs import HdfsFileIO
from paimon_orch.storage.hdfs_client import HdfsClient, RefusedForNowError
from paimon_orch.storage.hdfs_settings import HdfsSettings

pytest.importorskip("hdfs_native")

SERVICE = {
    "dfs.ha.namenodes.lake": "nn1,nn2",
    "dfs.namenode.rpc-address.lake.nn1": "one.example:8020",
    "dfs.namenode.rpc-address.lake.nn2": "two.example:8020",
}
MOUNTS = "fs.viewfs.mounttable.all"


@pytest.fixture
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory of Hadoop's configuration."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    return tmp_path


def open_io(uri: str, **options: Any) -> HdfsFileIO:
    io = resolve_warehouse(uri, options)[0]
    assert isinstance(io, HdfsFileIO)
    return io


def test_the_files_name_the_default_store(config_dir: Path) -> None:
    write_settings(config_dir / "core-site.xml", {"fs.defaultFS": "hdfs://lake"})
    write_settings(config_dir / "hdfs-site.xml", SERVICE)

    io, root = resolve_warehouse("hdfs:///wh")

    assert root == "hdfs://lake/wh"
    assert isinstance(io, HdfsFileIO)
    settings = io.client.settings
    assert settings.client_url == "hdfs://lake"
    assert settings.count_name_nodes() == 2


def test_settings_of_other_stores_are_not_kept(config_dir: Path) -> None:
    """They are sent to Spark tasks."""
    write_settings(config_dir / "core-site.xml", {"fs.s3a.secret.key": "hidden", "dfs.x": "1"})

    assert dict(open_io("hdfs://host/wh").client.settings.settings) == {"dfs.x": "1"}


def test_a_host_has_the_default_port(config_dir: Path) -> None:
    io, root = resolve_warehouse("hdfs://host/wh/")

    assert root == "hdfs://host/wh"
    assert isinstance(io, HdfsFileIO)
    assert io.client.settings.client_url == "hdfs://host:8020"
    for path in ("hdfs://host:8020/wh/t", "hdfs:///wh/t", "hdfs://host/wh/t"):
        io.check_readable(path)
    for path in ("hdfs://host:9000/wh/t", "hdfs://other/wh/t", "viewfs://host/wh/t", "/wh/t"):
        with pytest.raises(UnsupportedError, match="different store"):
            io.check_readable(path)


def test_options_are_settings_of_hadoop(config_dir: Path) -> None:
    write_settings(config_dir / "hdfs-site.xml", {"dfs.replication": "3"})
    options = {"dfs.replication": "1", "dfs.client.use.datanode.hostname": True}

    settings = open_io("hdfs://host/wh", **options).client.settings.settings

    assert settings == {"dfs.replication": "1", "dfs.client.use.datanode.hostname": "true"}


def test_the_mounts_of_viewfs_limit_the_paths(config_dir: Path) -> None:
    links = {f"{MOUNTS}.link./a": "hdfs://lake/x", f"{MOUNTS}.link./b": "hdfs://host/y"}
    write_settings(config_dir / "core-site.xml", links)
    write_settings(config_dir / "hdfs-site.xml", SERVICE)

    io = open_io("viewfs://all/b/wh")

    settings = io.client.settings.build_client_settings("/b/wh")
    assert settings[f"{MOUNTS}.link./a"] == "hdfs://lake/x"
    assert settings[f"{MOUNTS}.link./b"] == "hdfs://host:8020/y"
    assert settings[f"{MOUNTS}.linkFallback"] == "hdfs://host:8020/y"
    io.check_readable("viewfs://all/a/t")
    for path in ("viewfs://all/c/t", "viewfs://all/ab"):
        with pytest.raises(UnsupportedError, match="is below no mount of viewfs://all"):
            io.check_readable(path)


@pytest.mark.parametrize(
    ("text", "umask"),
    [("022", 0o022), ("27", 0o027), ("u=rwx,g=rx,o=", 0o027), ("a=rwx", 0), ("ug=rwx,o=r", 0o003)],
)
def test_new_files_have_the_permissions_of_the_umask(
    config_dir: Path, text: str, umask: int
) -> None:
    settings = HdfsSettings.read("hdfs://host/wh", {"fs.permissions.umask-mode": text})
    assert settings.umask == umask


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("hdfs:///wh", {}, r"has no host, and fs\.defaultFS is not set; set HADOOP_CONF_DIR"),
        ("viewfs://all/wh", {}, r"no setting fs\.viewfs\.mounttable\.all\.link\.<path>"),
        ("hdfs://host/wh", {"key": "x"}, "HDFS has no storage option key; it has config_dir, user"),
        ("hdfs://host/wh", {"config_dir": "/nowhere"}, "is not a directory: /nowhere"),
        ("hdfs://host/", {}, "must look like hdfs://host/path"),
        ("hdfs:wh", {}, "has no host"),
        ("hdfs://user@host/wh", {}, "neither a user nor parameters"),
    ],
)
def test_an_invalid_warehouse_is_refused(
    config_dir: Path, uri: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resolve_warehouse(uri, options)


def test_a_damaged_file_of_hadoop_is_named(config_dir: Path) -> None:
    (config_dir / "core-site.xml").write_text("<configuration>")
    with pytest.raises(InputError, match=r"core-site\.xml cannot be read"):
        resolve_warehouse("hdfs://host/wh")


def test_a_path_above_the_warehouse_is_refused(config_dir: Path) -> None:
    with pytest.raises(CorruptFileError, match="is refused"):
        resolve_warehouse("hdfs://host/a/../b")


def test_a_missing_package_is_named_with_its_extra(
    config_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.setattr("paimon_orch.optional_packages.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"hdfs-native.*'paimon-orch\[hdfs\]'"):
        resolve_warehouse("hdfs://host/wh")


def test_hdfs_creates_by_a_rename(config_dir: Path) -> None:
    io: FileIO = open_io("hdfs://host/wh")

    assert io.capabilities.exclusive_creation is ExclusiveCreation.RENAME
    assert io.capabilities.has_directories
    assert io.capabilities.has_atomic_rename
    assert not io.capabilities.is_local


@pytest.mark.parametrize("location", ["hdfs://host/wh/db.db/t", "HDFS://host/wh"])
def test_catalogs_can_name_locations_in_hdfs(config_dir: Path, location: str) -> None:
    from paimon_orch.catalog.store_options import open_served_location

    io, _ = open_served_location({}, location)
    assert isinstance(io, HdfsFileIO)
    assert open_location({}, "hdfs://host/wh")[1] == "hdfs://host/wh"


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ({}, None, "driver"),
        ({}, "set", "set"),
        ({"user": "guest"}, None, "guest"),
        ({"user": "task"}, None, None),
        ({"user": "guest"}, "set", "refused"),
    ],
)
def test_a_task_is_the_user_of_the_driver(
    config_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    variable: str | None,
    expected: str | None,
) -> None:
    monkeypatch.setattr("paimon_orch.storage.hdfs_settings.find_process_user", lambda: "driver")
    io = pickle.loads(pickle.dumps(open_io("hdfs://host/wh", **options)))  # noqa: S301
    monkeypatch.setattr("paimon_orch.storage.hdfs_client.find_process_user", lambda: "task")
    monkeypatch.setenv("HADOOP_USER_NAME", variable or "")
    if variable is None:
        monkeypatch.delenv("HADOOP_USER_NAME")

    if expected == "refused":
        with pytest.raises(InputError, match="a process is one user of HDFS"):
            io.client._set_user()
        return
    io.client._set_user()
    assert os.environ.get("HADOOP_USER_NAME") == expected


def test_a_creation_that_sent_no_rename_is_no_unknown_outcome(
    config_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RefusedForNowError("StandbyException")

    monkeypatch.setattr(HdfsClient, "call", refuse)
    monkeypatch.setattr(hdfs, "STORE_CALL", RetryPolicy(attempts=2))
    io = open_io("hdfs://127.0.0.1:1/wh")

    with pytest.raises(FileNotCreatedError, match=r"was not created: .*StandbyException") as caught:
        io.create("hdfs://127.0.0.1:1/wh/snapshot-1", b"mine")

    assert is_temporary(caught.value)

"""Stores with a scheme of their own that speak the protocol of S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.tables import rows_of, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.storage import resolve_warehouse
from paimon_orch.storage.s3_compatible import add_compatible_defaults

if TYPE_CHECKING:
    from storage.conftest import Bucket

CHECKSUMS = {
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


@pytest.mark.parametrize(
    ("scheme", "endpoint", "url", "region"),
    [
        ("oss", "oss-cn-hangzhou.aliyuncs.com", "https://oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        (
            "oss",
            "https://s3.oss-ap-southeast-1-internal.aliyuncs.com",
            "https://s3.oss-ap-southeast-1-internal.aliyuncs.com",
            "ap-southeast-1",
        ),
        ("obs", "obs.cn-north-4.myhuaweicloud.com", "https://obs.cn-north-4.myhuaweicloud.com", "cn-north-4"),
        ("cosn", "cos.ap-beijing.myqcloud.com", "https://cos.ap-beijing.myqcloud.com", "ap-beijing"),
    ],
)  # fmt: skip
def test_public_services_have_buckets_in_the_host_and_a_region(
    scheme: str, endpoint: str, url: str, region: str
) -> None:
    assert add_compatible_defaults(scheme, {"endpoint": endpoint, "key": "k"}) == {
        "key": "k",
        "endpoint_url": url,
        "client_kwargs": {"region_name": region},
        "config_kwargs": {**CHECKSUMS, "s3": {"addressing_style": "virtual"}},
    }


def test_options_of_the_user_take_precedence() -> None:
    options = {
        "endpoint_url": "https://oss-cn-hangzhou.aliyuncs.com",
        "client_kwargs": {"region_name": "mine"},
        "config_kwargs": {"s3": {"addressing_style": "path"}},
    }
    resolved = add_compatible_defaults("oss", options)

    assert resolved["client_kwargs"] == {"region_name": "mine"}
    assert resolved["config_kwargs"] == {**CHECKSUMS, "s3": {"addressing_style": "path"}}


def test_other_servers_only_get_the_defaults_of_checksums() -> None:
    options = {"endpoint_url": "http://127.0.0.1:9000"}
    assert add_compatible_defaults("obs", options) == {**options, "config_kwargs": CHECKSUMS}
    for scheme in ("s3", "s3a", "s3n"):
        assert add_compatible_defaults(scheme, options) == options


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3n", "oss", "obs", "cosn"])
def test_a_table_is_written_compacted_and_dropped(s3: Bucket, scheme: str) -> None:
    root, options = s3.root.replace("s3://", f"{scheme}://"), dict(s3.options)
    if scheme != "s3n":
        options["endpoint"] = options.pop("endpoint_url")
    catalog = Catalog(root, **options)
    table = catalog.create_table(
        "db.t", "k BIGINT, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    for value in "ab":
        table.upsert(table_of("k v", [(1, value)]))
    compact(table, InProcessExecutor(), strategy="full")

    assert table.paths.root == f"{root}/db.db/t"
    assert (catalog.tables("db"), rows_of(table)) == (["t"], [(1, "b")])
    assert rows_of(Catalog(s3.root, **s3.options).table("db.t")) == [(1, "b")]
    assert [file.path for file in table.io.list_dir(f"{root}/db.db/t/schema")] == [
        f"{root}/db.db/t/schema/schema-0"
    ]
    catalog.drop_table("db.t")
    assert resolve_warehouse(root, options)[0].list_tree(root) == []


def test_paths_of_other_stores_are_refused() -> None:
    stores: list[tuple[str, list[str]]] = [("s3n", ["s3", "s3a"]), ("oss", []), ("obs", [])]
    for scheme, same in stores:
        io = resolve_warehouse(f"{scheme}://bucket/wh")[0]
        for other in ("s3", "s3a", "s3n", "oss", "obs", "cosn", "gs", "hdfs"):
            path = f"{other}://bucket/wh/file"
            if other in (scheme, *same):
                io.check_readable(path)
                continue
            with pytest.raises(UnsupportedError, match="different store"):
                io.check_readable(path)


def _refuse(*_: Any, **__: Any) -> None:
    raise OSError(
        "An error occurred (NotImplemented) when calling the PutObject operation: A header you "
        "provided implies functionality that is not implemented."
    )


@pytest.mark.slow
def test_a_store_without_conditions_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")
    monkeypatch.setattr(s3fs.S3FileSystem, "pipe_file", _refuse)
    root = "oss://bucket/wh"
    io = resolve_warehouse(root, {"key": "k", "secret": "s"})[0]
    with pytest.raises(
        UnsupportedError, match=r"the store at oss://bucket does not implement the condition"
    ):
        io.create(f"{root}/file", b"")

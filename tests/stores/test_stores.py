"""A new store, or a new dialect of S3, is one file with a declaration; code asks it by scheme."""

from __future__ import annotations

import ast
import pickle
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.syntax_trees import nodes_by_module
from support.tables import rows_of, table_of

import paimon_orch.stores
from paimon_orch import safe_text
from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.catalog.rest.served_options import select_served_options
from paimon_orch.catalog.store_options import translate_store_options
from paimon_orch.errors import InputError, NotAllowedError
from paimon_orch.format.external_paths import parse_store_scheme
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.storage import FsspecFileIO, resolve_warehouse
from paimon_orch.storage.error_advice import describe_store_error
from paimon_orch.storage.object_store_options import StorageOptions
from paimon_orch.storage.s3_compatible import add_compatible_defaults
from paimon_orch.stores import find_store, list_schemes, list_stores

ROOT = Path(__file__).parents[2]
TOY = """
from paimon_orch.stores import ExclusiveCreation, Store, StoreCapabilities

STORE = Store(
    schemes=("toy", "toys"),
    opener="paimon_orch.stores.toy:open_toy",
    package=None,
    extra=None,
    fsspec_protocol="toy",
    capabilities=StoreCapabilities(exclusive_creation=ExclusiveCreation.ONE_PROCESS),
    option_prefixes=("toy.",),
    options={"box": "box", "shelf": "place.shelf", "server": "server"},
    endpoints=("server",),
    public_options=("box",),
    advice=(("ToyError", "wind it up"),),
)

class ToyError(OSError):
    pass

def open_toy(uri, options, credentials):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem
    from paimon_orch.storage.object_store import open_object_store

    class Toy(MemoryFileSystem):
        protocol = ("toy", "toys")

        def __init__(self, box=None, place=None, **more):
            super().__init__(**more)
            if (box, place) != ("red", {"shelf": "top-shelf"}):
                raise ToyError(f"no toy in {box} on {place}")

        @classmethod
        def _strip_protocol(cls, path):
            return MemoryFileSystem._strip_protocol("memory://" + path.rpartition("://")[2])

    for scheme in STORE.schemes:
        fsspec.register_implementation(scheme, Toy, clobber=True)
    return open_object_store(uri, options, credentials)
"""
DIALECT = """
from paimon_orch.stores.s3 import build_s3

STORE = build_s3(
    schemes=("tos",),
    option_prefixes=("fs.tos.",),
    options={"access.key.id": "key", "endpoint": "endpoint"},
    public_host="tos-s3-{region}.volces.com",
)
"""
Declare = Callable[[str, str], None]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Add files to the package of the declarations."""
    monkeypatch.setattr(
        paimon_orch.stores, "__path__", [*paimon_orch.stores.__path__, str(tmp_path)]
    )

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        list_stores.cache_clear()
        monkeypatch.delitem(sys.modules, f"paimon_orch.stores.{name}", raising=False)

    yield write
    list_stores.cache_clear()


@pytest.mark.parametrize("scheme", ["toy", "toys"])
def test_a_store_that_is_declared_in_one_file_has_tables(declare: Declare, scheme: str) -> None:
    declare("toy", TOY)
    options = {"metastore": "filesystem", "toy.box": "red", "toy.shelf": "top-shelf"}
    catalog = open_catalog(f"{scheme}://bucket/wh", catalog_options=options)
    table = catalog.create_table(
        "db.t", "k BIGINT, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    for value in "ab":
        table.upsert(table_of("k v", [(1, value)]))
    compact(table, InProcessExecutor(), strategy="full")

    assert rows_of(table) == [(1, "b")]
    assert table.paths.root == f"{scheme}://bucket/wh/db.db/t"
    assert table.io.capabilities == find_store("toy").capabilities  # type: ignore[union-attr]
    in_a_task = pickle.loads(pickle.dumps(table.io))  # noqa: S301 - our own
    assert in_a_task.file_exists(f"{scheme}://bucket/wh/db.db/t/schema/schema-0")
    catalog.drop_table("db.t")


def test_the_options_and_errors_of_a_declared_store(declare: Declare) -> None:
    options = {"metastore": "filesystem", "toy.shelf": "kept-secret"}
    with pytest.raises(InputError, match=r"has no option 'toy\.shelf'"):
        open_catalog("toy://bucket/wh", catalog_options=options)
    declare("toy", TOY)
    catalog = open_catalog("toy://bucket/wh", catalog_options=options)
    with pytest.raises(InputError, match=r"no toy in None on .*wind it up") as caught:
        catalog.create_table("db.t", "k INT")

    assert "kept-secret" not in str(caught.value)
    assert safe_text.mask_secrets("kept-secret") == "***"
    assert describe_store_error(OSError("x")) == "OSError: x"
    assert StorageOptions.of({"box": "red", "pin": "1234"}).redact("red 1234") == "red ***"
    assert parse_store_scheme("toys://bucket/t") == parse_store_scheme("toy://bucket/t") == "toy"


def test_an_address_from_a_server_must_be_allowed_for_a_declared_store(declare: Declare) -> None:
    served = {"toy.server": "http://elsewhere", "toy.box": "red", "toy.other": "1"}
    assert select_served_options(served, {}, "http://here") == {}
    declare("toy", TOY)
    with pytest.raises(NotAllowedError, match="names the endpoint elsewhere"):
        select_served_options(served, {}, "http://here")
    own = {"toy.server": "http://here"}
    assert select_served_options(served, own, "http://here") == {"toy.box": "red"}


def test_a_dialect_of_s3_is_one_declaration(declare: Declare) -> None:
    pytest.importorskip("s3fs")
    declare("tos", DIALECT)
    endpoint = "tos-s3-cn-beijing.volces.com"
    options = {"metastore": "filesystem", "fs.tos.access-key-id": "k", "fs.tos.endpoint": endpoint}
    open_catalog("tos://bucket/wh", catalog_options=options)
    io = resolve_warehouse("tos://bucket/wh", translate_store_options(options, "tos://bucket"))[0]

    assert isinstance(io, FsspecFileIO)
    assert io.capabilities.has_bulk_delete
    assert io._fs.endpoint_url == f"https://{endpoint}"
    defaults = add_compatible_defaults("tos", {"endpoint": endpoint})
    assert defaults["client_kwargs"] == {"region_name": "cn-beijing"}
    assert "tos" in list_schemes()
    with pytest.raises(InputError, match="tos://"):
        resolve_warehouse("unknown://bucket/wh")


def test_each_package_is_that_of_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for store in list_stores():
        if store.extra is not None:
            assert re.match(r"[\w-]+", extras[store.extra][0])[0] == store.package  # type: ignore[index]


def test_the_page_about_storage_lists_each_store() -> None:
    page = (ROOT / "docs/storage.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    listed = {
        tuple(re.findall(r"`(\w+)://", uris)): (package, means) for uris, package, means in rows
    }
    of_page = {scheme: cells for schemes, cells in listed.items() for scheme in schemes}
    for store in list_stores():
        first = store.first_trusted_version
        for scheme in store.schemes:
            package, means = of_page.pop(scheme)
            assert (store.package or "fsspec") in package
            assert first is None or f">= {first[0]}.{first[1]}" in package
            if str(store.capabilities.exclusive_creation) != "conditional put":
                assert str(store.capabilities.exclusive_creation) in means
    assert of_page == {}


@pytest.mark.xdist_group("syntax")
def test_no_other_code_names_a_scheme() -> None:
    """Except that of HDFS, and that which looks for secrets in URIs of any program."""
    schemes = set(list_schemes())  # without `memory`, which is a word, too
    named = {
        (str(module), node.value)
        for module, nodes in nodes_by_module().items()
        for node in nodes
        if isinstance(node, ast.Constant) and node.value in schemes
        if not module.is_relative_to("stores")
    }
    assert named == {
        ("safe_text.py", "abfs"),
        ("safe_text.py", "abfss"),
        ("storage/hdfs_settings.py", "viewfs"),
        ("storage/s3_compatible.py", "s3"),  # the name of a setting of botocore
    }


def test_each_store_says_whether_commits_are_exclusive() -> None:
    described = {store.schemes[0]: store.capabilities.describe_commits() for store in list_stores()}

    probed = "commits by conditional put, which each process verifies before its first commit"
    renamed = "commits by rename of a complete file, which replaces no other one"
    buckets = dict.fromkeys(("abfs", "cosn", "gs", "obs", "oss", "s3"), probed)
    assert described == buckets | {
        "hdfs": renamed,
        "memory": "commits by a check within one process",
    }


def test_a_store_of_another_package_is_said_to_be_read_only() -> None:
    described = FsspecFileIO("ftp://host", StorageOptions.of({})).capabilities.describe_commits()

    assert described == "not written, because no exclusive creation is known"

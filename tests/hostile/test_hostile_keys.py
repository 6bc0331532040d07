"""Keys of an object store that are no paths: they lead no step out of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.memory_s3 import OPTIONS, MemoryS3, run_memory_s3
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import PaimonError
from paimon_orch.steps import (
    check,
    compact,
    delete_tag,
    expire_changelogs,
    expire_snapshots,
    expire_tags,
    inspect,
    purge_files,
    remove_orphan_files,
)
from paimon_orch.table.table import Table

ROOT = "lake/w/db.db/t"
NAMES = {
    "way out": "../other/bucket-0/data",
    "two ways out": "../../other.db/t/bucket-0/data",
    "same directory": "./data",
    "empty part": "/data",
    "marker": "",
    "directory in a file": "data-1.orc/part",
    "line break": "data\nforged",
    "carriage return": "data\rforged",
    "escape": "data\x1b[2J",
    "direction": "data\u202egnp",
    "zero": "data%00",
    "composed": "data-\u00e9",
    "decomposed": "data-e\u0301",
    "long": "d" * 900,
    "pattern": "data-[a-z]*?",
    "encoded way out": "%2e%2e/%2e%2e/other/bucket-0/data",
    "space": " ",
    "backslash": "..\\..\\other\\data",
}
DIRECTORIES = {
    "bucket-0": "",
    "bucket-1": "",
    "branch": "branch-",
    "changelog": "changelog-",
    "consumer": "consumer-",
    "index": "index-",
    "manifest": "manifest-",
    "schema": "schema-",
    "snapshot": "snapshot-",
    "statistics": "stat-",
    "tag": "tag-",
    "unknown": "",
}
FILES = ["bucket-0", "bucket-1", "index", "manifest", "statistics", "unknown"]
"""Directories of which any file may be an orphan."""
STEPS: dict[str, Callable[[Table], object]] = {
    "read": rows_of,
    "inspect": inspect,
    "check": lambda table: check(table, deep=True),
    "tags": lambda table: table.tags.names(),
    "branches": lambda table: table.branches.names(),
    "consumers": lambda table: table.stores.open_consumers().read_all(),
    "changelogs": lambda table: expire_changelogs(table, retain_max=1, retain_min=1),
    "expire tags": expire_tags,
    "delete tag": lambda table: delete_tag(table, "t0"),
    "upsert": lambda table: table.upsert(table_of("k v", [(1, "new")])),
    "compact": lambda table: compact(table, strategy="full"),
    "expire": lambda table: expire_snapshots(table, retain_max=1, retain_min=1),
    "orphans": lambda table: remove_orphan_files(table, older_than=0),
    "rollback": lambda table: table.rollback(1),
    "purge": purge_files,
    "truncate": lambda table: table.truncate(),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryS3]:
    """A store with two tables."""
    monkeypatch.setenv("PAIMON_STORAGE_OPTIONS", json.dumps(OPTIONS))
    local = tmp_path / "w"
    table = new_table(local)
    catalog = Catalog(str(local))
    for other in ("db.other", "db.t2", "other.t"):
        victim = catalog.create_table(other, "k BIGINT, v STRING", primary_key=["k"])
        victim.upsert(table_of("k v", [(1, "theirs")]))
    for key in range(2):
        table.upsert(table_of("k v", [(key, "mine")]))
    table.tags.create("t0", 1)
    table.branches.create("dev", "t0")
    table.stores.open_consumers().record("c", 1)
    with run_memory_s3() as memory:
        memory.copy_directory(local, "lake/w")
        yield memory


def attack(store: MemoryS3, directories: Sequence[str], *names: str) -> None:
    """Put objects with names of an attacker in directories of the table."""
    for name in names:
        for directory in directories:
            prefix = DIRECTORIES[directory]
            for key in (f"{directory}/{name}", f"{directory}/{prefix}{name}"):
                store.objects.setdefault(f"{ROOT}/{key}", b"{}")
        store.objects[f"{ROOT}/{name}"] = b"{}"
    store.objects[ROOT] = b"{}"  # an object and a directory


def others(store: MemoryS3) -> dict[str, bytes]:
    """Return the objects of the other tables, and those that only look as if they were."""
    return {
        key: data
        for key, data in store.objects.items()
        if not key.startswith(f"{ROOT}/") and key != ROOT
    }


def run_all(store: MemoryS3) -> list[str]:
    """Run all steps; return the refusals."""
    refusals = []
    before = others(store)
    for name, step in STEPS.items():
        store.forget_metadata()
        try:
            step(Catalog("s3://lake/w").table("db.t"))
        except PaimonError as error:
            refusals.append(f"{name}: {error}")
        assert others(store) == before, name
    assert not [text for text in refusals if {"\n", "\x1b", "\u202e"} & set(text)]
    return refusals


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_key_leads_no_step_out_of_the_table(store: MemoryS3, name: str) -> None:
    attack(store, [*DIRECTORIES], NAMES[name])
    run_all(store)
    assert_others_stay_when_the_table_is_dropped(store)


def test_no_key_of_a_possible_orphan_stops_a_step(store: MemoryS3) -> None:
    attack(store, FILES, *NAMES.values())
    assert run_all(store) == []
    assert_others_stay_when_the_table_is_dropped(store)


def assert_others_stay_when_the_table_is_dropped(store: MemoryS3) -> None:
    before = others(store)

    try:
        Catalog("s3://lake/w").drop_table("db.t")
    except PaimonError:
        pass
    else:
        assert not [key for key in store.objects if key.startswith(f"{ROOT}/")]

    assert others(store) == before
    assert rows_of(Catalog("s3://lake/w").table("db.other")) == [(1, "theirs")]

"""Random histories of tables with Iceberg metadata, and what Iceberg readers have to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st
from support.histories import backdate_files, drop_partition
from support.iceberg_metadata import HINT, IcebergTable, Row, sort_rows
from support.iceberg_rewrites import rewrite_as_java
from support.tables import new_table, rows_of

from paimon_orch import Catalog
from paimon_orch.errors import PaimonError
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.maintenance.compact_manifests import compact_manifests
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores

EXECUTOR = InProcessExecutor()
Action = tuple[str, int]
# Few snapshots and manifests, so that short histories expire and merge them.
STORAGE = {
    "metadata__iceberg__storage": "table-location",
    "metadata__iceberg__compaction__min__file_num": "3",
    "metadata__iceberg__compaction__max__file_num": "4",
    "snapshot__num_retained__min": "1",
    "snapshot__num_retained__max": "5",
    "num_sorted_run__compaction_trigger": "2",
}
VECTORS = {
    "deletion_vectors__enabled": "true",
    "deletion_vectors__bitmap64": "true",
    "metadata__iceberg__format_version": "3",
}
APPEND = {"bucket": "-1"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "append": APPEND,
    "append with vectors": APPEND | VECTORS,
    "primary key": {},
    "primary key with vectors": VECTORS,
}
WRITES = ("write", "write", "write", "overwrite", "drop partition", "delete")
COMPACTIONS = ("minor", "full", "compact manifests")
ALTERATIONS = ("add column", "rename column", "drop column", "widen", "version 3", "keep versions")
REFS = ("tag", "tag", "delete tag", "delete tag and files", "fast forward")
CLEANUPS = ("expire", "rollback", "roll back to tag", "remove orphans")
OTHERS = (
    "other writer",
    "other compaction",
    "other rollback",
    "other expiration",
    "Java",
    "damage",
)
ACTIONS = (*WRITES, *COMPACTIONS, *ALTERATIONS, *REFS, *CLEANUPS, *OTHERS)


def histories(max_size: int) -> st.SearchStrategy[list[Action]]:
    """Draw a history: actions with numbers that select their rows and targets."""
    action = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5))
    return st.lists(action, min_size=3, max_size=max_size)


def make_iceberg_table(root: Path, kind: str, **options: str) -> Table:
    """Create a partitioned table of a kind without rows."""
    columns = "p INT, k BIGINT, n INT, v STRING"
    key = () if kind.startswith("append") else ("p", "k")
    options = {**STORAGE, **KINDS[kind], **options}
    return new_table(root, columns, key=key, partition_by=("p",), **options)


def open_iceberg_table(table: Table) -> IcebergTable:
    """Return the Iceberg table of a Paimon table."""
    return IcebergTable(Path(table.paths.root) / "metadata")


def build_rows(schema: TableSchema, number: int, step: int) -> pa.Table:
    """Return four rows of two partitions for the present columns; some values are null."""
    keys = range(number, number + 4)
    nullable = not schema.primary_keys
    columns: dict[str, list[Any]] = {}
    for field in schema.fields:
        if field.name == "p":
            values: list[Any] = [None if nullable and k % 3 == 2 else k % 2 for k in keys]
        elif field.name == "k":
            values = list(keys)
        elif "STRING" in str(field.type):
            values = [None if k == 5 else f"{step}-{k}" for k in keys]
        else:
            values = [None if k == 4 else 1000 * step + k for k in keys]
        columns[field.name] = values
    return pa.table(columns)


def read_expected_rows(table: Table, **scan: Any) -> list[Row]:
    """Return the rows that Iceberg readers have to see, as a batch read of Paimon does.

    Of a primary-key table without vectors they see what full compactions wrote.
    """
    if (
        not table.load().schema.primary_keys
        or table.load().schema.typed_options.has_deletion_vectors
    ):
        return sort_rows(rows_of(table, **scan))
    rows = table.system("ro").scan(**scan).to_arrow()
    return sort_rows(zip(*(column.to_pylist() for column in rows.columns), strict=True))


class History:
    """Applies actions to a table and checks its Iceberg metadata after each of them."""

    def __init__(self, root: Path, kind: str, **options: str) -> None:
        self.catalog = Catalog(str(root))
        self.table = make_iceberg_table(root, kind, **options)
        self.is_stale = False
        self.was_damaged = False
        self.step = 0

    def run(self, history: list[Action]) -> None:
        """Apply a history."""
        for action, number in [("write", 0), *history]:
            self.apply(action, number)

    def apply(self, action: str, number: int) -> None:
        """Apply an action if the state of the table permits it, and check the result."""
        self.step += 1
        table = self.table
        before = table.stores.snapshots.latest_id()
        if action in OTHERS:
            self._apply_unpublished(action, number)
            return
        refs = {} if self.is_stale or self.step == 1 else open_iceberg_table(table).tags
        self._find_action(action, number)()
        if self.is_stale and table.stores.snapshots.latest_id() == before:
            table.stores.iceberg.publish()  # the action may have found nothing to do
        self.is_stale = False
        self.check()
        tags = {name: table.tags.get(name).id for name in table.tags.names()}
        kept = {name: tag for name, tag in refs.items() if tags.get(name) == tag}
        assert kept.items() <= open_iceberg_table(table).tags.items()

    def check(self) -> None:
        """Check the metadata, and the rows that Iceberg readers see."""
        iceberg = open_iceberg_table(self.table)
        iceberg.check()
        assert iceberg.hint == self.table.stores.snapshots.latest_id()
        assert iceberg.read_rows() == read_expected_rows(self.table)
        listed = {snapshot["snapshot-id"] for snapshot in iceberg.metadata["snapshots"]}
        tags = {name: self.table.tags.get(name).id for name in self.table.tags.names()}
        assert iceberg.tags == {name: tag for name, tag in tags.items() if tag in listed}
        assert listed <= {*self.table.stores.snapshots.ids(), *tags.values()}

    def check_time_travel(self) -> None:
        """Check the rows of all listed snapshots that Paimon can read."""
        iceberg = open_iceberg_table(self.table)
        tagged = {self.table.tags.get(name).id: name for name in self.table.tags.names()}
        for snapshot in iceberg.metadata["snapshots"]:
            number = snapshot["snapshot-id"]
            scan = {"tag": tagged[number]} if number in tagged else {"snapshot_id": number}
            rows = iceberg.read_rows(number, snapshot["schema-id"])
            assert rows == read_expected_rows(self.table, **scan)

    def _apply_unpublished(self, action: str, number: int) -> None:
        if action == "damage":
            self._damage(number)
            return
        if action == "Java":
            if not self.is_stale:
                rewrite_as_java(open_iceberg_table(self.table))
            self.is_stale = True
            return
        names = {
            "other writer": "write",
            "other compaction": "full",
            "other rollback": "rollback",
            "other expiration": "expire",
        }
        with (
            patch.object(TableStores, "publish_iceberg_metadata", lambda _: None),
            patch.object(TableStores, "prepare_deletion", lambda _: None),
        ):
            self._find_action(names[action], number)()
        self.is_stale = True

    def _damage(self, number: int) -> None:
        """Delete the hint, table metadata, a manifest list or a manifest of the newest snapshot.

        A publication does not look for the manifests of older snapshots.
        """
        iceberg = open_iceberg_table(self.table)
        needed = set(iceberg.directory.glob("snap-*"))
        if (iceberg.directory / HINT).exists() and not self.was_damaged:
            needed |= {m.file.path for m in iceberg.manifests(iceberg.current)}
        files = [p for p in iceberg.directory.iterdir() if p.suffix != ".avro" or p in needed]
        files.sort(key=lambda path: path.stat().st_mtime_ns)
        if files:
            files[number * len(files) // 6].unlink()
        self.is_stale = self.was_damaged = True

    def _find_action(self, action: str, number: int) -> Callable[[], object]:
        table = self.table
        tag, tags = f"t{number % 2}", table.tags.names()
        ids = table.stores.snapshots.ids()
        schema = table.load().schema
        rows = build_rows(schema, number, self.step)
        spare = [f for f in schema.fields if f.name not in ("p", "k")]
        narrow = [f.name for f in spare if str(f.type).startswith("INT")]

        def has_format_of(tag: str) -> bool:
            tagged = table.stores.schemas.get(table.tags.get(tag).schema_id)
            key = "metadata.iceberg.format-version"
            return tagged.options.get(key) == schema.options.get(key)

        def fast_forward() -> None:
            if "dev" in table.branches.names():
                table.branches.delete("dev")
            table.branches.create("dev", tag)
            branch = self.catalog.table("db.t$branch_dev")
            branch.append(build_rows(branch.load().schema, number, self.step))
            table.branches.fast_forward("dev")

        def roll_back_to_tag() -> None:
            table.rollback(tag=tag, delete_tags=True)

        def roll_back() -> None:
            earliest = table.stores.snapshots.earliest_id() or 0
            targets = [i for i in ids if i >= earliest]
            table.rollback(targets[number % len(targets)], delete_tags=True)

        def remove_orphans() -> None:
            backdate_files(table)
            remove_orphan_files(table)

        def delete_some() -> None:
            if schema.primary_keys:
                table.delete(rows.select(["p", "k"]).slice(0, 2))
            else:
                delete(table, EXECUTOR, f"k = {number + 1}")

        actions: dict[str, tuple[object, Callable[[], object]]] = {
            "write": (True, lambda: table.append(rows)),
            "overwrite": (True, lambda: table.overwrite(rows.slice(0, 2))),
            "drop partition": (True, lambda: drop_partition(table, {"p": number % 2})),
            "delete": (True, delete_some),
            "minor": (True, lambda: compact(table, EXECUTOR)),
            "full": (True, lambda: compact(table, EXECUTOR, strategy="full")),
            "compact manifests": (True, lambda: compact_manifests(table)),
            "add column": (True, lambda: self._alter(AddColumn(column=f"c{self.step}", type="INT"))),
            "rename column": (spare, lambda: self._alter(RenameColumn(spare[-1].name, f"r{self.step}"))),
            "drop column": (len(spare) > 1, lambda: self._alter(DropColumn(spare[number % len(spare)].name))),
            "widen": (narrow, lambda: self._alter(UpdateType(narrow[0], "BIGINT"))),
            "version 3": (True, lambda: self._alter(SetOption("metadata.iceberg.format-version", "3"))),
            "keep versions": (
                True, lambda: self._alter(SetOption("metadata.iceberg.previous-versions-max", str(number % 3))),
            ),
            "tag": (tag not in tags, lambda: table.tags.create(tag)),
            "delete tag": (tag in tags, lambda: table.tags.delete(tag)),
            "delete tag and files": (tag in tags, lambda: delete_tag(table, tag)),
            "fast forward": (tag in tags and has_format_of(tag), fast_forward),
            "expire": (True, lambda: expire_snapshots(table, retain_max=1 + number % 3)),
            "rollback": (True, roll_back),
            "roll back to tag": (tag in tags, roll_back_to_tag),
            "remove orphans": (True, remove_orphans),
        }  # fmt: skip
        possible, act = actions[action]
        return act if possible else lambda: None

    def _alter(self, change: Any) -> None:
        try:
            self.catalog.alter_table("db.t", [change])
        except PaimonError:
            if isinstance(change, SetOption):
                raise

"""Fields and keys that no release has yet, in all metadata files: no step loses one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from added_fields import KEY, PLACES, PREFIX, add_fields, additional, json_files, types
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from steps.histories import KINDS, Operation, apply, make_table, operations
from tables import rows_of, small_batches

from paimon_orch import Catalog
from paimon_orch.steps import row_level
from paimon_orch.steps.analyze import analyze
from paimon_orch.steps.compact import compact
from paimon_orch.steps.compact_manifests import compact_manifests
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.steps.expire_snapshots import expire_snapshots
from paimon_orch.steps.remove_unexisting_files import remove_unexisting_files
from paimon_orch.steps.rewrite_file_index import rewrite_file_index
from paimon_orch.table.schema_changes import (
    SchemaChange,
    SetOption,
    UpdateColumnComment,
    UpdateComment,
)
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
FEW = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
NOTHING = "[]"


@st.composite
def fields(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Draw two or three fields for each kind of file."""
    return {
        kind: {
            f"{place}{PREFIX}_{number}": draw(types(depth=1))
            for number, place in enumerate(
                draw(st.lists(st.sampled_from(places), min_size=2, max_size=3))
            )
        }
        for kind, places in PLACES.items()
    }


def lose_a_file(table: Table) -> None:
    split = table.files()[0]
    next(Path(table.paths.root).rglob(split.files[0].file_name)).unlink()
    remove_unexisting_files(table)


def alter(table: Table, *changes: SchemaChange) -> None:
    catalog_of(table).alter_table(table.identifier, changes)


def index(table: Table) -> None:
    alter(table, SetOption("file-index.bloom-filter.columns", "v"))
    rewrite_file_index(catalog_of(table).table(table.identifier), EXECUTOR)


def catalog_of(table: Table) -> Catalog:
    return Catalog(str(Path(table.paths.root).parents[1]))


def delete_row(table: Table) -> None:
    if not table.schema.primary_keys:
        row_level.delete(table, EXECUTOR, "k = 2")


STEPS: Mapping[str, Callable[[Table], object]] = {
    "minor": lambda table: compact(table, EXECUTOR),
    "full": lambda table: compact(table, EXECUTOR, strategy="full"),
    "manifests": compact_manifests,
    "upsert": lambda table: apply(table, "upsert", 1, "later"),
    "overwrite": lambda table: apply(table, "overwrite", 1, "later"),
    "drop": lambda table: apply(table, "drop", 1, "later"),
    "delete": delete_row,
    "expire": lambda table: expire_snapshots(table, retain_min=1, retain_max=2),
    "analyze": lambda table: analyze(table, EXECUTOR),
    "index": index,
    "lost": lose_a_file,
    "new tag": lambda table: table.tags.create("n", time_retained=timedelta(days=1)),
    "replace tag": lambda table: table.tags.replace("t1"),
    "rename tag": lambda table: table.tags.rename("t1", "renamed"),
    "branch": lambda table: table.branches.create("later", "t1"),
    "fast forward": lambda table: table.branches.fast_forward("dev"),
    "rollback": lambda table: table.rollback(tag="t1"),
    "alter": lambda table: alter(table, UpdateComment("later"), UpdateColumnComment("v", "x")),
}
"""What is done to a table with a tag ``t1`` and a branch ``dev``."""
NEEDED = {"replace tag": "t1", "rename tag": "t1", "branch": "t1", "rollback": "t1"}
ONCE = {"new tag", "branch", "rename tag"}


def run(table: Table, steps: list[str]) -> None:
    for number, step in enumerate(steps):
        possible = NEEDED.get(step, "t1") in table.tags.names() or step not in NEEDED
        if possible and not (step in ONCE and step in steps[:number]):
            STEPS[step](table)


def identity(snapshot: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a snapshot has in common with its copies, and with no other."""
    return snapshot["commitUser"], snapshot["id"], snapshot["timeMillis"]


def snapshots(root: Path) -> dict[tuple[object, ...], int]:
    """Return which snapshots there are, with their ids."""
    files = [path for path in json_files(root) if not path.name.startswith("schema-")]
    found = [json.loads(path.read_bytes()) for path in files]
    return {identity(snapshot): snapshot["id"] for snapshot in found}


def check_json(root: Path, old: Mapping[tuple[object, ...], int]) -> None:
    """Check that no snapshot, tag or schema has lost a key of its own, or of what it is a copy of."""
    for path in json_files(root):
        found = json.loads(path.read_bytes())
        if path.name.startswith("schema-"):
            assert found[KEY] == {"of": ["schema", 1.5]}, path
            assert all(field[KEY] == [field["id"]] for field in found["fields"]), path
        elif number := old.get(identity(found)):
            assert found[KEY] == {"of": number}, path
            assert (found["operation"], found["uuid"]) == (f"op-{number}", f"u-{number}"), path
        if path.name in ("tag-t1", "tag-renamed"):
            assert found[f"{KEY}OfTag"] == ["tag-t1"], path


def check_records(root: Path, before: Mapping[tuple[str, str, str], set[str]]) -> None:
    """Check that what is said of a file that was there is what was said of it, and nothing of others."""
    for at, values in additional(root).items():
        is_range = at[1].startswith("_DELETIONS")  # a vector that was changed is another one
        known = before.get(at, {NOTHING})
        assert values <= (known | {NOTHING} if is_range else known), at


@FEW
@given(st.sampled_from(sorted(KINDS)), operations(5), fields(), st.integers(0, 99), st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))  # fmt: skip
def test_no_step_loses_a_field(
    kind: str, history: list[Operation], added: Any, seed: int, steps: list[str]
) -> None:
    with small_batches(3), tempfile.TemporaryDirectory() as folder:
        table = make_table(Path(folder), kind, [*history, ("tag", 1), ("branch", 1), ("upsert", 1)])
        root = Path(table.paths.root)
        add_fields(root, added, seed)
        before, old = additional(root), snapshots(root)
        assert any(values != {NOTHING} for values in before.values())

        run(Catalog(folder).table("db.t"), steps)

        check_records(root, before)
        check_json(root, old)
        rows_of(Catalog(folder).table("db.t"))

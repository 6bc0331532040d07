"""Writes missing and wrong hints of snapshots; the old file is put into the quarantine.

See docs/format/snapshot.md#hint-files.
"""

from dataclasses import dataclass, field

from paimon_orch.errors import NotFoundError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.step import EmptyRequest, StepOutcome, build_metadata_step
from paimon_orch.storage.concurrency import map_concurrently, start_call
from paimon_orch.table.metadata.snapshot_store import (
    EARLIEST,
    LATEST,
    SnapshotStore,
    hides_snapshots,
)
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongHint:
    """A hint that is missing, names a missing snapshot, or hides later snapshots."""

    name: str
    value: int | None
    snapshot: int
    """The snapshot to name instead."""

    @property
    def lost_snapshots(self) -> int:
        """Return the number of snapshots after the newest existing one that the hint names."""
        return max(0, (self.value or 0) - self.snapshot) if self.name == LATEST else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HintsPlan:
    """The wrong hints of a table. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    hints: tuple[WrongHint, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any hint is wrong."""
        return bool(self.hints)


@dataclass(frozen=True, slots=True, kw_only=True)
class HintsResult(StepOutcome):
    """The hints that were written."""

    plan: HintsPlan


def find_wrong_hints(store: SnapshotStore) -> list[WrongHint]:
    """Return the hints to write; none if a catalog decides which snapshot is the newest."""
    if store.catalog is not None:
        return []
    read_ids = start_call(store.io, store.ids)
    names = (LATEST, EARLIEST)
    values = dict(zip(names, map_concurrently(store.io, store.hint, names), strict=True))
    ids = read_ids()
    if not ids:
        return []
    hints = [(LATEST, ids[-1]), (EARLIEST, ids[0])]
    if ids[0] == 1 and values[EARLIEST] is None:
        # Writers other than Java Paimon write EARLIEST at the first expiration.
        hints.pop()
    return [
        WrongHint(name=name, value=values[name], snapshot=snapshot)
        for name, snapshot in hints
        if values[name] not in ids or (name == LATEST and hides_snapshots(values[name] or 0, ids))
    ]


def plan(table: Table, request: EmptyRequest) -> HintsPlan:
    """Find the wrong hints of a table or branch."""
    hints = tuple(find_wrong_hints(table.stores.snapshots))
    if hints:
        table.stores.check_step(StepKind.METADATA)
    return HintsPlan(request=request, hints=hints)


def commit(table: Table, plan: HintsPlan) -> HintsResult:
    """Put the old hints aside, and write the new ones.

    Readers list the snapshots as long as a hint is missing.
    """
    store, quarantine = table.stores.snapshots, Quarantine.of(table)
    folder = quarantine.build_folder_name()
    for hint in plan.hints:
        if not store.exists(hint.snapshot):
            raise NotFoundError(
                f"snapshot {hint.snapshot} of {table.identifier} has expired since the repair was "
                "planned; repeat it"
            )
        path = f"{store.paths.snapshot_dir}/{hint.name}"
        if store.io.exists(path):
            quarantine.put(folder, [path])
        store.write_hint(hint.name, hint.snapshot)
    return HintsResult(plan=plan)


REPAIR_HINTS = build_metadata_step("repair the hints of", plan, commit, max_attempts=1)

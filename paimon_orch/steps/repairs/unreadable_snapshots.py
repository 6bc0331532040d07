"""Rolls a table back whose newest snapshot cannot be read, and moves unreadable snapshots aside.

The files of these snapshots are moved to the quarantine. See docs/doctor.md#repair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_orch.errors import InputError, MissingFileError, PaimonError, raise_unless_damage
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import format_names
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.inspection.damage.way_back import WayBack, can_read_lists, find_way_back
from paimon_orch.table.metadata.rollback import RollbackPlan
from paimon_orch.table.metadata.snapshot_store import LATEST
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableNewestPlan:
    """A rollback from a newest snapshot that cannot be read."""

    way_back: WayBack
    rollback: RollbackPlan
    snapshots: tuple[int, ...]
    """The ids of the snapshots whose files are moved to the quarantine."""

    def describe(self) -> str:
        """Return what is done, and what is lost."""
        later = format_count(len(self.rollback.snapshots), "later snapshot")
        lost = (
            "no row is lost"
            if not self.rollback.snapshots
            else f"the changes of {later} are lost; if a backup has the damaged file, restore it "
            "instead"
        )
        files = format_count(len(self.snapshots), "snapshot file")
        return f"roll back to {self.way_back}, and move {files} to the quarantine; {lost}"


def plan_newest(table: Table) -> UnreadableNewestPlan | None:
    """Plan the rollback if the newest snapshot or its lists cannot be read.

    Returns None if they can, if a catalog makes the commits, or if no older state can be read. A
    missing or damaged manifest has a repair that loses less. Raises :class:`InputError` if the
    rollback would delete tags.
    """
    stores = table.stores.hold()
    store = table.stores.snapshots
    if store.catalog is not None or not store.ids() or _can_read_newest(stores):
        return None
    way_back = find_way_back(table)
    if way_back is None:
        return None
    planned = table.plan_rollback(way_back.selector)
    if planned.tags:
        raise InputError(
            f"the rollback to {way_back} would delete the tags of later snapshots "
            f"{format_names(planned.tags)}, which cannot be read either. Delete them, and repeat the "
            "repair"
        )
    same = [] if way_back.tag is None else [way_back.snapshot.id]
    existing = set(store.ids())
    moved = tuple(number for number in (*same, *planned.snapshots) if number in existing)
    return UnreadableNewestPlan(way_back=way_back, rollback=planned, snapshots=moved)


def _can_read_newest(stores: TableStores) -> bool:
    try:
        newest = stores.snapshots.latest()
    except MissingFileError:  # the repair of the hint LATEST loses less
        return True
    except (PaimonError, OSError) as error:
        raise_unless_damage(error)
        return False
    return newest is None or can_read_lists(stores, newest)


def roll_back(table: Table, plan: UnreadableNewestPlan) -> str:
    """Move the files of the later snapshots to the quarantine, and make the older one the newest."""
    store, quarantine = table.stores.snapshots, Quarantine.of(table)
    store.write_hint(LATEST, plan.way_back.snapshot.id)
    quarantine.put(quarantine.build_folder_name(), map(store.path, reversed(plan.snapshots)))
    table.run_rollback(replace(plan.rollback, snapshots=[]))
    return f"{plan.way_back} is the newest one"


def put_older_aside(table: Table, ids: Sequence[int]) -> str:
    """Move the files of unreadable snapshots aside, and let the table begin after them."""
    store, quarantine = table.stores.snapshots, Quarantine.of(table)
    quarantine.put(quarantine.build_folder_name(), map(store.path, ids))
    first = ids[-1] + 1
    table.repair_earliest_snapshot(first)
    return f"snapshot {first} is the earliest one"

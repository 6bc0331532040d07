"""Expiring the changelogs that outlived their snapshots (maintenance facts 9.5)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.steps.deletion import delete_all, delete_files
from paimon_orch.steps.executor import Executor, InProcessExecutor
from paimon_orch.table.consumers import Consumers
from paimon_orch.table.garbage import Garbage, GarbageCollector
from paimon_orch.table.references import (
    CHANGELOG_PREFIX,
    Kind,
    ReferenceReader,
    Version,
    VersionStore,
)
from paimon_orch.table.removal import Remover, data_roots
from paimon_orch.table.snapshots import EARLIEST
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True)
class ChangelogPlan:
    """What an expiration of changelogs would do; it is false when none goes. ``end`` is the oldest that stays."""

    changelogs: tuple[int, ...] = ()
    end: int | None = None
    garbage: Garbage = field(default_factory=Garbage)

    def __bool__(self) -> bool:
        """Tell whether any changelog goes."""
        return bool(self.changelogs)

    def to_dict(self) -> dict[str, object]:
        """Return the plan in figures."""
        return {
            "changelogs": len(self.changelogs),
            "data_files": len(self.garbage.data),
            "metadata_files": len(self.garbage.metadata) + len(self.garbage.lists),
            "bytes": self.garbage.bytes,
        }


def plan(
    table: Table,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: int | None = None,
    max_deletes: int | None = None,
) -> ChangelogPlan:
    """Choose the changelogs that go, by their own age (epoch milliseconds), and find what only they name.

    What is not given is taken from the table's options, and from those of snapshots where there are none. The newest
    changelog stays.
    """
    options = table.options
    versions = VersionStore(table.io, table.paths.root).all()
    mine = {
        v.snapshot.id: v
        for v in versions.values()
        if v.kind is Kind.CHANGELOG and v.branch == table.paths.branch
    }
    latest = table.snapshots.latest_id()
    if not mine or latest is None:
        return ChangelogPlan()
    least, most, before, limit = _retention(
        options, retain_max, retain_min, older_than, max_deletes
    )
    waiting = Consumers(table.io, table.paths, options).next_snapshots().values()
    times = {number: v.snapshot.time_millis for number, v in sorted(mine.items())}
    end = _end(times, max(latest - most + 1, min(mine)), before)
    end = min([end, latest - least + 1, min(mine) + limit, max(mine), *waiting])
    going = [replace(v, complete=False) for number, v in sorted(mine.items()) if number < end]
    if not going:
        return ChangelogPlan()
    first = min(number for number in mine if number >= end)
    kept = [v for v in versions.values() if v.path not in {one.path for one in going}]
    return ChangelogPlan(tuple(v.snapshot.id for v in going), first, _garbage(table, going, kept))


def _garbage(table: Table, going: Sequence[Version], kept: Sequence[Version]) -> Garbage:
    reader = ReferenceReader.of(table.io, table.paths.root)
    collector = GarbageCollector(reader, table.paths, table.schema, kept)
    for version in going:
        if version.changelog_list:
            collector.add_changelog(version)
        else:  # the rows that were appended are the changelog
            collector.add_deleted(version)
    return collector.collect(going)


def _retention(
    options: Options,
    retain_max: int | None,
    retain_min: int | None,
    older_than: int | None,
    max_deletes: int | None,
) -> tuple[int, int, int, int]:
    """Return how many stay at least and at most, before when one must have been committed, how many may go."""

    def number(given: int | None, name: str, default: int) -> int:
        stored = options.integer(f"snapshot.{name}", default)
        return options.integer(f"changelog.{name}", stored) if given is None else given

    least = number(retain_min, "num-retained.min", 10)
    most = number(retain_max, "num-retained.max", 2**31 - 1)
    if least < 1 or most < least:
        raise InputError(
            f"at least {least} and at most {most} changelogs are to be kept: the minimum must be 1 or more and not "
            "above the maximum"
        )
    age = options.text("changelog.time-retained", options.text("snapshot.time-retained", "1 h"))
    kept = Options({"changelog.time-retained": age}).duration("changelog.time-retained", "")
    before = int(time.time() * 1000) - int(kept.total_seconds() * 1000)
    limit = options.integer("snapshot.expire.limit", 50) if max_deletes is None else max_deletes
    return least, most, before if older_than is None else older_than, limit


def _end(times: Mapping[int, int], first: int, before: int) -> int:
    """Return the first changelog, from ``first`` on, that is young enough to stay."""
    for number, committed in times.items():
        if number >= first and before <= committed:
            return number
    return max(times)


def expire_changelogs(
    table: Table,
    executor: Executor | None = None,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: int | None = None,
    max_deletes: int | None = None,
) -> ChangelogPlan:
    """Expire changelogs and return what was done; see :func:`plan`. Done again after a failure it goes on."""
    planned = plan(
        table,
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        max_deletes=max_deletes,
    )
    if not planned:
        return planned
    directory = f"{table.paths.branch_root}/changelog"
    table.io.write(f"{directory}/{EARLIEST}", str(planned.end).encode())
    roots = data_roots(table.paths, table.schema)
    label = f"expire changelogs of {table.identifier}"
    data = planned.garbage.data
    delete_files(executor or InProcessExecutor(), table.io, roots, data, label=label)
    remover = Remover(table.io, roots)
    delete_all(remover, planned.garbage.metadata)
    delete_all(remover, planned.garbage.lists)
    delete_all(remover, [f"{directory}/{CHANGELOG_PREFIX}{n}" for n in planned.changelogs])
    return planned

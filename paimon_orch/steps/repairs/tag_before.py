"""Tags the state of a table before a repair changes it.

The tag keeps the files of the state, also after its snapshot has expired. See
docs/how-to/recover-from-a-bad-commit.md.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from paimon_orch.errors import REFUSED_COMMIT_ERRORS, PaimonError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.storage.store_operation import try_once
from paimon_orch.table.table import Table
from paimon_orch.table.table_label import TableLabel

RESTORE_FILES = "If a backup has the files, restore them instead."
_PREFIX = "before-repair-"


def tag_before_repair(table: Table, snapshot: Snapshot, names: Sequence[str]) -> str:
    """Create the tag ``before-repair-<UTC time>`` of the newest snapshot, and return its name.

    Returns the one among the ``names`` of all tags if the snapshot has such a tag: a repair of
    several steps, or one that is repeated after a failure, needs only one.
    """
    store = table.stores.snapshots
    candidates = [name for name in names if name.startswith(_PREFIX)]
    tagged = map_concurrently(store.io, store.tag, candidates)
    for name, other in zip(candidates, tagged, strict=True):
        if other.id == snapshot.id:
            return name
    name = f"{_PREFIX}{Quarantine(table.io, table.paths.root).build_folder_name()}"
    table.tags.create(name, snapshot.id)
    return name


@contextmanager
def tagged_before_repair(table: Table, snapshot: Snapshot) -> Iterator[str]:
    """Tag the newest snapshot; a tag that was created is deleted if the commit is refused."""
    before = table.tags.names()
    name = tag_before_repair(table, snapshot, before)
    try:
        yield name
    except REFUSED_COMMIT_ERRORS:
        if name not in before:
            with suppress(PaimonError, OSError), try_once():
                table.tags.delete(name)
        raise


def describe_tag(label: TableLabel, tag: str) -> str:
    """Say how to return to the state of a tag."""
    command = label.format_command("rollback")
    return (
        f"the tag {tag} keeps the state before; to return to it, restore the lost files and run "
        f"`{command} --tag {tag} --as-latest`"
    )

"""Finds tags, changelogs and consumers of a branch whose files cannot be decoded.

Expiration or orphan cleanup delete nothing as long as one of them is there, because they do not know
which files it needs.
"""

from collections.abc import Callable
from functools import partial

from paimon_orch.errors import CorruptFileError, MissingFileError, NotFoundError
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.metadata.snapshot_store import TAG_PREFIX
from paimon_orch.table.table_stores import TableStores


def find_unreadable_references(stores: TableStores) -> list[CorruptFileError]:
    """Return the error of each tag and changelog that cannot be decoded, and of one consumer.

    Raises the error of the schema, which says how long consumers are valid.
    """
    store, consumers = stores.snapshots, stores.open_consumers()
    changelogs = ChangelogStore(store.io, store.paths)
    reads: list[Callable[[], object]] = [partial(store.tag, name) for name in store.tags()]
    reads += [partial(changelogs.get, number) for number in changelogs.ids()]
    reads.append(consumers.read_next_snapshots)
    return [error for error in map_concurrently(store.io, _try_read, reads) if error is not None]


def _try_read(read: Callable[[], object]) -> CorruptFileError | None:
    try:
        read()
    except (FileNotFoundError, MissingFileError, NotFoundError):  # deleted since the listing
        return None
    except CorruptFileError as error:
        return error
    return None


def describe_reference(path: str) -> str:
    """Return the name of a tag, changelog or consumer by the path of its file."""
    name = path.rpartition("/")[2]
    if name.startswith(TAG_PREFIX):
        return f"the tag {name.removeprefix(TAG_PREFIX)}"
    return f"the {name}"

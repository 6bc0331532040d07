"""Delete tags and the files that only they reference.

See docs/format/tags-branches-consumers.md#tags.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.text import parse_json_object
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.common.file_deletion import delete_files
from paimon_orch.table.cleanup.references import (
    ReferenceReader,
    RetainedSnapshot,
    RetainedSnapshotKind,
    RetainedSnapshotStore,
)
from paimon_orch.table.cleanup.safe_delete import SafeDeleter, list_file_roots
from paimon_orch.table.cleanup.snapshot_deletion import SnapshotDeletionPlanner, UnreferencedFiles
from paimon_orch.table.metadata_tables import parse_tag_time
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True)
class TagTimes:
    """When a tag was created, and how long it is retained."""

    created: datetime | None
    """The local wall clock time of the writer."""
    retained: timedelta | None


def read_tag_times(table: Table, name: str) -> TagTimes:
    """Read the times of a tag; both are None for a tag that never expires."""
    path = table.tags.path(name)
    table.tags.get(name)
    with wrap_decode_errors(path):
        value = parse_json_object(table.io.read_bytes(path))
        retained = value.get("tagTimeRetained")
        seconds = _parse_seconds(retained)
        created = parse_tag_time(value.get("tagCreateTime"))
    return TagTimes(created, None if seconds is None else timedelta(seconds=seconds))


def _parse_seconds(value: object) -> float | None:
    """Return the seconds of a number or an ISO 8601 duration such as ``PT24H``."""
    if value is None or isinstance(value, int | float):
        return value
    import pendulum

    duration = pendulum.parse(str(value))
    if not isinstance(duration, pendulum.Duration):
        raise ValueError(f"{value!r} is not a duration")  # noqa: TRY004 - damage, not a bug
    return duration.total_seconds()


def plan(
    table: Table, *, older_than: datetime | None = None, now: datetime | None = None
) -> list[str]:
    """Return the names of expired tags and of tags created before ``older_than`` (local time)."""
    table.stores.check_step(StepKind.TAG | StepKind.DELETE)
    current_time = datetime.now() if now is None else now
    modified = {info.name: info.modified for info in table.io.list_dir(table.paths.tag_dir)}
    expired = []
    for name in table.tags.names():
        times = read_tag_times(table, name)
        created = times.created or datetime.fromtimestamp(modified[f"tag-{name}"])  # noqa: DTZ006 - local
        has_times = times.created is not None and times.retained is not None
        is_over = has_times and current_time - created > (times.retained or timedelta(0))
        if is_over or (older_than is not None and created < older_than):
            expired.append(name)
    return expired


def find_files_to_delete(table: Table, name: str) -> UnreferencedFiles:
    """Return the files that only a tag references.

    The result is empty if the snapshot of the tag has not expired or has another tag.
    Raises :class:`CorruptFileError` if metadata of other versions cannot be read.
    """
    return _collect_files_to_delete(
        table, name, RetainedSnapshotStore(table.io, table.paths.root).all()
    )


def _collect_files_to_delete(
    table: Table, name: str, versions: Mapping[str, RetainedSnapshot]
) -> UnreferencedFiles:
    path, tagged = table.tags.path(name), table.tags.get(name)
    kept = [version for other, version in versions.items() if other != path]
    if any(
        v.snapshot.id == tagged.id
        and v.branch == table.paths.branch
        and v.kind is not RetainedSnapshotKind.CHANGELOG
        for v in kept
    ):
        return UnreferencedFiles()
    reader = ReferenceReader.of(table.io, table.paths.root)
    collector = SnapshotDeletionPlanner(
        reader=reader, paths=table.paths, schema=table.schema, retained=kept
    )
    collector.add_live_files(versions[path])
    collector.add_changelog_files(versions[path])  # snapshot expiration retains them for the tag
    remover = SafeDeleter(io=table.io, roots=list_file_roots(table.io, table.paths))
    return collector.collect([versions[path]]).filter(remover.has_safe_name)


def _has_new_versions(
    versions: Mapping[str, RetainedSnapshot], current: Mapping[str, RetainedSnapshot]
) -> bool:
    return any(
        path not in versions or versions[path].snapshot != version.snapshot
        for path, version in current.items()
    )


def delete_tag(table: Table, name: str, executor: Executor | None = None) -> UnreferencedFiles:
    """Delete a tag and the files that only it references; return these files.

    Raises :class:`CorruptFileError` if metadata of other versions cannot be read.
    """
    table.stores.check_step(StepKind.TAG | StepKind.DELETE)
    store = RetainedSnapshotStore(table.io, table.paths.root)
    versions = store.all()
    files = _collect_files_to_delete(table, name, versions)
    table.io.delete(table.tags.path(name))
    if _has_new_versions(versions, store.all()):
        # a new branch or tag may reference the files; orphan cleanup deletes them if not
        return UnreferencedFiles()
    roots = list_file_roots(table.io, table.paths)
    label = f"delete tag {name} of {table.identifier}"
    paths = [*files.data, *files.metadata, *files.lists]
    refused = delete_files(executor or InProcessExecutor(), table.io, roots, paths, label=label)
    refused_paths = set(refused)
    return files.filter(lambda path: path not in refused_paths)


def expire_tags(table: Table, *, older_than: datetime | None = None) -> list[str]:
    """Delete expired tags, and return their names; see :func:`plan`."""
    names = plan(table, older_than=older_than)
    for name in names:
        delete_tag(table, name)
    return names

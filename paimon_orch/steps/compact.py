"""Compaction: plan from metadata, one work unit a bucket, one snapshot (merge-tree facts 2 and 4)."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import Literal

from paimon_orch.errors import CommitConflictError, InputError
from paimon_orch.files.reader import BucketFile, FileReader
from paimon_orch.format.manifest import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.predicate import columns_of
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.choose import choose_full, choose_minor
from paimon_orch.merge.compaction import BucketCompaction, CompactionTask
from paimon_orch.merge.engines import merge_engine
from paimon_orch.merge.levels import sorted_runs
from paimon_orch.merge.parts import parts_of
from paimon_orch.merge.vectors import BucketVectors, read_vectors
from paimon_orch.steps.executor import Executor
from paimon_orch.table.commit import Changes
from paimon_orch.table.conflicts import BucketGuard
from paimon_orch.table.filter import parse_filter
from paimon_orch.table.messages import CommitMessage, discard
from paimon_orch.table.partitions import any_of, parse_spec, partition_text
from paimon_orch.table.plan import BucketSplit, Planner, matching_partitions
from paimon_orch.table.postpone import is_postponed
from paimon_orch.table.table import Table

logger = logging.getLogger(__name__)

Strategy = Literal["minor", "full"]
Partitions = Sequence[str | Mapping[str, object]]
Progress = Callable[[int, int], None]
BucketId = tuple[bytes, int]
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class CompactionUnit:
    """The work in one bucket, independent of all others."""

    reader: FileReader
    task: CompactionTask
    total_buckets: int
    reason: str

    @property
    def partition_text(self) -> str:
        """Return ``k1=v1/k2=v2``, or an empty text."""
        return partition_text(self.task.partition, self.reader.schema)

    @property
    def bucket(self) -> int:
        """Return the bucket number."""
        return self.task.bucket

    @property
    def files(self) -> int:
        """Return the number of files to compact."""
        return len(self.task.inputs)

    @property
    def bytes(self) -> int:
        """Return the size of the files to compact."""
        return sum(file.file_size for file in self.task.inputs)

    @property
    def rows(self) -> int:
        """Return the physical rows of the files to compact."""
        return sum(file.row_count for file in self.task.inputs)

    @property
    def level0_files(self) -> int:
        """Return how many of the files are on level 0."""
        return sum(file.level == 0 for file in self.task.files)

    @property
    def output_level(self) -> int:
        """Return the level that the result goes to."""
        return self.task.output_level


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction would do; it is false when there is nothing to do. Also the dry run."""

    snapshot_id: int | None
    units: tuple[CompactionUnit, ...] = ()
    guards: tuple[BucketGuard, ...] = ()
    skipped: int = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self.units)

    def to_dict(self) -> dict[str, object]:
        """Return the plan for people and machines: counts and bytes, a row a bucket."""
        return {
            "snapshot_id": self.snapshot_id,
            "buckets": len({(unit.partition_text, unit.bucket) for unit in self.units}),
            "skipped_buckets": self.skipped,
            "files": sum(unit.files for unit in self.units),
            "bytes": sum(unit.bytes for unit in self.units),
            "units": [
                {
                    "partition": unit.partition_text,
                    "bucket": unit.bucket,
                    "reason": unit.reason,
                    "files": unit.files,
                    "level0_files": unit.level0_files,
                    "rows": unit.rows,
                    "bytes": unit.bytes,
                    "output_level": unit.output_level,
                }
                for unit in self.units
            ],
        }


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did; ``snapshot_id`` is None if there was nothing to do.

    ``hidden_rows`` counts the rows that deletion vectors hide afterwards, in the buckets that were compacted. Sizes
    are in bytes.
    """

    plan: CompactionPlan
    snapshot_id: int | None = None
    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rows_written: int = 0
    hidden_rows: int = 0
    level0_before: int = 0
    level0_after: int = 0
    duration_seconds: float = 0.0
    attempts: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the figures without the plan."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "plan"}
        return values | {"duration_seconds": round(self.duration_seconds, 3)}


def plan(
    table: Table,
    *,
    partitions: Partitions | None = None,
    where: str | None = None,
    strategy: Strategy = "minor",
    now: datetime | None = None,
) -> CompactionPlan:
    """Choose what to compact in the newest snapshot, from metadata alone.

    ``partitions`` are specs (``"dt=a"`` or mappings, full or partial), ``where`` a filter over partition columns.
    ``minor`` follows the table's options: with deletion vectors level 0 always moves up, and files whose rows are mostly
    hidden are rewritten; ``full`` rewrites everything to the highest level. Rows expire as of ``now``. Raises :class:`UnsupportedError` for tables that cannot be compacted yet.
    """
    schema = table.schema
    if not schema.primary_keys:
        from paimon_orch.steps import append_compact  # which needs this module itself

        return append_compact.plan(table, partitions=partitions, where=where, strategy=strategy)
    merge_engine(schema)
    snapshot = table.snapshots.latest()
    if snapshot is None:
        return CompactionPlan(None)
    splits = [s for s in chosen_splits(table, schema, snapshot, partitions, where) if s.bucket >= 0]
    schemas = table.schemas.get_all(file.schema_id for split in splits for file in split.files)
    reader = FileReader(table.io, table.paths, schema, schemas)
    units, guards = list[CompactionUnit](), []
    for split in splits:
        unit = _unit(reader, split, strategy, now or datetime.now().astimezone())
        if unit is not None:
            units += _parts(unit)
            guards.append(_guard(split))
    return CompactionPlan(
        snapshot.id,
        tuple(sorted(units, key=lambda unit: -unit.bytes)),  # the largest first
        tuple(guards) if schema.typed_options.deletion_vectors else (),
        len(splits) - len(guards),
    )


def chosen_splits(
    table: Table,
    schema: TableSchema,
    snapshot: Snapshot,
    partitions: Partitions | None,
    where: str | None,
) -> list[BucketSplit]:
    """Return the buckets of the chosen partitions."""
    splits = Planner(table.manifests, schema).splits(snapshot)
    if partitions is not None:
        specs = [parse_spec(spec, schema) if isinstance(spec, str) else spec for spec in partitions]
        matches = any_of(specs, schema)
        splits = [split for split in splits if matches(split.partition)]
    if where is not None:
        predicate = parse_filter(where, schema)
        others = columns_of(predicate) - set(schema.partition_keys)
        if others:
            raise InputError(
                f"filter {where!r}: {', '.join(sorted(others))} is no partition column; whole partitions are "
                f"compacted, chosen by {', '.join(schema.partition_keys) or 'no column'}"
            )
        wanted = matching_partitions((split.partition for split in splits), schema, predicate)
        splits = [split for split in splits if split.partition in wanted]
    return splits


def _guard(split: BucketSplit) -> BucketGuard:
    files = [(file.level, file.file_name) for file in split.files]
    return BucketGuard.of(split.partition, split.bucket, files, split.vectors)


def _unit(
    reader: FileReader, split: BucketSplit, strategy: Strategy, now: datetime
) -> CompactionUnit | None:
    options = reader.schema.typed_options
    runs = sorted_runs(split.files, reader.schema.key_fields)
    num_levels = max(options.num_levels, 1 + max(file.level for file in split.files))
    if strategy == "full":
        found, alone = choose_full(reader, runs, split.vectors, num_levels, now)
    else:
        found, alone = choose_minor(options, runs, split.vectors, num_levels, now)
    files = tuple(file for run in runs[: found.count] for file in run.files)
    above = tuple(file for run in runs[found.count :] for file in run.files)
    if not files and not alone:
        return None
    task = CompactionTask(
        split.partition,
        split.bucket,
        files,
        above,
        found.output_level,
        num_levels - 1,
        not above or not files or options.deletion_vectors,
        split.vectors,
        alone,
        int(now.timestamp()),
    )
    return CompactionUnit(reader, task, split.total_buckets, found.reason)


def _parts(unit: CompactionUnit) -> list[CompactionUnit]:
    """Split a large bucket, so that it can use more than one core."""
    reader, task = unit.reader, unit.task
    keys = reader.schema.key_fields
    part_bytes = reader.schema.typed_options.target_file_size(primary_key=True)

    def starts(file: DataFileMeta) -> Sequence[object]:
        return reader.row_group_starts(BucketFile(task.partition, task.bucket, file), keys[0])

    return [replace(unit, task=part) for part in parts_of(task, keys, part_bytes, starts)]


def run(unit: CompactionUnit) -> bytes:
    """Compact one bucket, or a part of one, and return a :class:`CommitMessage`, encoded. Running it twice is harmless."""
    if not unit.reader.schema.primary_keys:
        from paimon_orch.steps import append_compact

        return append_compact.run(unit)  # type: ignore[arg-type]  # see append_compact.plan_of
    task = unit.task
    outcome = BucketCompaction(unit.reader, task).run()

    def entry(kind: FileKind, file: object) -> ManifestEntry:
        return ManifestEntry(kind, task.partition, task.bucket, unit.total_buckets, file)  # type: ignore[arg-type]

    return CommitMessage(
        (
            *(entry(FileKind.DELETE, file) for file in outcome.before),
            *(entry(FileKind.ADD, file) for file in outcome.after),
        ),
        () if outcome.index is None else (outcome.index,),
        tuple(entry(FileKind.ADD, file) for file in outcome.changelog),
        outcome.marks,
    ).encode()


def commit(
    table: Table, planned: CompactionPlan, messages: Sequence[CommitMessage]
) -> Snapshot | None:
    """Commit the results of all units, in their order, in one snapshot; None if nothing changed.

    Raises :class:`CommitConflictError` if another commit changed the same buckets; what was written is removed.
    """
    if not table.schema.primary_keys:
        from paimon_orch.steps import append_compact

        return append_compact.commit(table, planned, messages)
    return _commit(table, planned, _by_bucket(planned, messages))


def _by_bucket(
    planned: CompactionPlan, messages: Sequence[CommitMessage]
) -> dict[BucketId, CommitMessage]:
    """Return one message a bucket; where its work was split, its index file is written here."""
    found: dict[BucketId, list[tuple[CompactionUnit, CommitMessage]]] = {}
    for unit, message in zip(planned.units, messages, strict=True):
        found.setdefault((unit.task.partition, unit.bucket), []).append((unit, message))
    return {at: parts[0][1] if len(parts) == 1 else _joined(parts) for at, parts in found.items()}


def _joined(parts: Sequence[tuple[CompactionUnit, CommitMessage]]) -> CommitMessage:
    reader, task = parts[0][0].reader, parts[0][0].task
    # slices of one section may have read the same file
    entries = tuple(dict.fromkeys(entry for _, message in parts for entry in message.entries))
    changelog = tuple(entry for _, message in parts for entry in message.changelog)
    joined = CommitMessage(entries, changelog=changelog)
    if not reader.schema.typed_options.deletion_vectors:
        return joined
    vectors = BucketVectors(read_vectors(reader.io, reader.paths, reader.schema, task.vectors))
    for _, message in parts:
        vectors.add(message.marks)
    for name in joined.replaced:
        vectors.drop(name)
    index = vectors.write(reader.io, reader.paths, reader.schema, task.partition, task.bucket)
    return replace(joined, index=() if index is None else (index,))


def _commit(
    table: Table, planned: CompactionPlan, messages: Mapping[BucketId, CommitMessage]
) -> Snapshot | None:
    entries = tuple(entry for message in messages.values() for entry in message.entries)
    index = tuple(item for message in messages.values() for item in message.index)
    if not entries and not index:
        return None
    changelog = tuple(entry for message in messages.values() for entry in message.changelog)
    changes = Changes(CommitKind.COMPACT, entries, changelog, index, planned.guards)
    try:
        return table.new_commit().commit(changes)
    except CommitConflictError:
        discard(table.reader(), messages.values())
        raise


def compact(
    table: Table,
    executor: Executor,
    *,
    partitions: Partitions | None = None,
    where: str | None = None,
    strategy: Strategy = "minor",
    progress: Progress | None = None,
    now: datetime | None = None,
) -> CompactionResult:
    """Plan, run and commit a compaction; see :func:`plan` for the arguments.

    Idempotent: with nothing to do nothing is committed. A conflict with another committer is answered by a fresh
    plan, three times at most, then :class:`CommitConflictError` is raised and the table is unchanged.
    """
    if not table.schema.primary_keys:
        from paimon_orch.steps import append_compact

        return append_compact.compact(
            table,
            executor,
            partitions=partitions,
            where=where,
            strategy=strategy,
            progress=progress,
        )
    if is_postponed(table.schema):
        from paimon_orch.steps.postpone import move_postponed

        move_postponed(table, executor, partitions=partitions, where=where, progress=progress)
    started = time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        planned = plan(table, partitions=partitions, where=where, strategy=strategy, now=now)
        if not planned:
            logger.info("%s: nothing to compact", table.identifier)
            break
        label = f"compact {table.identifier}"
        undo = partial(_discard, table)
        results = executor.map(run, planned.units, label=label, progress=progress, undo=undo)
        messages = _by_bucket(planned, [CommitMessage.decode(result) for result in results])
        try:
            snapshot = _commit(table, planned, messages)
        except CommitConflictError as error:
            if attempt == _ATTEMPTS:
                raise
            logger.warning("%s: attempt %d lost: %s", table.identifier, attempt, error)
            continue
        seconds = time.monotonic() - started
        return _result(planned, messages, snapshot, seconds, attempt)
    return CompactionResult(planned, duration_seconds=time.monotonic() - started, attempts=attempt)


def _discard(table: Table, results: Sequence[bytes]) -> None:
    discard(table.reader(), [CommitMessage.decode(result) for result in results])


def _result(
    planned: CompactionPlan,
    messages: Mapping[BucketId, CommitMessage],
    snapshot: Snapshot | None,
    seconds: float,
    attempts: int,
) -> CompactionResult:
    vectors = {(unit.task.partition, unit.bucket): unit.task.vectors for unit in planned.units}
    hidden = sum(
        r.cardinality or 0
        for at, message in messages.items()
        for item in message.index or vectors[at]
        for r in item.ranges or ()
    )
    deleted = [entry.file for message in messages.values() for entry in message.deleted]
    added = [entry.file for message in messages.values() for entry in message.added]
    moved = {file.file_name for file in deleted} & {file.file_name for file in added}
    written = [file for file in added if file.file_name not in moved]
    return CompactionResult(
        planned,
        None if snapshot is None else snapshot.id,
        len(messages),
        len(deleted),
        len(added),
        sum(file.file_size for file in deleted if file.file_name not in moved),
        sum(file.file_size for file in written),
        sum(file.row_count for file in written),
        hidden,
        sum(file.level == 0 for file in deleted),
        sum(file.level == 0 for file in added),
        seconds,
        attempts,
    )

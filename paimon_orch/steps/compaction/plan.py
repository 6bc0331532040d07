"""What every compaction shares: which files it takes, its units, its plan, its result, and the round of all three."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.predicate import collect_columns
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.retry import discard_results, retry_on_conflict
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.filter.partition_spec import (
    build_any_partition_matcher,
    format_partition,
    parse_partition_spec,
)
from paimon_orch.table.scan.file_pruner import build_spec_manifest_filter
from paimon_orch.table.scan.scan_planner import (
    BucketSplit,
    ScanPlanner,
    build_bucket_splits,
    filter_partitions,
)
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

logger = logging.getLogger(__name__)

CompactionStrategy = Literal["minor", "full"]
PartitionSpecs = Sequence[str | Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionUnit(ABC):
    """The work in one bucket, or in a part of one, independent of all others."""

    reader: FileReader
    partition: bytes
    bucket: int
    total_buckets: int
    reason: str

    @property
    @abstractmethod
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files to compact."""

    @property
    @abstractmethod
    def output_level(self) -> int:
        """Return the level that the result goes to."""

    @abstractmethod
    def run(self) -> bytes:
        """Do it and return a :class:`CommitMessage`, encoded. Running it twice is harmless."""

    @property
    def partition_text(self) -> str:
        """Return ``k1=v1/k2=v2``, or an empty text."""
        return format_partition(self.partition, self.reader.schema)

    @property
    def files(self) -> int:
        """Return the number of files to compact."""
        return len(self.inputs)

    @property
    def bytes(self) -> int:
        """Return the size of the files to compact."""
        return sum(file.file_size for file in self.inputs)

    @property
    def rows(self) -> int:
        """Return the physical rows of the files to compact."""
        return sum(file.row_count for file in self.inputs)

    @property
    def level0_files(self) -> int:
        """Return how many of the files are on level 0."""
        return sum(file.level == 0 for file in self.inputs)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction would do; it is false when there is nothing to do. Also the dry run.

    ``skipped`` counts the buckets with nothing to do.
    """

    snapshot_id: int | None
    units: tuple[CompactionUnit, ...] = ()
    guards: tuple[BucketGuard, ...] = ()
    skipped: int = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self.units)

    @property
    def buckets(self) -> int:
        """Return the number of buckets with something to do."""
        return len({(unit.partition, unit.bucket) for unit in self.units})

    @property
    def inputs(self) -> list[DataFileMeta]:
        """Return the files to compact; slices of a bucket may share one."""
        return list({file.file_name: file for unit in self.units for file in unit.inputs}.values())

    @property
    def bytes(self) -> int:
        """Return the size of the files to compact."""
        return sum(file.file_size for file in self.inputs)

    def to_dict(self) -> dict[str, object]:
        """Return the plan for people and machines: counts and bytes, a row a unit."""
        return {
            "snapshot_id": self.snapshot_id,
            "buckets": self.buckets,
            "skipped_buckets": self.skipped,
            "files": len(self.inputs),
            "bytes": self.bytes,
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    deleted_rows: int = 0
    level0_before: int = 0
    level0_after: int = 0
    duration_seconds: float = 0.0
    attempts: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the figures without the plan."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "plan"}
        return values | {"duration_seconds": round(self.duration_seconds, 3)}


def plan_splits(
    table: Table,
    schema: TableSchema,
    snapshot: Snapshot,
    partitions: PartitionSpecs | None,
    where: str | None,
) -> list[BucketSplit]:
    """Return the buckets of the chosen partitions; manifests that can name none of these are not read."""
    if partitions is None:
        splits = ScanPlanner(table.stores.manifests, schema).splits(snapshot)
    else:
        specs = [
            parse_partition_spec(spec, schema) if isinstance(spec, str) else spec
            for spec in partitions
        ]
        matches = build_any_partition_matcher(specs, schema)
        live = table.stores.manifests.live(
            snapshot,
            manifests=build_spec_manifest_filter(specs, schema),
            partitions=lambda found: [partition for partition in found if matches(partition)],
        )
        splits = build_bucket_splits(live, table.stores.manifests.read_index_entries(snapshot))
    if where is not None:
        from paimon_orch.table.filter.sql_parser import parse_filter

        predicate = parse_filter(where, schema)
        others = collect_columns(predicate) - set(schema.partition_keys)
        if others:
            raise InputError(
                f"filter {where!r}: {', '.join(sorted(others))} is no partition column; whole partitions are "
                f"compacted, chosen by {', '.join(schema.partition_keys) or 'no column'}"
            )
        wanted = filter_partitions((split.partition for split in splits), schema, predicate)
        splits = [split for split in splits if split.partition in wanted]
    return splits


def run(unit: CompactionUnit) -> bytes:
    """Do the work of one unit; see :meth:`CompactionUnit.run`."""
    return unit.run()


def run_compaction(
    table: Table,
    executor: Executor,
    plan: Callable[[], CompactionPlan],
    commit: Callable[[CompactionPlan, Sequence[CommitMessage]], CompactionResult],
    progress: Progress | None,
) -> CompactionResult:
    """Plan, run and commit; again from a fresh plan if another committer was faster (see :func:`retry_on_conflict`)."""
    started, label = time.monotonic(), f"compact {table.identifier}"

    def attempt(number: int) -> CompactionResult:
        planned = plan()
        if planned:
            undo = partial(discard_results, table)
            results = executor.map(run, planned.units, label=label, progress=progress, undo=undo)
            done = commit(planned, [CommitMessage.decode(result) for result in results])
        else:
            logger.info("%s: nothing to compact", table.identifier)
            done = CompactionResult(plan=planned)
        return replace(done, duration_seconds=time.monotonic() - started, attempts=number)

    return retry_on_conflict(label, attempt)

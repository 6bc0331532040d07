"""The request, work units, plan and result of all compactions."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    build_entries,
)
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.times import parse_duration
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.argument import Argument, split_names
from paimon_orch.steps.common.partition_request import PartitionRequest, select_partitions
from paimon_orch.steps.common.step import StepOutcome, WorkUnits
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport, join_words
from paimon_orch.steps.compaction.policy import (
    CompactionDecision,
    CompactionStrategy,
    OrderStrategy,
)
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.scan.partition_selection import PartitionSpecs
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

if TYPE_CHECKING:
    from paimon_orch.steps.compaction.move_postponed import PostponePlan

NOTHING_TO_COMPACT = "nothing to compact"
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_MAX_SHOWN_DECISIONS = 20  # maximum number of decisions that a dry run shows, one per partition


def parse_buckets(text: str) -> list[int]:
    """Return the numbers of a list of buckets and ranges such as ``0,2-4``, sorted.

    Raises :class:`InputError` for any other text.
    """
    numbers = set[int]()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
        if last < first:
            raise InputError(
                f"{text!r} is not a list of buckets; write numbers and ranges, for example 0,2-4"
            )
        numbers.update(range(first, last + 1))
    return sorted(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest(PartitionRequest):
    """Selects the files to compact."""

    # the plan checks that the partitions exist, because it reads the manifests anyway
    partitions: Annotated[
        PartitionSpecs | None, select_partitions("Partitions, also partial ones.", None)
    ] = None
    strategy: Annotated[
        CompactionStrategy | None,
        Argument(
            "Compact the files that the table's options select, or all files.", default="minor"
        ),
    ] = None
    """``minor`` follows the table's options, ``full`` rewrites all files to the highest level."""
    now: datetime | None = None
    """The time at which the age of rows and partitions is measured; None means the current time."""
    buckets: Annotated[
        Sequence[int] | None,
        Argument(
            "Buckets to compact, in a table with a fixed number of buckets.",
            split=lambda _table, text: parse_buckets(text),
            separator=",",
            metavar="0,2-4",
            default="all buckets",
        ),
    ] = None
    idle_for: Annotated[
        timedelta | None,
        Argument(
            "Compact only partitions without newer files, e.g. '2 h'.",
            parse=parse_duration,
            option="--partition-idle-for",
            metavar="DURATION",
        ),
    ] = None
    up_to_level: Annotated[
        int | None, Argument("Merge the sorted runs of the levels up to this one.", minimum=0)
    ] = None
    """Merges the sorted runs of the levels up to this one, whatever their number.

    Only for primary-key tables and ``minor``; the table's options are not considered.
    """
    cluster_idle_for: Annotated[
        timedelta | None,
        Argument(
            "With incremental clustering: sort partitions without new files for this long, such "
            "as 7d, as a whole.",
            parse=parse_duration,
            metavar="DURATION",
        ),
    ] = None
    order_by: Annotated[
        Sequence[str] | None,
        Argument(
            "Sort an append table by these columns, which rewrites all files.",
            split=split_names,
            separator=",",
            metavar="COLUMN,...",
        ),
    ] = None
    order_strategy: Annotated[
        OrderStrategy | None,
        Argument(
            "With --order-by: sort by the columns in order, or along a space-filling curve.",
            default="order",
        ),
    ] = None

    def __post_init__(self) -> None:
        super(CompactRequest, self).__post_init__()
        if self.order_by is None:
            if self.order_strategy is not None:
                raise InputError(
                    f"order_strategy {self.order_strategy} requires order_by, with the columns to "
                    "sort by"
                )
            return
        if not self.order_by:
            raise InputError("order_by has no columns; name those to sort by")
        given = [name for name in _NOT_SORTED if getattr(self, name) is not None]
        if given:
            raise InputError(
                f"order_by cannot be combined with {', '.join(given)}; it sorts whole partitions, "
                "which are selected by partitions or where"
            )
        if self.strategy == "minor":
            raise InputError(
                "strategy minor and order_by cannot be combined: sorting rewrites all files"
            )

    @property
    def chosen_strategy(self) -> CompactionStrategy:
        """The strategy, which is ``minor`` by default."""
        return self.strategy or "minor"


_NOT_SORTED = ("buckets", "idle_for", "up_to_level", "cluster_idle_for")
"""The arguments of :class:`CompactRequest` that a sort does not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionUnit(ABC):
    """The work in one bucket, or in a part of a bucket; independent of other units."""

    partition: bytes
    bucket: int
    total_buckets: int
    partition_text: str
    """``k1=v1/k2=v2``, or an empty string."""
    reason: CompactReason
    reason_details: str = ""
    """A description to show instead of the reason."""
    remaining_deleted_rows: int = 0
    """The number of deleted rows of the bucket that remain; 0 for all but one of its units."""

    @property
    def partition_bucket(self) -> PartitionBucket:
        """Return the bucket to compact."""
        return PartitionBucket(self.partition, self.bucket)

    def build_entries(
        self, kind: FileKind, files: Iterable[DataFileMeta]
    ) -> tuple[ManifestEntry, ...]:
        """Return a manifest entry for each file of the bucket."""
        return build_entries(kind, self.partition_bucket, self.total_buckets, files)

    @property
    @abstractmethod
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files to compact."""

    @property
    def output_level(self) -> int:
        """Return the level of the new files; append tables have only level 0."""
        return 0

    @abstractmethod
    def run(self, reader: FileReader) -> bytes:
        """Compact and return an encoded :class:`CommitMessage`; may run repeatedly."""

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
        """Return the number of physical rows of the files to compact."""
        return sum(file.row_count for file in self.inputs)

    @property
    def level0_files(self) -> int:
        """Return the number of files on level 0."""
        return sum(file.level == 0 for file in self.inputs)

    def to_dict(self) -> dict[str, object]:
        """Return the unit as JSON values."""
        return {
            "partition": self.partition_text,
            "bucket": self.bucket,
            "reason": self.reason_details or self.reason.value,
            "files": self.files,
            "level0_files": self.level0_files,
            "rows": self.rows,
            "bytes": self.bytes,
            "output_level": self.output_level,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan(Displayable):
    """The plan of a compaction. It is falsy if there is nothing to do."""

    request: PartitionRequest
    state: TableState
    """The table when the compaction was planned."""
    snapshot_id: int | None = None
    reader: FileReader | None = None
    """Reads the files of all units; None if the table has no snapshot."""
    units: tuple[CompactionUnit, ...] = ()
    guards: tuple[BucketGuard, ...] = ()
    vectors: tuple[IndexManifestEntry, ...] = ()
    """The index files of data-evolution tables whose deletion vectors move to the new files."""
    live_names: frozenset[str] = frozenset()
    """The names of live files whose deletion vectors are in these index files."""
    skipped_buckets: int = 0
    """The number of buckets without files to compact."""
    postponed: "PostponePlan | None" = None
    """Rows in postpone buckets to move first; afterwards, the compaction is planned again."""
    decisions: Sequence[CompactionDecision] | None = None
    """What the default policy of sensors decides; only a preview has it."""

    def __bool__(self) -> bool:
        """Return whether there is anything to compact, without postponed rows."""
        return bool(self.units)

    @property
    def buckets(self) -> int:
        """Return the number of buckets to compact."""
        return len({(unit.partition, unit.bucket) for unit in self.units})

    @property
    def inputs(self) -> list[DataFileMeta]:
        """Return the distinct files to compact; units of the same bucket may share a file."""
        return list({file.file_name: file for unit in self.units for file in unit.inputs}.values())

    @property
    def bytes(self) -> int:
        """Return the size of the files to compact."""
        return sum(file.file_size for file in self.inputs)

    def to_dict(self) -> dict[str, object]:
        """Return counts, bytes and all units as JSON values."""
        return {
            "snapshot_id": self.snapshot_id,
            "buckets": self.buckets,
            "skipped_buckets": self.skipped_buckets,
            "files": len(self.inputs),
            "bytes": self.bytes,
            "units": [unit.to_dict() for unit in self.units],
            **({} if not self.postponed else {"postponed": self.postponed.to_dict()}),
            **(
                {}
                if self.decisions is None
                else {"decisions": [each.to_dict() for each in self.decisions]}
            ),
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        rows = [
            (
                unit.partition_text,
                str(unit.bucket),
                unit.reason_details or unit.reason,
                str(unit.files),
                f"{unit.rows:,}",
                format_size(unit.bytes),
                str(unit.output_level),
            )
            for unit in self.units
        ]
        files = format_count(len(self.inputs), "file")
        actions = [self.postponed.describe().action] if self.postponed else []
        if self.units or not actions:
            actions.append(f"rewrite {files} of {format_count(self.buckets, 'bucket')}")
        return PlanReport(
            action=join_words(actions),
            header=("partition", "bucket", "why", "files", "rows", "size", "to level"),
            rows=rows,
            nothing="" if self.postponed else NOTHING_TO_COMPACT,
            remarks=self._describe_decisions(),
        )

    def _describe_decisions(self) -> list[str]:
        if not self.decisions:
            return []
        lines = [f"  {each}" for each in self.decisions[:_MAX_SHOWN_DECISIONS]]
        more = len(self.decisions) - len(lines)
        lines += [f"  and {format_count(more, 'more partition')}"] if more else []
        return ["Decisions of the Dagster sensor's default policy:", *lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult(StepOutcome):
    """The result of a compaction; sizes are in bytes."""

    plan: CompactionPlan
    """The executed plan; after a conflict, it differs from the plan of the caller."""
    snapshot: Snapshot | None = None
    """The new snapshot, or None if there was nothing to do."""
    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rows_written: int = 0
    deleted_rows: int = 0
    """The number of rows that deletion vectors delete in the compacted buckets after the step."""
    level0_before: int = 0
    level0_after: int = 0
    moved_rows: int = 0
    """The number of rows in postpone buckets that were moved first, in another snapshot."""

    @classmethod
    def of(
        cls,
        plan: CompactionPlan,
        snapshot: Snapshot,
        deleted: Sequence[DataFileMeta],
        added: Sequence[DataFileMeta],
        **figures: int,
    ) -> "CompactionResult":
        """Return the result of a commit that deleted and added files, or moved them to a level."""
        moved = {file.file_name for file in deleted} & {file.file_name for file in added}
        written = [file for file in added if file.file_name not in moved]
        return cls(
            plan=plan,
            snapshot=snapshot,
            files_before=len(deleted),
            files_after=len(added),
            bytes_read=sum(file.file_size for file in deleted if file.file_name not in moved),
            bytes_written=sum(file.file_size for file in written),
            rows_written=sum(file.row_count for file in written),
            level0_before=sum(file.level == 0 for file in deleted),
            level0_after=sum(file.level == 0 for file in added),
            **figures,
        )

    @property
    def snapshot_id(self) -> int | None:
        """Return the id of the new snapshot, or None if there was nothing to do."""
        return None if self.snapshot is None else self.snapshot.id

    def count_io(self) -> StepIo:
        """Return the rows and files that the compaction processed."""
        return StepIo(
            rows_written=self.rows_written,
            files_read=self.files_before,
            files_written=self.files_after,
            bytes_read=self.bytes_read,
            bytes_written=self.bytes_written,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON values, without the plan."""
        names = [each.name for each in fields(self) if each.name not in _NOT_METRICS]
        values: dict[str, object] = {"snapshot_id": self.snapshot_id}
        values |= {name: getattr(self, name) for name in names}
        return values | {
            "duration_seconds": round(self.duration_seconds, 3),
            "attempts": self.attempts,
        }

    def describe(self) -> list[str]:
        """Return the figures in one line, or what was done without a compaction."""
        if self.snapshot is None and self.moved_rows:
            rows = format_count(self.moved_rows, "row")
            return [f"moved {rows} from postpone buckets; {NOTHING_TO_COMPACT}"]
        return StepOutcome.describe(self)


_NOT_METRICS = ("plan", "snapshot", "duration_seconds", "attempts")


def collect_work(
    _table: Table, plan: CompactionPlan
) -> WorkUnits[FileReader | None, CompactionUnit]:
    """Return the units of a plan, which share its reader."""
    return WorkUnits(shared=plan.reader, units=plan.units, bytes=plan.bytes)


def run(reader: FileReader | None, unit: CompactionUnit) -> bytes:
    """Run one unit; see :meth:`CompactionUnit.run`."""
    assert reader is not None
    return unit.run(reader)


UnitT = TypeVar("UnitT", bound=CompactionUnit)


def order_by_size(units: Sequence[UnitT]) -> list[UnitT]:
    """Return the units, largest first."""
    return sorted(units, key=lambda unit: -unit.bytes)

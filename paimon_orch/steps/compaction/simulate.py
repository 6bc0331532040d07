"""Measures a compaction: some buckets are compacted in a temporary directory, and read before and after.

The table does not change: an overlay of its store holds the new files and the snapshot.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter

from paimon_orch.errors import InputError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.steps.compaction.compact import commit, plan
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionUnit, CompactRequest
from paimon_orch.storage.overlay import OverlayFileIO
from paimon_orch.table.catalog_environment import NO_CATALOG
from paimon_orch.table.metadata.snapshot_store import LatestHint
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

MAX_SAMPLE_BYTES = 256 << 20
_ICEBERG = "metadata.iceberg."


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredScan:
    """What a scan of the sample read."""

    files: int
    requests: int
    """The number of requests for ranges that an object store would need."""
    bytes: int
    rows: int
    seconds: float

    def __str__(self) -> str:
        """Return the figures as text."""
        return (
            f"{format_size(self.bytes)} in {format_count(self.requests, 'request')} to "
            f"{format_count(self.files, 'file')}, and {self.seconds:.3f} s for "
            f"{format_count(self.rows, 'row')}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Displayable):
    """A compaction of a sample; sizes are in bytes."""

    buckets: int
    """The buckets that the compaction would change."""
    sampled_buckets: int
    bytes: int
    """The size of the files that the compaction would rewrite."""
    sampled_bytes: int
    written_bytes: int
    seconds: float
    """The duration of the compaction of the sample."""
    before: MeasuredScan
    after: MeasuredScan

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self)

    def describe(self) -> str:
        """Return the figures as one paragraph."""
        return (
            f"Measured on {self.sampled_buckets} of {format_count(self.buckets, 'bucket')}, "
            f"{format_size(self.sampled_bytes)} of {format_size(self.bytes)} to rewrite. A scan of "
            f"them now: {self.before}. After the compaction: {self.after}. It took "
            f"{self.seconds:.3f} s and wrote {format_size(self.written_bytes)}, to a temporary "
            "directory; nothing was changed."
        )


def simulate(
    table: Table, request: CompactRequest, *, max_bytes: int = MAX_SAMPLE_BYTES
) -> Simulation | None:
    """Compact a sample of the files that a compaction would change, and measure scans of it.

    Returns None if there is nothing to compact. Rows in postpone buckets are left out. Raises
    :class:`InputError` if every bucket is larger than ``max_bytes``, and for a sort.
    """
    if request.order_by is not None:
        raise InputError("--order-by cannot be combined with --simulate: no sort is simulated")
    with TemporaryDirectory(prefix="paimon-orch-") as directory:
        overlay = OverlayFileIO(base=table.io, directory=directory)
        copy = replace(table, io=overlay, environment=NO_CATALOG, hint=LatestHint())
        _turn_iceberg_off(copy, overlay)
        planned = plan(copy, request)
        if not planned:
            return None
        sample = _choose_sample(planned, max_bytes)
        before = _Sample.of(sample).measure(copy, overlay)
        start = perf_counter()
        assert sample.reader is not None
        messages = [CommitMessage.decode(unit.run(sample.reader)) for unit in sample.units]
        commit(copy, sample, messages)
        seconds = perf_counter() - start
        added = [entry.file for message in messages for entry in message.added]
        after = _Sample.of(sample, {file.file_name for file in added}).measure(copy, overlay)
        return Simulation(
            buckets=planned.buckets,
            sampled_buckets=sample.buckets,
            bytes=planned.bytes,
            sampled_bytes=sample.bytes,
            written_bytes=sum(file.file_size for file in added),
            seconds=round(seconds, 3),
            before=before,
            after=after,
        )


def _turn_iceberg_off(copy: Table, overlay: OverlayFileIO) -> None:
    """Hide the options by which a commit would publish Iceberg metadata to other systems."""
    schema = copy.load().schema
    if any(key.startswith(_ICEBERG) for key in schema.options):
        document = json.loads(overlay.read_bytes(schema.path))
        options: Mapping[str, str] = document["options"]
        kept = {key: value for key, value in options.items() if not key.startswith(_ICEBERG)}
        overlay.write(schema.path, json.dumps(document | {"options": kept}).encode())


def _choose_sample(planned: CompactionPlan, max_bytes: int) -> CompactionPlan:
    """Return a plan for random buckets, or random files of buckets that are not merged by key."""
    if planned.state.schema.primary_keys:
        sizes = {
            split.partition_bucket: sum(file.file_size for file in split.files)
            for split in planned.state.files()
        }
        groups = dict[PartitionBucket, list[CompactionUnit]]()
        for unit in planned.units:
            groups.setdefault(unit.partition_bucket, []).append(unit)
        choices = [(sizes[bucket], units) for bucket, units in groups.items()]
    else:
        choices = [(unit.bytes, [unit]) for unit in planned.units]
    Random(0).shuffle(choices)  # noqa: S311 - the same sample each time
    chosen, total = list[CompactionUnit](), 0
    for size, units in choices:
        if total + size <= max_bytes:
            chosen += units
            total += size
    if not chosen:
        smallest = format_size(min(size for size, _ in choices))
        raise InputError(
            f"a sample of {format_size(max_bytes)} is too small: the smallest bucket to compact has "
            f"{smallest}. Select smaller partitions, or compact without a simulation"
        )
    keys = {unit.partition_bucket for unit in chosen}
    guards = tuple(guard for guard in planned.guards if guard.bucket in keys)
    return replace(planned, units=tuple(chosen), guards=guards, postponed=None)


@dataclass(frozen=True, slots=True)
class _Sample:
    buckets: frozenset[PartitionBucket]
    names: frozenset[str] | None
    """The files to read, or None for all files of the buckets, which are merged by key."""

    @classmethod
    def of(cls, sample: CompactionPlan, added: set[str] | None = None) -> "_Sample":
        buckets = frozenset(unit.partition_bucket for unit in sample.units)
        if sample.state.schema.primary_keys:
            return cls(buckets, None)
        inputs = {file.file_name for file in sample.inputs}
        return cls(buckets, frozenset(inputs if added is None else added))

    def measure(self, table: Table, overlay: OverlayFileIO) -> MeasuredScan:
        """Read the sample twice, so that the caches are warm, and return the faster scan."""
        scan = table.scan()
        splits = list(self._select(scan.plan(use_indexes=False)))
        scans = []
        for _ in range(2):
            earlier, start = replace(overlay.counts), perf_counter()
            rows = sum(batch.num_rows for batch in scan.read_splits(splits))
            scans.append(
                MeasuredScan(
                    files=overlay.counts.files - earlier.files,
                    requests=overlay.counts.requests - earlier.requests,
                    bytes=overlay.counts.bytes - earlier.bytes,
                    rows=rows,
                    seconds=round(perf_counter() - start, 3),
                )
            )
        return min(scans, key=lambda each: each.seconds)

    def _select(self, splits: Sequence[BucketSplit]) -> Iterator[BucketSplit]:
        for split in splits:
            if split.partition_bucket in self.buckets:
                names = self.names
                files = [x for x in split.files if names is None or x.file_name in names]
                yield replace(split, files=tuple(files))

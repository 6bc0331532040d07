"""Plans reads of chain tables: merges delta partitions with the snapshot partition before them.

See docs/format/chain-tables.md#reads.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from itertools import chain, pairwise

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options.core_options import CHAIN_TABLE_CHAIN_PARTITION_KEYS
from paimon_orch.format.partition_time import PartitionTimes
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import iterate_fields
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit, FileOrigin

Values = tuple[object, ...]

_PATTERN_COLUMN = re.compile(r"\$(\w+)")
_MAX_PATTERN_COLUMNS = 3


def find_chain_keys(schema: TableSchema) -> list[str]:
    """Return the partition columns that order the partitions of a group: the last ones, or all.

    Raises :class:`InputError` if the option names other columns.
    """
    names = schema.typed_options.get(CHAIN_TABLE_CHAIN_PARTITION_KEYS)
    if not names:
        return list(schema.partition_keys)
    if schema.partition_keys[-len(names) :] != names:
        raise InputError(
            f"option {CHAIN_TABLE_CHAIN_PARTITION_KEYS.key!r} = {','.join(names)!r} must name the "
            f"last partition columns, in the order of the table: {', '.join(schema.partition_keys)}"
        )
    return list(names)


def check_chain_support(deltas: TableSchema, anchors: TableSchema) -> None:
    """Check that both branches have the same keys, and that their files can be merged.

    Raises :class:`InputError` or :class:`UnsupportedError`.
    """
    delta_key, anchor_key = (", ".join(schema.primary_keys) for schema in (deltas, anchors))
    if delta_key != anchor_key:
        raise InputError(
            "the branches of a chain table must have the same primary key, but the delta branch "
            f"has ({delta_key}), the snapshot branch ({anchor_key})"
        )
    for schema in (deltas, anchors):
        if not schema.has_runs_sorted_by_key:
            raise UnsupportedError(
                "chain tables without a primary key or with 'pk-clustering-override' = true are "
                "not supported"
            )
    if deltas.typed_options.merge_engine != anchors.typed_options.merge_engine:
        raise UnsupportedError(
            "chain tables whose branches have different merge engines are not supported: the "
            f"delta branch has {deltas.typed_options.merge_engine!r}, the snapshot branch "
            f"{anchors.typed_options.merge_engine!r}"
        )
    if _list_ids(deltas) != _list_ids(anchors):
        raise UnsupportedError(
            "chain tables whose branches have the same columns with other field ids are not "
            "supported, as Java Paimon reads values of the snapshot branch as other columns; apply "
            "the same schema changes in the same order to both branches"
        )


def _list_ids(schema: TableSchema) -> list[int]:
    return [field.id for field in iterate_fields(schema.fields)]


@dataclass(frozen=True, slots=True)
class ChainPartition:
    """A partition, with the values that select its chain, and its position in the chain."""

    serialized: bytes
    group: Values
    position: Values


@dataclass(slots=True)
class ChainPartitions:
    """The partitions of a chain table's snapshot and delta branch, by group."""

    schema: TableSchema
    chain_keys: Sequence[str]
    anchors: dict[Values, list[ChainPartition]] = field(default_factory=dict)
    """The partitions of the snapshot branch, in chain order."""
    deltas: dict[Values, list[ChainPartition]] = field(default_factory=dict)
    """The partitions of the delta branch, in chain order."""

    @classmethod
    def of(
        cls, schema: TableSchema, anchors: Iterable[bytes], deltas: Iterable[bytes]
    ) -> "ChainPartitions":
        """Group the serialized partitions of both branches."""
        keys = find_chain_keys(schema)
        partitions = cls(schema, keys)
        partitions.anchors = partitions._group(anchors)
        partitions.deltas = partitions._group(deltas)
        return partitions

    def parse(self, serialized: bytes) -> ChainPartition:
        """Return the group and position of a partition.

        Raises :class:`UnsupportedError` if a value is null, because it has no place in an order.
        """
        values = self.schema.decode_partition(serialized)
        if any(value is None for value in values):
            raise UnsupportedError(
                f"partition {format_partition(serialized, self.schema)}: chain tables with a "
                "null partition value are not supported, because null has no place in the order of "
                "partitions; drop the partition"
            )
        groups = len(values) - len(self.chain_keys)
        return ChainPartition(serialized, values[:groups], values[groups:])

    def find_anchor(self, partition: ChainPartition) -> ChainPartition | None:
        """Return the last partition of the snapshot branch before a partition, or None."""
        anchors = self.anchors.get(partition.group, [])
        index = bisect_left(anchors, partition.position, key=lambda p: p.position)
        return anchors[index - 1] if index else None

    def find_deltas(
        self, anchor: ChainPartition | None, partition: ChainPartition
    ) -> list[ChainPartition]:
        """Return the delta partitions after ``anchor``, up to and with ``partition``."""
        deltas = self.deltas.get(partition.group, [])
        start = 0
        if anchor is not None:
            start = bisect_right(deltas, anchor.position, key=lambda p: p.position)
        return deltas[start : bisect_right(deltas, partition.position, key=lambda p: p.position)]

    def check_order(self, group: Values) -> None:
        """Check that the order of a group's partitions is the order of their times.

        Java Paimon computes the names of the partitions between two times, so it misses others.
        Raises :class:`UnsupportedError` for partitions that it would miss.
        """
        fields = self.schema.select(self.chain_keys)
        times = PartitionTimes.of(fields, self.schema.typed_options)
        ordered = [
            (partition, times.read_values(partition.position))
            for partition in sorted(
                {*self.anchors.get(group, []), *self.deltas.get(group, [])},
                key=lambda partition: partition.position,
            )
        ]
        for partition, moment in ordered:
            if moment is None or not _is_named_by_time(times, partition.position, moment):
                unit = "day" if len(self.chain_keys) == 1 else "hour"
                raise UnsupportedError(
                    f"partition {format_partition(partition.serialized, self.schema)}: the "
                    f"values of {', '.join(self.chain_keys)} are not the start of a {unit} by "
                    f"'partition.timestamp-pattern' = {times.pattern!r} and 'partition.timestamp-"
                    "formatter', so Java Paimon cannot find the partitions of this chain"
                )
        for (_, earlier), (partition, later) in pairwise(ordered):
            if earlier is None or later is None or earlier >= later:
                raise UnsupportedError(
                    f"partition {format_partition(partition.serialized, self.schema)}: the "
                    "order of the values of chain partitions is not the order of their times"
                )

    def _group(self, serialized: Iterable[bytes]) -> dict[Values, list[ChainPartition]]:
        groups = defaultdict[Values, list[ChainPartition]](list)
        for partition in map(self.parse, dict.fromkeys(serialized)):
            groups[partition.group].append(partition)
        for partitions in groups.values():
            partitions.sort(key=lambda partition: partition.position)
        return dict(groups)


def _is_named_by_time(times: PartitionTimes, values: Values, moment: datetime) -> bool:
    """Return whether Java Paimon computes the values of a partition from its time."""
    if len(times.fields) == 1:
        if moment.time() != time.min:
            return False
    elif moment.replace(minute=0, second=0, microsecond=0) != moment:
        return False
    text = times.format_values(values)
    columns = _PATTERN_COLUMN.findall(times.pattern)
    if len(columns) > len(set(columns)) or len(columns) > _MAX_PATTERN_COLUMNS:
        return False  # the time of a match is exponential in the number of groups
    literals = _PATTERN_COLUMN.split(times.pattern)[::2]
    shape = "(.+)".join(map(re.escape, literals))
    match = re.fullmatch(shape, text or "")
    named = dict(zip(columns, match.groups(), strict=True)) if match else {}
    return named == times.format_columns(values)


def plan_chain_splits(
    partitions: ChainPartitions,
    selected: Sequence[bytes],
    anchors: Mapping[bytes, Sequence[BucketSplit]],
    deltas: Mapping[bytes, Sequence[BucketSplit]],
) -> Iterator[BucketSplit]:
    """Yield one split per bucket of the ``selected`` delta partitions.

    ``anchors`` and ``deltas`` are the files of both branches by partition. Raises
    :class:`InputError` if the partitions to merge have different numbers of buckets.
    """
    checked = set[Values]()
    for partition in map(partitions.parse, selected):
        anchor = partitions.find_anchor(partition)
        if anchor is not None and partition.group not in checked:
            partitions.check_order(partition.group)
            checked.add(partition.group)
        sources = [] if anchor is None else [(anchors.get(anchor.serialized, ()), True)]
        sources += [
            (deltas.get(delta.serialized, ()), False)
            for delta in partitions.find_deltas(anchor, partition)
        ]
        yield from _merge_buckets(partitions.schema, partition.serialized, sources)


def _merge_buckets(
    schema: TableSchema, partition: bytes, sources: Iterable[tuple[Sequence[BucketSplit], bool]]
) -> Iterator[BucketSplit]:
    buckets = defaultdict[int, list[BucketSplit]](list)
    for splits, is_anchor in sources:
        for split in splits:
            buckets[split.bucket].append(with_origins(split, is_anchor=is_anchor))
    counts = {split.total_buckets for parts in buckets.values() for split in parts}
    if len(counts) > 1:
        raise InputError(
            f"partition {format_partition(partition, schema)}: the partitions of this chain "
            f"have different numbers of buckets, {', '.join(map(str, sorted(counts)))}, so their "
            "rows cannot be merged; rescale them to the same number"
        )
    for parts in buckets.values():
        yield replace(
            parts[0],
            partition=partition,
            files=tuple(chain.from_iterable(part.files for part in parts)),
            vectors=tuple(chain.from_iterable(part.vectors for part in parts)),
            origins=tuple(chain.from_iterable(part.origins for part in parts)),
        )


def with_origins(split: BucketSplit, *, is_anchor: bool) -> BucketSplit:
    """Return a split of one branch with the origins of its files."""
    origins = tuple(
        FileOrigin(file_name=file.file_name, partition=split.partition, is_anchor=is_anchor)
        for file in split.files
    )
    return replace(split, origins=origins)

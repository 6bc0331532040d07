"""Reads the live files of selected partitions as columns, and judges their buckets.

A judgment chooses buckets without objects for files. Up to five million manifest entries are read
and judged in this process. In larger tables, work units of an executor read the manifests and judge
the buckets in parts; this process then holds only the files of the chosen buckets.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.errors import wrap_decode_errors
from paimon_orch.format.arrays import Indices, to_numpy
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    IndexManifestEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_orch.format.manifest.live_files import LiveFiles, collect_live_files
from paimon_orch.format.manifest.manifest_entry import FileKind
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.common.manifest_units import (
    IDENTITY_FIELDS,
    EntryUnit,
    combine_codes,
    compute_part,
    compute_parts,
    count_entries,
    count_parts,
    decode_table,
    encode_table,
    read_identity_columns,
    split_by_part,
    split_manifests,
    to_array,
)
from paimon_orch.table.metadata.live_buckets import LiveBuckets, group_vectors
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import (
    PartitionSelection,
    SelectsPartitions,
    list_requested_columns,
    plan_live_buckets,
)
from paimon_orch.table.table_state import TableState

MAX_ENTRIES_IN_PROCESS = 5_000_000
"""The manifest entries of larger tables are read by work units of an executor."""
_AVRO_START = b"Obj"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """The chosen buckets of those that were judged, and JSON values about all of these."""

    chosen: LiveBuckets
    values: Mapping[str, Any] = field(default_factory=dict)


Judge = Callable[[LiveBuckets], Judgment]
"""Judges some buckets, each of which has all its files; a picklable function of its argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBuckets:
    """The chosen buckets of a scan, ordered by their first file."""

    chosen: LiveBuckets
    values: tuple[Mapping[str, Any], ...]
    """The values of each part."""

    def sum(self, name: str) -> int:
        """Return the sum of a number of each part."""
        return sum(values[name] for values in self.values)


@dataclass(kw_only=True)
class BucketScan:
    """The buckets of the selected partitions of a snapshot."""

    state: TableState
    snapshot: Snapshot
    request: SelectsPartitions
    executor: Executor
    now: datetime
    """The time of the scan, with a time zone; judges compute ages from it."""
    # a copy with another request must not keep these
    _judged: list[tuple[Judge, JudgedBuckets]] = field(default_factory=list, init=False)
    _built: tuple[LiveFiles, list[BucketSplit]] | None = field(default=None, init=False)
    _metas: list[ManifestFileMeta] | None = field(default=None, init=False)
    _live: LiveBuckets | None = field(default=None, init=False)

    @property
    def schema(self) -> TableSchema:
        """Return the schema of the table's state."""
        return self.state.schema

    def judge(self, judge: Judge) -> JudgedBuckets:
        """Judge all buckets; a judgment of :meth:`judge_together` is not repeated."""
        self.judge_together([judge])
        return next(judged for known, judged in self._judged if known == judge)

    def judge_together(self, judges: Iterable[Judge]) -> None:
        """Judge all buckets by several judges, reading the manifests once."""
        pending = [judge for judge in judges if all(judge != known for known, _ in self._judged)]
        if not pending:
            return
        if count_entries(self._read_metas()) > MAX_ENTRIES_IN_PROCESS:
            results = self._judge_in_units(pending)
        else:
            live = self._read_live()
            results = [_combine(self, [_pack(live, judge(live))]) for judge in pending]
        self._judged += zip(pending, results, strict=True)

    def list_partitions(self) -> list[bytes]:
        """Return the partitions that have files."""
        values = self.judge(PARTITION_JUDGE).values
        names = dict.fromkeys(name for part in values for name in part["partitions"])
        return [bytes.fromhex(name) for name in names]

    def build_splits(self, buckets: LiveBuckets) -> list[BucketSplit]:
        """Return the objects of chosen buckets; those of equal files are built once."""
        files = buckets.groups.files
        if self._built is None or not _has_equal_places(self._built[0], files):
            self._built = files, buckets.build_splits()
        return self._built[1]

    @cached_property
    def _selection(self) -> PartitionSelection:
        return PartitionSelection(self.schema, self.request)

    def _read_metas(self) -> Sequence[ManifestFileMeta]:
        """Return the manifests of the selected partitions; the first call reads their lists."""
        if self._metas is None:
            metas = self.state.manifests.manifests(self.snapshot)
            self._metas = list(self._selection.build_manifest_selector(self.state)(metas))
        return self._metas

    def _read_live(self) -> LiveBuckets:
        """Return the live files of the selected partitions; the first call reads the manifests."""
        if self._live is None:
            self._live = plan_live_buckets(
                self.state, self.schema, self.snapshot, self.request, metas=self._read_metas()
            )
        return self._live

    def _judge_in_units(self, judges: Sequence[Judge]) -> list[JudgedBuckets]:
        manifests, metas = self.state.manifests, self._read_metas()
        units: list[EntryUnit | str] = [*split_manifests(enumerate(metas))]
        if self.snapshot.index_manifest is not None:
            units.append(self.snapshot.index_manifest)
        context = _Context(
            manifests=manifests,
            schema=self.schema,
            snapshot=self.snapshot,
            selection=self._selection,
            metas=tuple(metas),
            parts=count_parts(metas),
        )
        results = self.executor.shuffle(
            partial(_read_unit, context),
            units,
            partial(_judge_part, context, tuple(judges)),
            parts=context.parts,
            label=f"plan with the files of {self.state.identifier}",
            work_bytes=sum(meta.file_size for meta in metas),
        )
        results = results or [_judge_part(context, judges, ())]  # there are no entries
        parts = [_PackedJudgment.decode_all(result, context.metas) for result in results]
        return [_combine(self, [part[number] for part in parts]) for number in range(len(judges))]


@dataclass(frozen=True, slots=True)
class _PartitionJudge:
    """Chooses no bucket, and lists the partitions."""

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        partitions = [partition.hex() for partition in buckets.partitions]
        nothing = buckets.take(np.zeros(0, np.int64))
        return Judgment(chosen=nothing, values={"partitions": partitions})


PARTITION_JUDGE: Judge = _PartitionJudge()
"""The judge of :meth:`BucketScan.list_partitions`, for :meth:`BucketScan.judge_together`."""


def scan_latest_buckets(
    state: TableState,
    request: SelectsPartitions,
    executor: Executor | None = None,
    *,
    now: datetime | None = None,
) -> BucketScan | None:
    """Return a scan of the snapshot of a state; None if the table has no snapshot.

    :param executor: used only for large tables; by default this process
    :param now: the time of the scan; None means the current time
    """
    if state.snapshot is None:
        return None
    return BucketScan(
        state=state,
        snapshot=state.snapshot,
        request=request,
        executor=executor or InProcessExecutor(),
        now=now or datetime.now().astimezone(),
    )


def _has_equal_places(one: LiveFiles, other: LiveFiles) -> bool:
    return np.array_equal(one.positions, other.positions) and np.array_equal(
        one.manifest_codes, other.manifest_codes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PackedJudgment:
    """A judgment with the chosen files only."""

    files: LiveFiles
    vectors: Sequence[IndexManifestEntry]
    values: Mapping[str, Any]

    def encode(self) -> bytes:
        parts = (
            json.dumps(self.values).encode(),
            encode_table(self.files.to_table()),
            encode_index_manifest(self.vectors) if self.vectors else b"",
        )
        return b"".join(len(part).to_bytes(8, "big") + part for part in parts)

    @classmethod
    def decode_all(cls, data: bytes, metas: Sequence[ManifestFileMeta]) -> "list[_PackedJudgment]":
        """Return the judgments of a part; ``data`` has three items of each."""
        items: list[bytes] = []
        start = 0
        while start < len(data):
            end = start + 8 + int.from_bytes(data[start : start + 8], "big")
            items.append(data[start + 8 : end])
            start = end
        return [
            cls(
                files=LiveFiles.from_table(decode_table(table), metas),
                vectors=decode_index_manifest(vectors, "a judgment") if vectors else (),
                values=json.loads(values),
            )
            for values, table, vectors in zip(items[::3], items[1::3], items[2::3], strict=True)
        ]


def _pack(judged: LiveBuckets, judgment: Judgment) -> _PackedJudgment:
    chosen = judgment.chosen
    vectors: list[IndexManifestEntry] = []
    if judged.vectors:
        vectors = [entry for _, entries in chosen.iterate_vectors() for entry in entries]
    files = chosen.groups.files.take(chosen.groups.rows)
    return _PackedJudgment(files=files, vectors=vectors, values=judgment.values)


def _combine(scan: BucketScan, parts: Sequence[_PackedJudgment]) -> JudgedBuckets:
    vectors = group_vectors(entry for part in parts for entry in part.vectors)
    files = parts[0].files
    if len(parts) > 1:
        table = pa.concat_tables([part.files.to_table() for part in parts])
        files = LiveFiles.from_table(table, files.manifests)
    groups = files.sort().group_by_bucket()
    manifests = scan.state.manifests
    return JudgedBuckets(
        chosen=LiveBuckets(scan.snapshot, manifests, scan.schema, groups, vectors),
        values=tuple(part.values for part in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What all units of a scan share."""

    manifests: ManifestReader
    schema: TableSchema
    snapshot: Snapshot
    selection: PartitionSelection
    metas: tuple[ManifestFileMeta, ...]
    parts: int

    @property
    def has_deletes(self) -> bool:
        """Return whether a manifest has DELETE entries, to which ADD entries are compared."""
        return any(meta.num_deleted_files for meta in self.metas)


def _read_unit(context: _Context, unit: EntryUnit | str) -> list[tuple[int, bytes]]:
    """Return the entries of manifests, or the deletion vectors of an index manifest, by part."""
    if isinstance(unit, str):
        return _read_vectors(context, unit)
    pieces: dict[int, list[pa.Table]] = {}
    for number, meta in unit.manifests:
        manifest = context.manifests.open(meta)
        rows = _select_rows(context, manifest)
        columns = list_requested_columns(context.schema, context.snapshot)
        files = collect_live_files((), [(number, manifest, rows)], **columns)
        table = files.to_table()
        if context.has_deletes:
            table = _append_identities(table, manifest, rows)
        parts = compute_parts(
            files.partitions, files.partition_codes.astype(np.int64), files.buckets, context.parts
        )
        for part, part_rows in split_by_part(table, parts):
            pieces.setdefault(part, []).append(part_rows)
    return [(part, encode_table(pa.concat_tables(tables))) for part, tables in pieces.items()]


def _select_rows(context: _Context, manifest: Manifest) -> Indices:
    select = context.selection.partition_selector
    if select is None:
        return np.arange(len(manifest))
    distinct, codes = manifest.encode_partitions()
    with wrap_decode_errors(context.manifests.paths.manifest_dir):
        selected = select(distinct)
    return np.flatnonzero(np.array([each in selected for each in distinct], bool)[codes])


def _append_identities(table: pa.Table, manifest: Manifest, rows: Indices) -> pa.Table:
    """Add the columns by which a DELETE entry matches an ADD entry."""
    columns = read_identity_columns(manifest)
    table = table.append_column("kind", pa.array(manifest.kinds[rows].astype(np.int8)))
    for name, kind in IDENTITY_FIELDS:
        values = pa.array(columns[name], kind).take(pa.array(rows))
        table = table.append_column(f"identity_{name}", values)
    return table


def _read_vectors(context: _Context, name: str) -> list[tuple[int, bytes]]:
    by_part: dict[int, list[IndexManifestEntry]] = {}
    for entry in context.manifests.index_manifest(name):
        if entry.index_type == DELETION_VECTORS_INDEX:
            part = compute_part(entry.partition, entry.bucket, context.parts)
            by_part.setdefault(part, []).append(entry)
    return [(part, encode_index_manifest(entries)) for part, entries in by_part.items()]


def _judge_part(context: _Context, judges: Sequence[Judge], pieces: Sequence[bytes]) -> bytes:
    """Judge the buckets of a part; the result has one packed judgment per judge."""
    tables, vectors = [], list[IndexManifestEntry]()
    for piece in pieces:
        if piece.startswith(_AVRO_START):
            vectors += decode_index_manifest(piece, "a part of the index manifest")
        else:
            tables.append(decode_table(piece))
    if tables:
        files = _exclude_deleted(pa.concat_tables(tables), context)
    else:
        columns = list_requested_columns(context.schema, context.snapshot)
        files = collect_live_files(context.metas, (), **columns)
    live = LiveBuckets(
        context.snapshot,
        context.manifests,
        context.schema,
        files.sort().group_by_bucket(),
        group_vectors(vectors),
    )
    return b"".join(_pack(live, judge(live)).encode() for judge in judges)


def _exclude_deleted(table: pa.Table, context: _Context) -> LiveFiles:
    """Return the ADD entries without a DELETE entry of the same file."""
    files = LiveFiles.from_table(table, context.metas)
    if not context.has_deletes:
        return files
    identities = files.partition_codes.astype(np.int64)
    names = [name for name in table.schema.names if name.startswith("identity_")]
    for column in ("buckets", "levels", *names):
        identities = combine_codes(identities, to_array(table[column]))
    is_delete = to_numpy(table["kind"]) == FileKind.DELETE
    deleted = np.zeros(int(identities.max(initial=-1)) + 1, bool)
    deleted[identities[is_delete]] = True
    return files.take(np.flatnonzero(~is_delete & ~deleted[identities]))

"""Checks the metadata of versions: files exist, and counts are consistent.

The driver reads manifest lists, index manifests and statistics; work units read manifests and judge
the buckets of a part in all versions.

See docs/format/invariants.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from paimon_orch.errors import PaimonError, raise_if_temporary
from paimon_orch.format.arrays import AnyArray, Indices
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    IndexManifestEntry,
)
from paimon_orch.format.manifest.index_source import covers_data_files
from paimon_orch.format.manifest.live_entries import filter_live_entries
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import MANIFEST_FORMAT
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.row_range_set import MAX_ROW_ID
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.manifest_units import EntryUnit, count_parts, split_manifests
from paimon_orch.steps.inspection.check_buckets import find_repeated_names, judge_part
from paimon_orch.steps.inspection.check_report import (
    CheckContext,
    CheckedVersion,
    CheckStep,
    PartReport,
    Problem,
    RowCounts,
)
from paimon_orch.steps.inspection.check_units import DeletionVectorUnit, hash_names, read_units
from paimon_orch.steps.inspection.findings import Finding
from paimon_orch.steps.inspection.stored_files import StoredFiles
from paimon_orch.storage import FileIO
from paimon_orch.table.cleanup.references import ReferenceReader
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshot, RetainedSnapshotKind
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.write.dynamic_bucket import MAX_BUCKETS

_HASH_BYTES = 4
_BUCKET_INDEXES = (HASH_INDEX, DELETION_VECTORS_INDEX)
_INDEX_MANIFESTS_PER_UNIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotContents:
    """The live files and index files of one version."""

    version: RetainedSnapshot
    schema: TableSchema
    entries: tuple[ManifestEntry, ...]
    index: tuple[IndexManifestEntry, ...]


@dataclass(slots=True, kw_only=True)
class _Version:
    """A version to check, and what the driver read of it."""

    version: RetainedSnapshot
    is_newest: bool = False
    schema: TableSchema | None = None
    base: list[ManifestFileMeta] = field(default_factory=list)
    delta: list[ManifestFileMeta] = field(default_factory=list)
    changelog: list[ManifestFileMeta] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    list_error: str | None = None
    changelog_error: str | None = None
    index_error: str | None = None


@dataclass(slots=True, kw_only=True)
class MetadataChecker:
    """Checks the metadata of versions; add all versions, then check them together."""

    io: FileIO
    reader: ReferenceReader
    executor: Executor
    label: str
    """The name of the table in the label of the executor's job."""
    data_files: int = 0
    """The number of distinct live files of the versions that could be read."""
    _versions: list[_Version] = field(default_factory=list)
    _previous: dict[int, int] = field(default_factory=dict)
    _schemas: list[TableSchema] = field(default_factory=list)
    _layouts: list[int] = field(default_factory=list)
    _manifests: dict[ManifestFileMeta, int] = field(default_factory=dict)
    """The numbers of manifests; lists that state something else about one have other numbers."""
    _index_manifests: dict[str, int] = field(default_factory=dict)
    _index_problems: dict[tuple[str, int], list[Problem]] = field(default_factory=dict)
    _stored: StoredFiles = field(init=False)

    def __post_init__(self) -> None:
        self._stored = StoredFiles(self.io)

    @property
    def _paths(self) -> TablePaths:
        return self.reader.manifests.paths

    @property
    def _unit_reader(self) -> ManifestReader:
        """Return the reader of units, which read each manifest once."""
        return ManifestReader(self.io, self._paths)

    def add(
        self,
        version: RetainedSnapshot,
        schemas: SchemaStore,
        previous: int | None = None,
        *,
        newest_schema: int | None = None,
    ) -> int:
        """Add a version and return its number; ``previous`` is the number of the snapshot before.

        Readers use the newest schema for the newest snapshot, and so does its check: it is checked
        with ``newest_schema``, which is None for other versions. Reads the version's manifest lists
        and index manifest.
        """
        number = len(self._versions)
        checked = _Version(version=version, is_newest=newest_schema is not None)
        self._versions.append(checked)
        snapshot = version.snapshot
        try:
            checked.schema = schemas.get(snapshot.schema_id)
            if newest_schema is not None:
                checked.schema = schemas.get(newest_schema)
            if version.state_lists:
                checked.delta = self.reader.delta(version)
                state = self.reader.state(version)
                checked.base = state[: len(state) - len(checked.delta)]
        except PaimonError as error:
            raise_if_temporary(error)
            checked.list_error = str(error)
            return number
        try:
            checked.changelog = self.reader.changelog(version)
        except PaimonError as error:
            raise_if_temporary(error)
            checked.changelog_error = str(error)
        try:
            checked.problems += self._check_index(version, checked.schema)
        except PaimonError as error:
            raise_if_temporary(error)
            checked.index_error = str(error)
        if previous is not None and snapshot.id == self._versions[previous].version.snapshot.id + 1:
            self._previous[number] = previous
        return number

    def check(self) -> list[list[Finding]]:
        """Check all versions; return the findings of each, in the order of the steps."""
        reports = self._judge_parts()
        failures = {
            number: failure for report in reports for number, failure in report.failures.items()
        }
        formats = {number: name for report in reports for number, name in report.formats.items()}
        contradictions = {
            n: text for report in reports for n, text in report.contradictions.items()
        }
        errors = [self._find_error(version, failures) for version in self._versions]
        for report in reports:
            for number, problems in report.problems.items():
                self._versions[number].problems += problems
        self._add_bucket_counts(reports)
        findings = []
        for number, (version, error) in enumerate(zip(self._versions, errors, strict=True)):
            if error is None:
                counts = RowCounts()
                for report in reports:
                    counts.add(report.counts.get(number, RowCounts()))
                previous = self._previous.get(number)
                if previous is not None and errors[previous] is not None:
                    previous = None
                has_different_base = any(number in report.different_bases for report in reports)
                version.problems += self._check_counts(version, counts)
                version.problems += self._check_statistics(version)
                version.problems += self._check_manifest_formats(version, formats)
                version.problems += self._check_manifest_lists(version, contradictions)
                version.problems += self._check_successor(
                    version, previous, has_different_base=has_different_base
                )
            else:
                version.problems = [Problem(step=CheckStep.READ, rule="unreadable", text=error)]
            findings.append(list(_to_findings(version)))
        return findings

    def read_contents(self, number: int) -> SnapshotContents | None:
        """Read the live files of a version again as objects; None for changelogs."""
        version = self._versions[number]
        retained = version.version
        if retained.kind is RetainedSnapshotKind.CHANGELOG or version.schema is None:
            return None
        try:
            manifests = self.reader.manifests
            entries = manifests.entries([*version.base, *version.delta])
            name = retained.index_manifest
            index = () if name is None else tuple(manifests.index_manifest(name))
        except PaimonError as error:  # check reports it
            raise_if_temporary(error)
            return None
        return SnapshotContents(
            version=retained,
            schema=version.schema,
            entries=tuple(filter_live_entries(entries)),
            index=index,
        )

    def _judge_parts(self) -> list[PartReport]:
        context = self._build_context()
        units = self._build_units()
        metas = list(self._manifests)
        work_bytes = sum(meta.file_size for meta in metas)
        parts = count_parts(metas)
        types = [field.type for schema in self._schemas[:1] for field in schema.partition_fields]
        results = self.executor.shuffle(
            partial(read_units, self._unit_reader, parts=parts, partition_types=types),
            units,
            partial(judge_part, context),
            parts=parts,
            label=f"check the files of {self.label}",
            work_bytes=work_bytes,
        )
        reports = list(map(PartReport.decode, results))
        hashes = np.concatenate([np.zeros(0, np.uint64), *(r.name_hashes for r in reports)])
        distinct, counts = np.unique(hashes, return_counts=True)
        self.data_files = len(distinct)
        names = sorted({name for report in reports for name in report.repeated_names})
        suspects = np.union1d(distinct[counts > 1], hash_names(names))
        if len(suspects):
            results = self.executor.shuffle(
                partial(read_units, self._unit_reader, parts=1, name_hashes=suspects),
                [unit for unit in units if isinstance(unit, EntryUnit)],
                partial(find_repeated_names, context),
                parts=1,
                label=f"find repeated names of files of {self.label}",
                work_bytes=work_bytes,
            )
            reports += map(PartReport.decode, results)
        return reports

    def _build_context(self) -> CheckContext:
        return CheckContext(
            io=self.io,
            root=self._paths.root,
            schemas=tuple(self._schemas),
            versions=tuple(
                self._describe(number, version) for number, version in enumerate(self._versions)
            ),
        )

    def _describe(self, number: int, version: _Version) -> CheckedVersion | None:
        """Return a version as units need it; assigns numbers to its manifests."""
        if version.schema is None or version.list_error is not None:
            return None
        base, delta, changelog = map(
            self._number_manifests, (version.base, version.delta, version.changelog)
        )
        if version.changelog_error is not None or version.index_error is not None:
            return None
        schema = self._schemas.index(version.schema)
        retained = version.version
        return CheckedVersion(
            label=str(retained),
            schema=schema,
            layout=self._layouts[schema],
            base=base,
            delta=delta,
            changelog=changelog,
            index_manifest=self._index_manifests.get(retained.index_manifest or ""),
            previous=self._previous.get(number),
            is_changelog=retained.kind is RetainedSnapshotKind.CHANGELOG,
            keeps_changelog=retained.keeps_changelog,
            next_row_id=retained.snapshot.next_row_id or 0,
        )

    def _number_manifests(self, metas: Sequence[ManifestFileMeta]) -> Indices:
        known = self._manifests
        return np.array([known.setdefault(meta, len(known)) for meta in metas], np.int64)

    def _add_schema(self, schema: TableSchema) -> int:
        """Return the number of the first schema with the same directories and files."""
        if schema not in self._schemas:
            layouts = [(s.partition_fields, s.options) for s in self._schemas]
            layout = (schema.partition_fields, schema.options)
            same = layouts.index(layout) if layout in layouts else len(self._schemas)
            self._schemas.append(schema)
            self._layouts.append(same)
        return self._layouts[self._schemas.index(schema)]

    def _build_units(self) -> list[EntryUnit | DeletionVectorUnit]:
        units: list[EntryUnit | DeletionVectorUnit] = [
            *split_manifests((number, meta) for meta, number in self._manifests.items())
        ]
        indexes = [(number, name) for name, number in self._index_manifests.items()]
        for start in range(0, len(indexes), _INDEX_MANIFESTS_PER_UNIT):
            part = indexes[start : start + _INDEX_MANIFESTS_PER_UNIT]
            units.append(DeletionVectorUnit(tuple(part)))
        return units

    def _find_error(
        self, version: _Version, failures: Mapping[int, tuple[bool, str]]
    ) -> str | None:
        """Return the first error that a reader of the version would meet."""
        if version.list_error is not None:
            return version.list_error
        for meta in (*version.base, *version.delta):
            failure = failures.get(self._manifests[meta])
            if failure is not None:
                return failure[1]
        if version.changelog_error is not None:
            return version.changelog_error
        for meta in version.changelog:
            is_missing, text = failures.get(self._manifests[meta], (True, None))
            if text is not None:
                if is_missing and not version.version.keeps_changelog:
                    break
                return text
        return version.index_error

    def _add_bucket_counts(self, reports: Sequence[PartReport]) -> None:
        """Find partitions whose files have different numbers of buckets."""
        totals: dict[bytes, dict[int, AnyArray]] = {}
        for report in reports:
            for (partition, total), bits in report.bucket_counts.items():
                versions = np.unpackbits(bits)
                known = totals.setdefault(partition, {})
                known[total] = known[total] | versions if total in known else versions
        for partition, by_total in totals.items():
            if len(by_total) == 1:
                continue
            for number in np.flatnonzero(sum(by_total.values()) > 1).tolist():
                version = self._versions[number]
                assert version.schema is not None
                numbers = " and ".join(
                    str(total) for total in sorted(by_total) if by_total[total][number]
                )
                name = format_partition(partition, version.schema) or "table"
                text = f"its files have different numbers of buckets: {numbers}"
                version.problems.append(
                    Problem(
                        step=CheckStep.BUCKET_COUNTS, rule="bucket", place=f", {name}", text=text
                    )
                )

    def _check_counts(self, version: _Version, counts: RowCounts) -> Iterator[Problem]:
        retained, snapshot = version.version, version.version.snapshot
        if (retained.keeps_changelog or counts.changelog_entries) and (
            snapshot.changelog_record_count or 0
        ) != counts.changelog:
            yield Problem(
                step=CheckStep.CHANGELOG,
                rule="record-count",
                text=f"changelogRecordCount is {snapshot.changelog_record_count}, "
                f"but the changelog files have {counts.changelog} rows",
            )
        if retained.kind is RetainedSnapshotKind.CHANGELOG:
            return
        numbers = (
            ("totalRecordCount", snapshot.total_record_count, counts.total),
            ("deltaRecordCount", snapshot.delta_record_count, counts.added - counts.deleted),
        )
        for order, (name, expected, actual) in enumerate(numbers):
            if expected != actual:
                text = f"{name} is {expected}, but the files have {actual} rows"
                yield Problem(
                    step=CheckStep.RECORD_COUNTS, order=(order,), rule="record-count", text=text
                )
        if (snapshot.next_row_id or 0) >= MAX_ROW_ID:
            text = (
                f"nextRowId is {snapshot.next_row_id}, and no ids above {MAX_ROW_ID - 1} are "
                "assigned, so no rows can be added; append its rows to a new table"
            )
            yield Problem(step=CheckStep.RECORD_COUNTS, order=(3,), rule="row-ids", text=text)
        if snapshot.commit_kind is CommitKind.COMPACT and counts.added > counts.deleted:
            text = f"a compaction wrote {counts.added} rows for {counts.deleted} rows"
            yield Problem(step=CheckStep.RECORD_COUNTS, order=(2,), rule="compaction", text=text)

    def _check_manifest_formats(
        self, version: _Version, formats: Mapping[int, str]
    ) -> Iterator[Problem]:
        """Check that the newest snapshot has only manifests that Java reads."""
        if not version.is_newest or version.schema is None:
            return
        expected, reader = version.schema.typed_options.get(MANIFEST_FORMAT), self.reader.manifests
        others = {
            meta.file_name: formats[number]
            for meta in (*version.base, *version.delta)
            if (number := self._manifests[meta]) in formats
        }
        snapshot = version.version.snapshot
        names = snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.index_manifest
        others |= {name: reader.find_format(name) for name in names if name is not None}
        others = {name: kind for name, kind in others.items() if kind != expected}
        if others:
            name, kind = min(others.items())
            yield Problem(
                step=CheckStep.MANIFEST_FORMATS,
                rule="manifest-format",
                text=f"{len(others)} of its manifests, such as {name} ({kind}), have another format "
                f"than {MANIFEST_FORMAT.key!r} = {expected!r}, and Java Paimon cannot read them; "
                "compact-manifests writes them again",
            )

    def _check_manifest_lists(
        self, version: _Version, contradictions: Mapping[int, str]
    ) -> Iterator[Problem]:
        """Check that readers skip no manifest by what a list states about it."""
        for order, meta in enumerate((*version.base, *version.delta, *version.changelog)):
            text = contradictions.get(self._manifests[meta])
            if text is not None:
                yield Problem(
                    step=CheckStep.MANIFEST_LISTS,
                    order=(order,),
                    rule="manifest-list",
                    text=f"its manifest list contradicts {meta.file_name}: {text}; filtered reads "
                    "may skip its files",
                )

    def _check_successor(
        self, version: _Version, previous: int | None, *, has_different_base: bool
    ) -> Iterator[Problem]:
        """Check a snapshot against the previous snapshot."""
        if previous is None:
            return
        before, after = self._versions[previous].version.snapshot, version.version.snapshot
        if after.total_record_count != before.total_record_count + after.delta_record_count:
            yield Problem(
                step=CheckStep.SUCCESSOR,
                order=(0,),
                rule="record-count",
                text=f"totalRecordCount of snapshot {after.id} is {after.total_record_count}, "
                f"but the previous snapshot has {before.total_record_count} rows "
                f"and the delta {after.delta_record_count}",
            )
        if has_different_base:
            yield Problem(
                step=CheckStep.SUCCESSOR,
                order=(1,),
                rule="base",
                text=f"the base manifests of snapshot {after.id} do not have the files "
                f"of snapshot {before.id}",
            )

    def _check_index(self, version: RetainedSnapshot, schema: TableSchema) -> list[Problem]:
        layout, name = self._add_schema(schema), version.index_manifest
        if name is None:
            return []
        if (name, layout) not in self._index_problems:
            items = self.reader.manifests.index_manifest(name)
            if any(item.index_type == DELETION_VECTORS_INDEX for item in items):
                self._index_manifests.setdefault(name, len(self._index_manifests))
            self._index_problems[name, layout] = [
                *self._check_index_files(items, schema),
                *_check_ranges(items),
                *_check_row_ranges(items, version.snapshot.next_row_id),
            ]
        return self._index_problems[name, layout]

    def _check_index_files(
        self, items: Sequence[IndexManifestEntry], schema: TableSchema
    ) -> Iterator[Problem]:
        for order, item in enumerate(items):
            path = self._paths.index_file(schema, item)
            for rule, text in self._stored.check_file(path, item.file_size):
                yield Problem(step=CheckStep.INDEX_FILES, order=(order, 0), rule=rule, text=text)
            build_problem = partial(
                Problem, step=CheckStep.INDEX_FILES, rule="index", place=f", {item.file_name}"
            )
            if item.index_type == HASH_INDEX and item.file_size != _HASH_BYTES * item.row_count:
                yield build_problem(
                    order=(order, 1),
                    text=f"a file of {item.file_size} bytes cannot contain {item.row_count} hashes",
                )
            if item.global_index is None and item.index_type not in _BUCKET_INDEXES:
                yield build_problem(
                    order=(order, 4),
                    text=f"has the unknown type {item.index_type!r}, so readers ignore it",
                )
            if item.index_type == HASH_INDEX and not 0 <= item.bucket <= MAX_BUCKETS:
                yield build_problem(
                    order=(order, 3),
                    text=f"belongs to the bucket {item.bucket}, but dynamic buckets have numbers "
                    f"from 0 to {MAX_BUCKETS}, so no rows can be added to its partition; overwrite "
                    "the partition with its rows",
                )

    def _check_statistics(self, version: _Version) -> Iterator[Problem]:
        name = version.version.statistics
        if name is None or version.version.kind is RetainedSnapshotKind.CHANGELOG:
            return
        path = f"{self._paths.root}/statistics/{name}"
        try:
            json.loads(self.io.read_bytes(path))
        except (OSError, ValueError, RecursionError, PaimonError) as error:
            raise_if_temporary(error)
            yield Problem(
                step=CheckStep.STATISTICS,
                rule="statistics",
                text=f"{path} cannot be read: {error}",
            )


def _check_row_ranges(
    items: Sequence[IndexManifestEntry], next_row_id: int | None
) -> Iterator[Problem]:
    """Check the rows that indexes of columns cover.

    They are row ids of the table, or positions in the data files that the entry lists.
    """
    for order, item in enumerate(items):
        index = item.global_index
        if index is None:
            continue
        end = item.row_count if covers_data_files(item) else next_row_id
        if not 0 <= index.row_range_start <= index.row_range_end or (
            end is not None and index.row_range_end >= end
        ):
            yield Problem(
                step=CheckStep.INDEX_FILES,
                order=(order, 2),
                rule="index",
                place=f", {item.file_name}",
                text=f"covers the rows {index.row_range_start} to {index.row_range_end}, "
                f"but there are {end} rows",
            )


def _check_ranges(items: Sequence[IndexManifestEntry]) -> Iterator[Problem]:
    """Check that a data file has one deletion vector, and the number of vectors in index files."""
    names: set[str] = set()
    for order, item in enumerate(items):
        if item.index_type != DELETION_VECTORS_INDEX:
            continue
        place, ranges = f", {item.file_name}", item.ranges or ()
        if item.row_count != len(ranges):
            text = f"has {len(ranges)} deletion vectors, but its metadata has {item.row_count}"
            yield Problem(
                step=CheckStep.DELETION_VECTORS,
                order=(order, 0),
                rule="index",
                place=place,
                text=text,
            )
        for position, entry in enumerate(ranges):
            if entry.data_file in names:
                yield Problem(
                    step=CheckStep.DELETION_VECTORS,
                    order=(order, 1, position, 1),
                    rule="vector",
                    place=place,
                    text=f"{entry.data_file} has two deletion vectors",
                )
            names.add(entry.data_file)


def _to_findings(version: _Version) -> Iterator[Finding]:
    retained = version.version
    if retained.kind is not RetainedSnapshotKind.TAG and retained.name != str(retained.snapshot.id):
        yield Finding("id", retained.path, f"contains snapshot {retained.snapshot.id}")
    for problem in sorted(version.problems, key=lambda problem: (problem.step, problem.order)):
        yield Finding(problem.rule, f"{retained}{problem.place}", problem.text)

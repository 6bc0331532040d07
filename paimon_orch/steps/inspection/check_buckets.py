"""Judges the entries of some buckets in all versions of a check, as columns.

Entries of the same file in several manifests share one number, so that comparing two versions is
comparing two arrays. Objects are built for findings only.

See docs/format/invariants.md.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import PaimonError, raise_if_temporary
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.arrays import AnyArray, Indices, Int64Array, Mask
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.live_files import UNKNOWN
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind
from paimon_orch.format.paths import BLOB_SUFFIX, POSTPONE_BUCKET
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.common.manifest_units import combine_codes, to_array
from paimon_orch.steps.inspection.check_report import (
    CheckContext,
    CheckedVersion,
    CheckStep,
    PartReport,
    Problem,
    RowCounts,
    find_unreadable_manifest,
)
from paimon_orch.steps.inspection.check_units import PartContent, decode_pieces, hash_names
from paimon_orch.steps.inspection.checked_entries import CheckedEntries, find_first_rows
from paimon_orch.steps.inspection.key_overlaps import find_suspect_groups
from paimon_orch.steps.inspection.stored_files import (
    BucketDirectories,
    DirectoryListing,
    FileProblem,
    StoredFiles,
)
from paimon_orch.storage import FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.partition_directories import open_paths
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.write.dynamic_bucket import MAX_BUCKETS
from paimon_orch.table.write.next_sequences import MAX_SEQUENCE


def judge_part(context: CheckContext, pieces: Sequence[bytes]) -> bytes:
    """Judge the buckets of a part in all versions; the result is an encoded report."""
    content = decode_pieces(pieces)
    return _PartCheck.of(context, content).run().encode()


def find_repeated_names(context: CheckContext, pieces: Sequence[bytes]) -> bytes:
    """Find the files that are live several times; the pieces have all entries of their names."""
    content = decode_pieces(pieces)
    check = _PartCheck.of(context, content)
    for number, version in check.iterate_versions():
        if not version.is_changelog:
            live = check.entries.find_live_rows(version.state)
            check.report.problems[number] = check.find_repeated_names(version, live)
    return check.report.encode()


@dataclass(slots=True, kw_only=True)
class _PartCheck:
    context: CheckContext
    content: PartContent
    entries: CheckedEntries
    report: PartReport
    _live_files: tuple[int, Mask] | None = None
    _checked_runs: "_CheckedRuns | None" = None
    _places: Indices | None = None
    _needed: dict[int, Mask] = field(default_factory=dict)  # the contents of versions, by layout

    @classmethod
    def of(cls, context: CheckContext, content: PartContent) -> "_PartCheck":
        report = PartReport(
            failures=content.failures,
            formats=content.formats,
            contradictions=content.contradictions,
        )
        return cls(
            context=context,
            content=content,
            entries=CheckedEntries.of(content.entries),
            report=report,
        )

    def iterate_versions(self) -> Iterator[tuple[int, CheckedVersion]]:
        """Yield the versions whose manifests can be read."""
        for number, version in enumerate(self.context.versions):
            if version is not None and not find_unreadable_manifest(version, self.content.failures):
                yield number, version

    def run(self) -> PartReport:
        """Judge all versions, then the files of all versions together."""
        entries, report = self.entries, self.report
        is_live_name = np.zeros(len(entries.distinct_names), bool)
        is_repeated_name = is_live_name.copy()
        bucket_counts = _BucketCounts.of(entries, len(self.context.versions))
        for number, version in self.iterate_versions():
            live = entries.find_live_rows(version.state)
            report.counts[number] = self._count_rows(version, live)
            for _, _, rows in self._find_stored_rows(version, live):
                is_needed = np.zeros(len(entries.content_rows), bool)
                self._needed.setdefault(version.layout, is_needed)[entries.contents[rows]] = True
            if version.is_changelog:
                continue
            is_live_name[entries.names[live]] = True
            is_repeated_name[np.flatnonzero(np.bincount(entries.names[live]) > 1)] = True
            bucket_counts.add(number, entries.contents[live])
            report.problems[number] = [
                *self._check_delta(number, version, live),
                *self._check_buckets(version, live),
                *self._check_deletion_vectors(version, live),
            ]
        self._check_files()
        report.bucket_counts = bucket_counts.encode()
        report.repeated_names = entries.distinct_names.filter(
            pa.array(is_repeated_name)
        ).to_pylist()
        report.name_hashes = hash_names(
            entries.distinct_names.filter(pa.array(is_live_name)).to_pylist()
        )
        return report

    def find_repeated_names(self, version: CheckedVersion, live: Indices) -> list[Problem]:
        """Return a problem for each name that several live files have."""
        names = self.entries.names[live]
        counts = np.bincount(names)
        first = np.full(len(counts), -1)
        first[names[::-1]] = live[::-1]
        return [
            Problem(
                step=CheckStep.NAMES,
                order=self.entries.order_of(version.state, int(first[name])),
                rule="add",
                text=f"{self.entries.distinct_names[name].as_py()} is live {counts[name]} times",
            )
            for name in np.flatnonzero(counts > 1).tolist()
        ]

    def _count_rows(self, version: CheckedVersion, live: Indices) -> RowCounts:
        entries = self.entries
        changelog, delta = entries.find_rows(version.changelog), entries.find_rows(version.delta)
        counts = RowCounts(
            changelog=self._sum_rows(changelog[entries.kinds[changelog] == FileKind.ADD]),
            changelog_entries=len(changelog),
        )
        if not version.is_changelog:
            is_added = entries.kinds[delta] == FileKind.ADD
            counts.total = self._sum_rows(live)
            counts.added = self._sum_rows(delta[is_added])
            counts.deleted = self._sum_rows(delta[~is_added])
        return counts

    def _sum_rows(self, rows: Indices) -> int:
        """Return a sum that cannot overflow: damaged metadata may have any numbers."""
        values = self.entries.row_counts[rows]
        return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())

    def _check_delta(
        self, number: int, version: CheckedVersion, live: Indices
    ) -> Iterator[Problem]:
        """Check the delta against the base, and the base against the previous snapshot."""
        entries = self.entries
        is_in_base = entries.to_flags(entries.find_live_rows(version.base))
        previous, self._live_files = self._live_files, (number, entries.to_flags(live))
        if (
            previous is not None
            and previous[0] == version.previous
            and not np.array_equal(is_in_base, previous[1])
        ):
            self.report.different_bases.append(number)
        delta = entries.find_rows(version.delta)
        files, is_added = entries.files[delta], entries.kinds[delta] == FileKind.ADD
        is_wrong = is_in_base[files] == is_added
        distinct, codes, counts = np.unique(files, return_inverse=True, return_counts=True)
        if (counts > 1).any():  # the outcome depends on the entries before
            state = dict(zip(distinct.tolist(), is_in_base[distinct].tolist(), strict=True))
            for index in np.flatnonzero(counts[codes] > 1).tolist():
                is_wrong[index] = state[files[index]] == is_added[index]
                state[files[index]] = bool(is_added[index])
        for index in np.flatnonzero(is_wrong).tolist():
            name = entries.get_value("name", delta[index])
            text = (
                f"adds {name}, which is already live"
                if is_added[index]
                else f"deletes {name}, which is not live"
            )
            yield Problem(
                step=CheckStep.DELTA,
                order=entries.order_of(version.delta, delta[index]),
                rule="add" if is_added[index] else "delete",
                text=text,
            )

    def _find_stored_rows(
        self, version: CheckedVersion, live: Indices
    ) -> Iterator[tuple[CheckStep, Indices, Indices]]:
        """Yield the entries whose files must exist, with their step and manifests."""
        entries = self.entries
        if version.keeps_changelog:
            rows = entries.find_rows(version.changelog)
            yield CheckStep.CHANGELOG_FILES, version.changelog, rows
        if version.is_changelog:
            delta = entries.find_rows(version.delta)
            added = delta[entries.kinds[delta] == FileKind.ADD]
            yield CheckStep.FILES, version.delta, added
        else:
            yield CheckStep.FILES, version.state, live

    def _check_files(self) -> None:
        """Check all files of all versions, each once, and add problems to the versions."""
        problems: dict[int, dict[int, list[FileProblem]]] = {}
        for layout, is_needed in self._needed.items():
            paths = open_paths(self.context.io, self.context.root)
            directories = BucketDirectories(paths, self.context.schemas[layout])
            rows = self.entries.content_rows[np.flatnonzero(is_needed)]
            problems[layout] = find_file_problems(self.context.io, self.entries, directories, rows)
        for number, version in self.iterate_versions() if any(problems.values()) else ():
            found = problems.get(version.layout, {})
            is_wrong = np.zeros(len(self.entries.content_rows), bool)
            is_wrong[list(found)] = True
            live = self.entries.find_live_rows(version.state)
            for step, manifests, rows in self._find_stored_rows(version, live):
                for row in rows[is_wrong[self.entries.contents[rows]]].tolist():
                    order = self.entries.order_of(manifests, row)
                    self.report.problems.setdefault(number, []).extend(
                        Problem(step=step, order=(*order, index), rule=rule, text=text)
                        for index, (rule, text) in enumerate(found[int(self.entries.contents[row])])
                    )

    def _check_buckets(self, version: CheckedVersion, live: Indices) -> Iterator[Problem]:
        """Check the bucket numbers, and the sorted runs of buckets that changed."""
        entries, schema = self.entries, self.context.schemas[version.schema]
        groups = entries.groups[live]
        first = np.full(len(entries.group_buckets), -1)
        first[groups[::-1]] = live[::-1]
        found = dict[int, list[FileProblem]]()
        for rule, errors in self._find_errors(version, live, first):
            for group, text in errors.items():
                found.setdefault(group, []).append((rule, text))
        for group, problems in found.items():
            partition = format_partition(entries.group_partitions[group], schema)
            order = entries.order_of(version.state, int(first[group]))
            for index, (rule, text) in enumerate(problems):
                yield Problem(
                    step=CheckStep.BUCKETS,
                    order=(*order, index),
                    rule=rule,
                    place=f", {partition} bucket {entries.group_buckets[group]}",
                    text=text,
                )

    def _find_errors(
        self, version: CheckedVersion, live: Indices, first: Indices
    ) -> Iterator[tuple[str, dict[int, str]]]:
        """Yield rules, and the errors of the buckets that violate them."""
        schema = self.context.schemas[version.schema]
        yield "bucket", self._find_impossible_buckets(first, schema)
        if schema.has_runs_sorted_by_key:
            yield "sorted-run", self._find_overlaps(version, live)
        if row_tracking_fields(schema):
            yield "row-ids", self._find_unassigned_ids(live, version.next_row_id)
            yield "row-ids", self._find_shared_ids(live, has_ranges=has_data_evolution(schema))
        yield "sequence", self._find_last_sequences(live)

    def _find_impossible_buckets(self, first: Indices, schema: TableSchema) -> dict[int, str]:
        """Return the errors of buckets; ``first`` has an entry of each, or -1."""
        present = np.flatnonzero(first >= 0)
        numbers = self.entries.group_buckets[present]
        totals = self.entries.table["total_buckets"].to_numpy()[first[present]]
        is_outside = (totals > 0) & (totals <= numbers)
        errors = {
            group: f"the partition has only {total} buckets"
            for group, total in zip(present[is_outside].tolist(), totals[is_outside], strict=True)
        }
        if schema.is_bucket_dynamic:
            text = (
                f"dynamic buckets have numbers from 0 to {MAX_BUCKETS}, so no rows can be added to "
                "the partition; overwrite it with its rows"
            )
            is_wrong = (numbers < 0) | (numbers > MAX_BUCKETS)
            errors |= dict.fromkeys(present[is_wrong].tolist(), text)
        return errors

    def _find_unassigned_ids(self, live: Indices, next_row_id: int) -> dict[int, str]:
        """Return the errors of buckets with row ids that the snapshot has not assigned."""
        entries = self.entries
        first_ids = entries.table["first_row_id"].to_numpy()[live]
        counts = entries.row_counts[live]
        is_wrong = (first_ids != UNKNOWN) & (first_ids > next_row_id - counts)  # sums may overflow
        errors = dict[int, str]()
        groups, firsts = np.unique(entries.groups[live[is_wrong]], return_index=True)
        for group, index in zip(groups.tolist(), firsts.tolist(), strict=True):
            name = entries.get_value("name", int(live[is_wrong][index]))
            last = int(first_ids[is_wrong][index]) + int(counts[is_wrong][index]) - 1
            errors[group] = (
                f"file {name} has row ids up to {last}, but the snapshot has "
                f"assigned only ids below {next_row_id}; new rows would get the same ids"
            )
        return errors

    def _find_last_sequences(self, live: Indices) -> dict[int, str]:
        """Return the errors of buckets to which no rows can be added: no number would be new."""
        entries = self.entries
        numbers = entries.table["max_sequence"].to_numpy()[live]
        errors = dict[int, str]()
        for row in live[numbers > MAX_SEQUENCE].tolist():
            name, number = (entries.get_value(key, row) for key in ("name", "max_sequence"))
            text = (
                f"file {name} has the sequence number {number}, and few or no numbers are greater, "
                "so no rows can be added; overwrite the partition with its rows"
            )
            errors.setdefault(int(entries.groups[row]), text)
        return errors

    def _find_shared_ids(self, live: Indices, *, has_ranges: bool) -> dict[int, str]:
        """Return the errors of buckets with files whose row ids are those of other rows.

        With ``has_ranges``, files of a bucket may have columns of the same range of rows.
        """
        entries = self.entries
        all_first_ids = entries.table["first_row_id"].to_numpy()
        live = live[all_first_ids[live] != UNKNOWN]
        names = pc.ends_with(entries.distinct_names, BLOB_SUFFIX).to_numpy(zero_copy_only=False)
        is_blob = names[entries.names[live]] if len(live) else np.zeros(0, bool)
        errors = self._find_misplaced_blobs(live[~is_blob], live[is_blob], all_first_ids)
        live = live[~is_blob]
        starts, groups = all_first_ids[live], entries.groups[live]
        ends = starts + entries.row_counts[live]
        order = np.lexsort((groups, ends, starts))
        starts, ends, groups, live = starts[order], ends[order], groups[order], live[order]
        is_same = (starts[1:] == starts[:-1]) & (ends[1:] == ends[:-1])
        is_same &= (groups[1:] == groups[:-1]) & has_ranges
        for index in np.flatnonzero((starts[1:] < ends[:-1]) & ~is_same).tolist():
            one, other = (entries.get_value("name", int(live[n])) for n in (index, index + 1))
            is_partial = has_ranges and groups[index] == groups[index + 1]
            what = "only a part of their row ids in common" if is_partial else "the same row ids"
            errors.setdefault(int(groups[index]), f"files {one} and {other} have {what}")
        return errors

    def _find_misplaced_blobs(
        self, files: Indices, blobs: Indices, first_ids: Int64Array
    ) -> dict[int, str]:
        """Return the errors of buckets with BLOB files whose rows are not in one data file."""
        entries = self.entries
        order = np.lexsort((first_ids[files], entries.groups[files]))
        files = files[order]
        keys = np.rec.fromarrays([entries.groups[files], first_ids[files]])
        wanted = np.rec.fromarrays([entries.groups[blobs], first_ids[blobs]])
        indices = np.searchsorted(keys, wanted, "right") - 1
        ends = np.append(first_ids[files] + entries.row_counts[files], 0)[indices]
        groups = np.append(entries.groups[files], -1)[indices]
        is_misplaced = (indices < 0) | (groups != entries.groups[blobs])
        is_misplaced |= ends < first_ids[blobs] + entries.row_counts[blobs]
        errors: dict[int, str] = {}
        for blob in blobs[is_misplaced].tolist():
            name = entries.get_value("name", blob)
            text = f"the rows of BLOB file {name} are not in one data file"
            errors.setdefault(int(entries.groups[blob]), text)
        return errors

    def _find_overlaps(self, version: CheckedVersion, live: Indices) -> dict[int, str]:
        """Return the errors of buckets whose files on a level are not one sorted run."""
        entries, schema = self.entries, self.context.schemas[version.schema]
        contents = np.bincount(entries.contents[live], minlength=len(entries.content_rows))
        checked = self._checked_runs
        if checked is None or checked.schema != version.schema:
            is_changed = np.ones(len(entries.group_buckets), bool)
        else:
            is_changed = np.zeros(len(entries.group_buckets), bool)
            is_changed[checked.wrong] = True
            changed = np.flatnonzero(contents != checked.contents)
            is_changed[entries.groups[entries.content_rows[changed]]] = True
        is_checked = is_changed & (entries.group_buckets != POSTPONE_BUCKET)
        rows = live[is_checked[entries.groups[live]]]
        levels = entries.table["level"].to_numpy()
        suspects = find_suspect_groups(
            entries.table, rows[levels[rows] > 0], entries.groups, schema
        )
        is_suspect = np.zeros(len(entries.group_buckets), bool)
        is_suspect[suspects] = True
        files: dict[int, list[DataFileMeta]] = {}
        for row in rows[is_suspect[entries.groups[rows]] & (levels[rows] > 0)].tolist():
            files.setdefault(int(entries.groups[row]), []).append(entries.build_file(row))
        errors: dict[int, str] = {}
        for group, group_files in files.items():
            try:
                build_bucket_runs(group_files, schema)
            except PaimonError as error:
                errors[group] = str(error)
        self._checked_runs = _CheckedRuns(version.schema, contents, list(errors))
        return errors

    def _check_deletion_vectors(self, version: CheckedVersion, live: Indices) -> Iterator[Problem]:
        """Check that the deletion vectors of a version belong to live files of their bucket."""
        vectors = self.content.vectors
        if version.index_manifest is None or not len(vectors):
            return
        selected = np.flatnonzero(vectors["manifest"].to_numpy() == version.index_manifest)
        rows = np.full(len(self.entries.contents) + 1, -1)
        rows[self.entries.places[live]] = live
        rows[-1] = -1
        row_of_vector = rows[self._vector_places()[selected]]
        cardinality = vectors["cardinality"].to_numpy(zero_copy_only=False)[selected]
        limits = self.entries.row_counts[row_of_vector] if len(self.entries.contents) else 0
        is_known = ~np.isnan(cardinality)
        is_wrong = is_known & ~((cardinality > 0) & (cardinality <= limits))
        options = self.context.schemas[version.schema].typed_options
        is_ignored = not options.has_deletion_vectors
        for index in np.flatnonzero((row_of_vector < 0) | is_wrong | is_ignored).tolist():
            vector = vectors.slice(int(selected[index]), 1).to_pylist()[0]
            name, deleted = vector["data_file"], vector["cardinality"]
            row = int(row_of_vector[index])
            if row < 0:
                text = f"{name} has a deletion vector but is not live in the bucket"
            else:
                row_count = int(self.entries.row_counts[row])
                if deleted is None or 0 < deleted <= row_count:
                    if not is_ignored:  # the comparison above is inexact for large numbers
                        continue
                    text = (
                        f"{name} has a deletion vector, but 'deletion-vectors.enabled' is false, "
                        "so Java readers return its deleted rows; a full compaction removes it"
                    )
                else:
                    text = (
                        f"{name} has {row_count} rows, but its metadata has {deleted} deleted rows"
                    )
            yield Problem(
                step=CheckStep.DELETION_VECTORS,
                order=(vector["item"], 1, vector["position"], 0),
                rule="vector",
                place=f", {vector['index_file']}",
                text=text,
            )

    def _vector_places(self) -> Indices:
        """Return the number of the place of each deletion vector's data file; -1 is unknown."""
        if self._places is None:
            entries, vectors = self.entries, self.content.vectors
            groups = {
                key: code
                for code, key in enumerate(
                    zip(entries.group_partitions, entries.group_buckets.tolist(), strict=True)
                )
            }
            names = pc.index_in(to_array(vectors["data_file"]), entries.distinct_names)
            keys = zip(vectors["partition"].to_pylist(), vectors["bucket"].to_pylist(), strict=True)
            places = dict(
                zip(
                    zip(entries.names.tolist(), entries.groups.tolist(), strict=True),
                    entries.places.tolist(),
                    strict=True,
                )
            )
            self._places = np.array(
                [
                    places.get((name, groups.get(key, -1)), -1)
                    for name, key in zip(names.to_pylist(), keys, strict=True)
                ],
                np.int64,
            )
        return self._places


@dataclass(frozen=True, slots=True)
class _CheckedRuns:
    """The buckets of the version whose sorted runs were checked last."""

    schema: int
    contents: Indices
    """How often each content is live."""
    wrong: list[int]


@dataclass(frozen=True, slots=True)
class _BucketCounts:
    """The numbers of buckets that the files of each partition have, in all versions."""

    pairs: Indices
    """The pair of partition and number of each content; -1 for files without a bucket."""
    keys: Sequence[tuple[bytes, int]]
    versions: AnyArray

    @classmethod
    def of(cls, entries: "CheckedEntries", versions: int) -> "_BucketCounts":
        table = entries.table
        partitions = to_array(table["partition"]).dictionary_encode()
        pairs = combine_codes(partitions.indices.to_numpy(), table["total_buckets"])
        first = find_first_rows(pairs)
        names = to_array(table["partition"]).take(pa.array(first)).to_pylist()
        totals = table["total_buckets"].to_numpy()[first].tolist()
        by_content = np.full(len(table), -1)
        by_content[entries.contents] = np.where(
            table["bucket"].to_numpy() == POSTPONE_BUCKET, -1, pairs
        )
        keys = [*zip(names, totals, strict=True)]
        return cls(by_content, keys, np.zeros((len(keys) + 1, versions), bool))

    def add(self, version: int, contents: Indices) -> None:
        """Add the contents of a version's live files."""
        self.versions[self.pairs[contents], version] = True

    def encode(self) -> dict[tuple[bytes, int], AnyArray]:
        """Return the versions as packed bits, by partition and number of buckets."""
        return dict(zip(self.keys, np.packbits(self.versions[:-1], axis=1), strict=True))


def find_file_problems(
    io: FileIO, entries: CheckedEntries, directories: BucketDirectories, rows: Indices
) -> dict[int, list[FileProblem]]:
    """Compare files with storage; return the problems of their contents."""
    stored = StoredFiles(io)
    problems: dict[int, list[FileProblem]] = {}
    table, order = entries.table, rows[np.argsort(entries.groups[rows], kind="stable")]
    is_plain = pc.and_(table["extra_files"].is_null(), table["external_path"].is_null()).to_numpy()
    names = table["name"].take(pa.array(order)).to_pylist()
    sizes = table["file_size"].to_numpy()[order].tolist()
    bounds = [*np.flatnonzero(np.diff(entries.groups[order], prepend=-1)).tolist(), len(order)]
    groups = [
        _StoredGroup.of(entries, directories, order[start:end], is_plain)
        for start, end in pairwise(bounds)
    ]

    def list_group(group: _StoredGroup) -> DirectoryListing | None:
        return None if group.directory is None else stored.list_directory(group.directory)

    starts = bounds[:-1]
    listings = map_concurrently(io, list_group, groups)
    for start, group, listing in zip(starts, groups, listings, strict=True):
        end = start + len(group.rows)
        expected = dict(zip(names[start:end], sizes[start:end], strict=True))
        if (
            listing is not None
            and group.directory is not None
            and len(expected) == end - start
            and stored.has_files(group.directory, listing, expected)
        ):
            continue
        for row in group.rows.tolist():
            found = _check_file(stored, directories, group.bucket, entries.build_file(row))
            if found:
                problems[int(entries.contents[row])] = found
        with suppress(PaimonError):
            stored.forget(directories.get(*group.bucket))
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredGroup:
    """The entries of one bucket."""

    bucket: PartitionBucket
    rows: Indices
    directory: str | None
    """The directory to list; None if the files are checked one by one."""

    @classmethod
    def of(
        cls, entries: CheckedEntries, directories: BucketDirectories, rows: Indices, is_plain: Mask
    ) -> "_StoredGroup":
        group = int(entries.groups[rows[0]])
        bucket = PartitionBucket(entries.group_partitions[group], int(entries.group_buckets[group]))
        directory = None
        if is_plain[rows].all():
            try:
                directory = directories.get(*bucket)
            except PaimonError as error:  # the check of each file reports it
                raise_if_temporary(error)
        return cls(bucket=bucket, rows=rows, directory=directory)


def _check_file(
    stored: StoredFiles,
    directories: BucketDirectories,
    partition_bucket: PartitionBucket,
    file: DataFileMeta,
) -> list[FileProblem]:
    try:
        path = directories.find_file(*partition_bucket, file)
    except PaimonError as error:
        return [("path", str(error))]
    problems = stored.check_file(path, file.file_size)
    for extra in file.extra_files:
        problems += stored.check_file(f"{path.rpartition('/')[0]}/{extra}", None)
    return problems

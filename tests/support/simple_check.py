"""A simple implementation of the check of metadata, entry by entry, to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from paimon_orch.errors import PaimonError
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.table import Table

Found = tuple[str, str, str]
"""A rule, a place and a text."""


def check_snapshots(table: Table) -> list[Found]:
    """Return the findings of all snapshots; the rules and texts of a finding are distinct."""
    found: dict[tuple[str, str], Found] = {}
    previous: tuple[Snapshot, set[tuple[object, ...]]] | None = None
    for number in table.stores.snapshots.ids():
        snapshot = table.stores.snapshots.get(number)
        reader = table.stores.manifests
        base, delta, changelog = (
            [entry for meta in metas for entry in reader.open(meta).entries()]
            for metas in (
                reader.manifest_list(snapshot.base_manifest_list),
                reader.manifest_list(snapshot.delta_manifest_list),
                reader.manifest_list(snapshot.changelog_manifest_list or ""),
            )
        )
        live = find_live([*base, *delta])
        place = f"snapshot {number}"
        texts = [
            *check_changelog(snapshot, changelog),
            *check_files(table, changelog),
            *check_delta(base, delta),
            *check_names(live),
            *check_counts(snapshot, delta, live),
            *check_files(table, live),
        ]
        findings = [(rule, place, text) for rule, text in texts]
        findings += check_buckets(table, place, live)
        findings += check_vectors(table, snapshot, place, live)
        identities = {entry.identity for entry in live}
        if previous is not None and previous[0].id + 1 == number:
            before = previous[0]
            if (
                snapshot.total_record_count
                != before.total_record_count + snapshot.delta_record_count
            ):
                text = (
                    f"totalRecordCount of snapshot {number} is {snapshot.total_record_count}, "
                    f"but the previous snapshot has {before.total_record_count} rows "
                    f"and the delta {snapshot.delta_record_count}"
                )
                findings.append(("record-count", place, text))
            if {entry.identity for entry in find_live(base)} != previous[1]:
                text = (
                    f"the base manifests of snapshot {number} do not have the files "
                    f"of snapshot {before.id}"
                )
                findings.append(("base", place, text))
        previous = snapshot, identities
        for rule, where, text in findings:
            found.setdefault((rule, text), (rule, where, text))
    return list(found.values())


def find_live(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Return the ADD entries without a DELETE entry."""
    deleted = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
    return [e for e in entries if e.kind is FileKind.ADD and e.identity not in deleted]


def check_changelog(snapshot: Snapshot, entries: list[ManifestEntry]) -> list[tuple[str, str]]:
    """Compare the number of rows of the changelog."""
    rows = sum(entry.file.row_count for entry in entries if entry.kind is FileKind.ADD)
    if (snapshot.changelog_record_count or 0) == rows:
        return []
    text = (
        f"changelogRecordCount is {snapshot.changelog_record_count}, "
        f"but the changelog files have {rows} rows"
    )
    return [("record-count", text)]


def check_delta(base: list[ManifestEntry], delta: list[ManifestEntry]) -> list[tuple[str, str]]:
    """Apply the delta entry by entry."""
    live, texts = {entry.identity for entry in find_live(base)}, []
    for entry in delta:
        name, is_live = entry.file.file_name, entry.identity in live
        if entry.kind is FileKind.DELETE:
            if not is_live:
                texts.append(("delete", f"deletes {name}, which is not live"))
            live.discard(entry.identity)
        else:
            if is_live:
                texts.append(("add", f"adds {name}, which is already live"))
            live.add(entry.identity)
    return texts


def check_names(live: list[ManifestEntry]) -> list[tuple[str, str]]:
    """Find names that several live files have."""
    counts = Counter(entry.file.file_name for entry in live)
    return [("add", f"{name} is live {n} times") for name, n in counts.items() if n > 1]


def check_counts(
    snapshot: Snapshot, delta: list[ManifestEntry], live: list[ManifestEntry]
) -> list[tuple[str, str]]:
    """Compare the numbers of rows."""
    total = sum(entry.file.row_count for entry in live)
    added = sum(e.file.row_count for e in delta if e.kind is FileKind.ADD)
    deleted = sum(e.file.row_count for e in delta if e.kind is FileKind.DELETE)
    texts = []
    for name, expected, actual in (
        ("totalRecordCount", snapshot.total_record_count, total),
        ("deltaRecordCount", snapshot.delta_record_count, added - deleted),
    ):
        if expected != actual:
            texts.append(
                ("record-count", f"{name} is {expected}, but the files have {actual} rows")
            )
    if snapshot.commit_kind is CommitKind.COMPACT and added > deleted:
        texts.append(("compaction", f"a compaction wrote {added} rows for {deleted} rows"))
    return texts


def check_files(table: Table, entries: list[ManifestEntry]) -> list[tuple[str, str]]:
    """Look for each file and extra file."""
    texts = []
    for entry in entries:
        try:
            path = table.paths.data_file(
                table.load().schema, entry.partition, entry.bucket, entry.file
            )
        except PaimonError as error:
            texts.append(("path", str(error)))
            continue
        stored = Path(path)
        if not stored.exists():
            texts.append(("missing-file", f"{path} does not exist"))
        elif stored.stat().st_size != entry.file.file_size:
            text = f"{path} has {stored.stat().st_size} bytes, but its metadata has {entry.file.file_size}"
            texts.append(("file-size", text))
        texts += [
            ("missing-file", f"{stored.parent}/{name} does not exist")
            for name in entry.file.extra_files
            if not (stored.parent / name).exists()
        ]
    return texts


def check_buckets(table: Table, place: str, live: list[ManifestEntry]) -> list[Found]:
    """Check the number of each bucket, its sorted runs, and the numbers of buckets."""
    groups: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    totals: dict[bytes, set[int]] = {}
    for entry in live:
        groups.setdefault((entry.partition, entry.bucket), []).append(entry)
        if entry.bucket != POSTPONE_BUCKET:
            totals.setdefault(entry.partition, set()).add(entry.total_buckets)
    found = []
    for (partition, bucket), entries in groups.items():
        name = format_partition(partition, table.load().schema)
        where, total = f"{place}, {name} bucket {bucket}", entries[0].total_buckets
        if 0 < total <= bucket:
            found.append(("bucket", where, f"the partition has only {total} buckets"))
        if bucket != POSTPONE_BUCKET:
            try:
                build_bucket_runs([entry.file for entry in entries], table.load().schema)
            except PaimonError as error:
                found.append(("sorted-run", where, str(error)))
    for partition, numbers in totals.items():
        if len(numbers) > 1:
            text = " and ".join(map(str, sorted(numbers)))
            where = f"{place}, {format_partition(partition, table.load().schema)}"
            found.append(("bucket", where, f"its files have different numbers of buckets: {text}"))
    return found


def check_vectors(
    table: Table, snapshot: Snapshot, place: str, live: list[ManifestEntry]
) -> list[Found]:
    """Check that deletion vectors belong to live files."""
    files = {(e.partition, e.bucket, e.file.file_name): e.file for e in live}
    names: set[str] = set()
    found = []
    for item in table.stores.manifests.read_index_entries(snapshot):
        where, ranges = f"{place}, {item.file_name}", item.ranges or ()
        if item.row_count != len(ranges):
            text = f"has {len(ranges)} deletion vectors, but its metadata has {item.row_count}"
            found.append(("index", where, text))
        for entry in ranges:
            name, deleted = entry.data_file, entry.cardinality
            file = files.get((item.partition, item.bucket, name))
            if file is None:
                text = f"{name} has a deletion vector but is not live in the bucket"
                found.append(("vector", where, text))
            elif deleted is not None and not 0 < deleted <= file.row_count:
                text = (
                    f"{name} has {file.row_count} rows, but its metadata has {deleted} deleted rows"
                )
                found.append(("vector", where, text))
            if name in names:
                found.append(("vector", where, f"{name} has two deletion vectors"))
            names.add(name)
    return found

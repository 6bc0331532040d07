"""Levels, sorted runs and sections of one bucket.

See docs/format/levels-and-sorted-runs.md and docs/format/compaction-rewrites.md#sections.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.sort.key_order import Key, decode_key_bounds


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files with disjoint, ascending key ranges on one level."""

    level: int
    files: tuple[DataFileMeta, ...]

    @property
    def size(self) -> int:
        """Return the size of the run in bytes."""
        return sum(file.file_size for file in self.files)


def sort_newest_first(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Return level-0 files in order, newest first."""
    return sorted(
        files,
        key=lambda file: (
            -file.max_sequence_number,
            file.min_sequence_number,
            file.creation_time or 0,
            file.file_name,
        ),
    )


def build_sorted_runs(
    files: Iterable[DataFileMeta], key_fields: Sequence[Field]
) -> list[SortedRun]:
    """Return the runs of a bucket, newest first: each level-0 file, then one run per level."""
    files = list(files)
    runs = [SortedRun(0, (file,)) for file in sort_newest_first(f for f in files if f.level == 0)]
    leveled = sorted((f for f in files if f.level > 0), key=lambda file: file.level)
    for level, group in groupby(leveled, key=lambda file: file.level):
        ranges = sort_by_key_range(group, key_fields)
        for file, next_file in find_overlaps(ranges):
            raise CorruptFileError(
                next_file.file_name,
                f"its keys overlap those of {file.file_name} on level {level}, which must be "
                "one sorted run; merge them by paimon-orch repair before a compaction",
            )
        runs.append(SortedRun(level, tuple(file for _, _, file in ranges)))
    return runs


def sort_by_key_range(
    files: Iterable[DataFileMeta], key_fields: Sequence[Field]
) -> list["RangedFile"]:
    """Return files with their smallest and largest keys, sorted by the smallest key."""
    ranges = ((*decode_key_bounds(file, key_fields), file) for file in files)
    return sorted(ranges, key=lambda item: item[0])


def find_overlaps(ranges: Sequence["RangedFile"]) -> Iterator[tuple[DataFileMeta, DataFileMeta]]:
    """Yield neighboring files whose key ranges overlap; ``ranges`` are sorted."""
    for (_, end, file), (start, _, next_file) in pairwise(ranges):
        if end >= start:
            yield file, next_file


def build_bucket_runs(files: Iterable[DataFileMeta], schema: TableSchema) -> list[SortedRun]:
    """Return the runs of a bucket of a table, newest first, as :func:`build_sorted_runs` does.

    Files sorted by ``clustering.columns`` can overlap. Readers do not merge them, so they are one
    run.
    """
    files = list(files)
    if not schema.typed_options.is_pk_clustering_override:
        return build_sorted_runs(files, schema.key_fields)
    runs = [SortedRun(0, (file,)) for file in sort_newest_first(f for f in files if f.level == 0)]
    clustered = tuple(f for f in files if f.level > 0)
    if not clustered:
        return runs
    return [*runs, SortedRun(max(f.level for f in clustered), clustered)]


def plan_merge_sections(
    files: Iterable[DataFileMeta], schema: TableSchema
) -> list[list[list[DataFileMeta]]]:
    """Return the sections of a bucket that readers merge separately.

    Files that are sorted by ``clustering.columns`` can contain any key: their bucket is one
    section.
    """
    files = list(files)
    if files and schema.typed_options.is_pk_clustering_override and any(f.level > 0 for f in files):
        return [[[file] for file in files]]
    return split_into_sections(files, schema.key_fields)


def has_ascending_sequences(runs: Sequence[Sequence[DataFileMeta]]) -> bool:
    """Return whether the sequence numbers of each run, oldest first, precede those of the next."""
    bounds = [
        (min(f.min_sequence_number for f in run), max(f.max_sequence_number for f in run))
        for run in runs
    ]
    return all(older[1] < newer[0] for older, newer in pairwise(bounds))


def split_into_sections(
    files: Iterable[DataFileMeta], key_fields: Sequence[Field]
) -> list[list[list[DataFileMeta]]]:
    """Split files into sections with disjoint key ranges, each into sorted runs.

    Returns sections in key order; a section is a list of runs, a run a list of files in key order.
    Each level-0 file is a run, and other files share runs only with files of their level. Therefore
    all rows of a run are older or newer than those of another run.
    """
    ranges = [(*decode_key_bounds(file, key_fields), file) for file in files]
    ranges.sort(key=lambda item: item[:2])
    result: list[list[RangedFile]] = []
    end: Key | None = None
    for item in ranges:
        if end is None or item[0] > end:
            result.append([])
            end = item[1]
        result[-1].append(item)
        end = max(end, item[1])
    return [
        [run for level in _group_by_level(section) for run in build_level_runs(level)]
        for section in result
    ]


def sort_oldest_first(section: Iterable[Sequence[DataFileMeta]]) -> list[Sequence[DataFileMeta]]:
    """Sort the runs of a section; the order decides between rows with equal sequence numbers.

    Writers that started from the same snapshot assign equal sequence numbers, and the format does
    not define which row wins. Compactions must not change the winner, so a file on level 0 is newer
    than files on higher levels, and on level 0 the file that was written later is newer. The order
    in manifests is not used.
    """
    return sorted(section, key=lambda run: merge_order_key(run[0]))


def merge_order_key(file: DataFileMeta) -> tuple[int, int, int, str]:
    """Return the sort key of a file for merging, oldest first (see :func:`sort_oldest_first`)."""
    if file.level > 0:
        return -file.level, 0, 0, ""
    return 0, file.max_sequence_number, file.creation_time or 0, file.file_name


RangedFile = tuple[Key, Key, DataFileMeta]


def _group_by_level(section: Iterable[RangedFile]) -> list[list[RangedFile]]:
    ordered = sorted(section, key=lambda item: item[2].level)
    return [list(group) for _, group in groupby(ordered, key=lambda item: item[2].level)]


def build_level_runs(section: Sequence[RangedFile]) -> list[list[DataFileMeta]]:
    """Put files of one level that do not overlap into one run, in as few runs as possible."""
    if section and section[0][2].level == 0:
        return [[file] for _, _, file in section]
    runs: list[list[DataFileMeta]] = []
    ends: list[tuple[Key, int]] = []  # heap of the last key of each run
    for low, high, file in section:
        if ends and ends[0][0] < low:
            _, run = heapq.heappop(ends)
            runs[run].append(file)
        else:
            run = len(runs)
            runs.append([file])
        heapq.heappush(ends, (high, run))
    return runs

"""Splits the compaction of one bucket into parts that run in parallel: sections and key ranges.

A part with a key range merges the rows in that range; other parts can read the same files. The
outputs of all parts have disjoint key ranges, so together they form one sorted run.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from paimon_orch.format.manifest.manifest_entry import DataFileMeta, sum_file_sizes
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.compact.bucket_compaction import CompactionTask
from paimon_orch.merge.sort.key_order import decode_key
from paimon_orch.merge.tree.key_range import KeyRange
from paimon_orch.merge.tree.levels import split_into_sections

_MIN_PARTS = 4  # fewer parts of unequal size would leave cores idle

Section = list[list[DataFileMeta]]
SplitPointsOf = Callable[[DataFileMeta], Sequence[object]]


def split_task(
    task: CompactionTask, key_fields: Sequence[Field], part_bytes: int, starts: SplitPointsOf
) -> list[CompactionTask]:
    """Return tasks of about ``part_bytes`` of input that together do the same as ``task``.

    Small sections share a task. ``starts`` returns the values of the first key column at which a
    file can be split. A task that merges files and rewrites standalone files is not split, because
    it needs the deletion vectors of all files. A task that only rewrites standalone files is split
    by file.
    """
    if not task.files:
        return _split_by_file(task, part_bytes)
    if task.standalone_files or sum_file_sizes(task.files) < _MIN_PARTS * part_bytes:
        return [task]
    parts: list[CompactionTask] = []
    small_sections: list[DataFileMeta] = []
    for section in split_into_sections(task.files, key_fields):
        files = [file for run in section for file in run]
        if small_sections and sum_file_sizes(small_sections) + sum_file_sizes(files) > part_bytes:
            parts.append(replace(task, files=tuple(small_sections)))
            small_sections = []
        slices = _split_section(
            section, round(sum_file_sizes(files) / part_bytes), key_fields, starts
        )
        if len(slices) == 1:
            small_sections += files
        else:
            parts += [
                replace(
                    task,
                    files=tuple(file for file in files if keys.touches(file, key_fields)),
                    keys=keys,
                )
                for keys in slices
            ]
    if small_sections:
        parts.append(replace(task, files=tuple(small_sections)))
    if len(parts) == 1:
        return [task]
    merges_level0 = any(file.level == 0 for file in task.files)
    return [replace(part, is_partial=True, merges_level0=merges_level0) for part in parts]


def _split_by_file(task: CompactionTask, part_bytes: int) -> list[CompactionTask]:
    """Split standalone files into groups of about ``part_bytes``."""
    groups: list[list[DataFileMeta]] = []
    for file in task.standalone_files:
        if not groups or sum_file_sizes(groups[-1]) + file.file_size > part_bytes:
            groups.append([])
        groups[-1].append(file)
    parts = [replace(task, standalone_files=tuple(group), is_partial=True) for group in groups]
    return parts if len(parts) > 1 else [task]


def _split_section(
    section: Section, count: int, key_fields: Sequence[Field], starts: SplitPointsOf
) -> list[KeyRange]:
    """Return at most ``count`` key ranges that split the section's largest run evenly."""
    if len(section) == 1 or count < 2:
        return [KeyRange(None, None)]
    largest = max(section, key=sum_file_sizes)
    first_type, *other_types = [field.type for field in key_fields]
    values = [value for file in largest for value in starts(file) if value is not None]
    keys = [
        serialize_row([value, *(None for _ in other_types)], [first_type, *other_types])
        for value in values
    ]
    split_keys = sorted(set(keys), key=lambda key: decode_key(key, key_fields))
    indices = sorted(
        {round(part * len(split_keys) / count) for part in range(1, count)} - {0, len(split_keys)}
    )
    bounds = [None, *(split_keys[index] for index in indices), None]
    return [KeyRange(low, high) for low, high in pairwise(bounds)]

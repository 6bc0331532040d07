"""Looking keys up in higher levels: every older version is found, and hardly a file is read for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.format.binary_row import serialize_row
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest import DataFileMeta
from paimon_orch.format.types import Field, parse_type
from paimon_orch.merge.keys import KeyColumns
from paimon_orch.merge.lookup import PositionLookup

BIGINT = parse_type("BIGINT NOT NULL")
KEY = [Field(0, "k", BIGINT)]


class Stored:
    """Files of sorted keys; remembers which were read, and how many batches of them."""

    def __init__(self, levels: dict[int, list[list[int]]], batch_rows: int = 3) -> None:
        self.batch_rows = batch_rows
        self.keys: dict[str, list[int]] = {}
        self.files: list[DataFileMeta] = []
        self.batches_read: dict[str, int] = {}
        for level, files in levels.items():
            for at, keys in enumerate(files):
                name = f"L{level}-{at}"
                self.keys[name] = keys
                low, high = (serialize_row([key], [BIGINT]) for key in (keys[0], keys[-1]))
                self.files.append(DataFileMeta(name, 1, len(keys), low, high, level=level))

    def read(self, file: DataFileMeta, vector: DeletionVector | None) -> Iterator[pa.RecordBatch]:
        hidden = set() if vector is None else set(vector.positions().tolist())
        rows = [row for row in enumerate(self.keys[file.file_name]) if row[0] not in hidden]
        for start in range(0, len(rows), self.batch_rows):
            self.batches_read[file.file_name] = self.batches_read.get(file.file_name, 0) + 1
            part = rows[start : start + self.batch_rows]
            yield pa.record_batch(
                {
                    "k": pa.array([key for _, key in part], pa.int64()),
                    "_POSITION": pa.array([position for position, _ in part], pa.int64()),
                }
            )

    def lookup(self, vectors: dict[str, DeletionVector] | None = None) -> PositionLookup:
        return PositionLookup(self.files, KEY, self.read, vectors or {})


def keys_of(*keys: int) -> KeyColumns:
    return KeyColumns.of(pa.table({"k": pa.array(keys, pa.int64())}), ["k"])


def found(lookup: PositionLookup) -> dict[str, list[int]]:
    return {name: vector.positions().tolist() for name, vector in lookup.vectors().items()}


def cut(keys: list[int], ends: set[int]) -> list[list[int]]:
    """Cut sorted keys into files."""
    files: list[list[int]] = [[]]
    for key in keys:
        if key in ends and files[-1]:
            files.append([])
        files[-1].append(key)
    return [file for file in files if file]


sorted_keys = st.lists(st.integers(0, 80), unique=True, max_size=40).map(sorted)


@given(
    st.dictionaries(st.integers(1, 5), sorted_keys, max_size=4),
    st.sets(st.integers(0, 80), max_size=6),
    sorted_keys,
    st.integers(1, 8),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_the_nearest_older_version_of_every_key_is_marked(
    levels: dict[int, list[int]],
    ends: set[int],
    wanted: list[int],
    window: int,
    batch_rows: int,
    random: Any,
) -> None:
    stored = Stored({level: cut(keys, ends) for level, keys in levels.items()}, batch_rows)
    vectors = {
        name: DeletionVector.of(
            np.array(random.sample(range(len(keys)), random.randint(1, len(keys))))
        )
        for name, keys in stored.keys.items()
        if random.random() < 0.4
    }
    expected: dict[str, list[int]] = {}
    for key in wanted:
        for file in sorted(stored.files, key=lambda file: file.level):
            name = file.file_name
            if key not in stored.keys[name]:
                continue
            position = stored.keys[name].index(key)
            if name in vectors and position in vectors[name].positions():
                continue  # hidden already: the live version lies higher
            expected.setdefault(name, []).append(position)
            break

    lookup = stored.lookup(vectors)
    for start in range(0, len(wanted), window):
        lookup.mark(keys_of(*wanted[start : start + window]))

    assert found(lookup) == expected


def test_files_outside_the_window_are_not_opened() -> None:
    stored = Stored({5: [[0, 9], [10, 19], [20, 29]]})

    lookup = stored.lookup()
    lookup.mark(keys_of(10, 15))

    assert found(lookup) == {"L5-1": [0]}
    assert set(stored.batches_read) == {"L5-1"}


def test_a_file_is_read_once_from_front_to_back() -> None:
    stored = Stored({5: [list(range(30))]}, batch_rows=3)

    lookup = stored.lookup()
    for key in (0, 1, 14, 15, 29):
        lookup.mark(keys_of(key))

    assert found(lookup) == {"L5-0": [0, 1, 14, 15, 29]}
    assert stored.batches_read == {"L5-0": 10}


def test_a_hit_ends_the_search_of_its_key() -> None:
    stored = Stored({2: [[1, 2]], 5: [[1, 2, 3]]})

    lookup = stored.lookup()
    lookup.mark(keys_of(1, 3))

    assert found(lookup) == {"L2-0": [0], "L5-0": [2]}


def test_no_keys_and_no_files_find_nothing() -> None:
    assert found(Stored({}).lookup()) == {}
    lookup = Stored({5: [[1]]}).lookup()
    lookup.mark(keys_of())
    assert found(lookup) == {}

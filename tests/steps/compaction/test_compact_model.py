"""Random writes and compactions against a dictionary as a model of the table."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import (
    Row,
    assert_healthy,
    deletion_vectors_of,
    new_table,
    rows_of,
    small_batches,
    table_of,
)
from support.tables_with_deletion_vectors import EXECUTOR

from paimon_orch.steps.compaction import compact as step
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.table import Table

PARTITIONS = ("a", "b")


Key = tuple[str, int]


Rows = dict[Key, str]


@dataclass(frozen=True)
class Upsert:
    keys: list[int]
    partition: str


@dataclass(frozen=True)
class Delete:
    keys: list[int]
    partition: str


@dataclass(frozen=True)
class Compact:
    strategy: Literal["minor", "full"]
    partition: str | None


@dataclass
class Model:
    """Dictionaries of the written rows, and (with deletion vectors) as of the last compaction."""

    table: Table
    written: Rows = field(default_factory=dict)
    compacted: Rows = field(default_factory=dict)
    writes: int = 0

    @property
    def visible(self) -> Rows:
        return (
            self.compacted
            if self.table.load().schema.typed_options.has_deletion_vectors
            else self.written
        )

    def apply(self, operation: Upsert | Delete | Compact) -> None:
        match operation:
            case Upsert(keys, partition):
                self.writes += 1
                # The last row of a key replaces the earlier ones.
                rows = {key: f"{self.writes}.{number}" for number, key in enumerate(keys)}
                values = [
                    (partition, key, f"{self.writes}.{number}") for number, key in enumerate(keys)
                ]
                self.table.upsert(table_of("p k v", values))
                self.written |= {(partition, key): value for key, value in rows.items()}
            case Delete(keys, partition):
                self.table.delete(table_of("p k", [(partition, key) for key in keys]))
                for key in keys:
                    self.written.pop((partition, key), None)
            case Compact(strategy, partition):
                self.compact(strategy, partition)

    def compact(self, strategy: Literal["minor", "full"], partition: str | None) -> None:
        specs = None if partition is None else [f"p={partition}"]
        request = step.CompactRequest(partitions=specs, strategy=strategy)
        result = step.run_compaction(self.table, step.plan(self.table, request), EXECUTOR)
        compacted_partitions = PARTITIONS if partition is None else (partition,)
        others = {
            key: value
            for key, value in self.compacted.items()
            if key[0] not in compacted_partitions
        }
        self.compacted = others | {
            key: value for key, value in self.written.items() if key[0] in compacted_partitions
        }
        assert bool(result.plan) == (result.snapshot_id is not None)
        self.check_levels(strategy, compacted_partitions)

    def check_levels(self, strategy: str, partitions: tuple[str, ...]) -> None:
        deletion_vectors = self.table.load().schema.typed_options.has_deletion_vectors
        splits = {
            format_partition(split.partition, self.table.load().schema): split
            for split in self.table.files()
        }
        for name, split in splits.items():
            if name.removeprefix("p=") not in partitions:
                continue
            levels = {file.level for file in split.files}
            if deletion_vectors or strategy == "full":
                assert 0 not in levels
            if strategy == "full":
                assert levels <= {self.table.load().schema.typed_options.num_levels - 1}
                assert not any(file.delete_row_count for file in split.files)
                assert not {file.file_name for file in split.files} & set(
                    deletion_vectors_of(self.table)
                )

    def check(self) -> None:
        expected: list[Row] = sorted((p, k, v) for (p, k), v in self.visible.items())
        assert rows_of(self.table) == expected
        if self.table.snapshot() is not None:
            assert_healthy(self.table)


keys = st.lists(st.integers(0, 60), min_size=1, max_size=45)


partitions = st.sampled_from(PARTITIONS)


operations = st.lists(
    st.one_of(
        st.builds(Upsert, keys, partitions),
        st.builds(Delete, st.lists(st.integers(0, 60), min_size=1, max_size=10), partitions),
        st.builds(
            Compact,
            st.sampled_from(["minor", "minor", "full"]),
            st.none() | partitions,
        ),
    ),
    min_size=4,
    max_size=14,
)


VARIANTS: dict[str, dict[str, str]] = {
    "merge-on-read": {"num_sorted_run__compaction_trigger": "3"},
    "32-bit vectors": {
        "deletion_vectors__enabled": "true",
        "num_sorted_run__compaction_trigger": "3",
    },
    "64-bit vectors, many levels": {
        "deletion_vectors__enabled": "true",
        "deletion_vectors__bitmap64": "true",
        "bucket": "2",
        "num_levels": "6",
        "num_sorted_run__compaction_trigger": "6",
        "compaction__max_size_amplification_percent": "1000000",
        "compaction__size_ratio": "0",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", [pytest.param(v, id=name) for name, v in VARIANTS.items()])
def test_readers_see_the_rows_of_a_dictionary_model(variant: dict[str, str]) -> None:
    @settings(max_examples=15)
    @given(operations)
    def check(operations: list[Upsert | Delete | Compact]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = new_table(
                Path(folder),
                "p STRING, k BIGINT, v STRING",
                key=("p", "k"),
                partition_by=["p"],
                target_file_size="4 kb",
                **variant,
            )
            model = Model(small_batches(table, 5))
            for operation in operations:
                model.apply(operation)
            model.check()
            model.compact("minor", None)
            model.check()
            model.compact("full", None)
            model.check()
            before = table.snapshot()
            model.compact("full", None)  # a second compaction has nothing to do
            assert table.snapshot() == before

    check()

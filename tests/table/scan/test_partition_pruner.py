"""Filters that select partitions."""

from pathlib import Path

import pyarrow as pa

from paimon_orch import Catalog
from paimon_orch.format.types.predicate import Or
from paimon_orch.table.filter.partition_spec import build_any_partition_matcher
from paimon_orch.table.scan.partition_pruner import build_partition_filter


def test_a_filter_groups_partitions_by_their_leading_columns(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "lake.sales", "dt STRING, hh INT, id INT", partition_by=["dt", "hh"]
    )
    rows = [("a", 0), ("a", 1), ("a", None), ("b", 0), ("b", 1), ("b", None)]
    days, hours = zip(*rows, strict=True)
    table.append(pa.table({"dt": days, "hh": hours, "id": range(len(rows))}))
    selected = build_any_partition_matcher(
        [{"dt": "a", "hh": "0"}, {"dt": "a", "hh": "1"}, {"dt": "b", "hh": None}],
        table.load().schema,
    )
    partitions = [split.partition for split in table.files() if selected(split.partition)]

    partition_filter = build_partition_filter(partitions, table.load().schema)

    assert isinstance(partition_filter, Or)
    assert len(partition_filter.children) == 2
    assert sorted(table.scan(filter=partition_filter).to_arrow()["id"].to_pylist()) == [0, 1, 5]

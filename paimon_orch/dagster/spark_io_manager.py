"""An IO manager for frames of PySpark and Spark Connect."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from paimon_orch.dagster.io_manager import PaimonIOManager
from paimon_orch.dagster.resources import SparkSessionResource
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.table import Table


class PaimonPySparkIOManager(PaimonIOManager):
    """Writes and reads frames of PySpark, also of Spark Connect; rows stay on the cluster.

    An input is a frame unless it is annotated with another type; other values of outputs are
    written as :class:`PaimonIOManager` does. The metadata is the same.

    >>> PaimonPySparkIOManager(paimon=paimon, spark=SparkSessionResource())
    """

    spark: dg.ResourceDependency[SparkSessionResource]

    def _open_rows(self, value: Any) -> tuple[Any, pa.Schema]:
        if not _is_frame(type(value)):
            return super()._open_rows(value)
        from pyspark.sql.pandas.types import to_arrow_schema

        return value, to_arrow_schema(value.schema)

    def _write(
        self,
        table: Table,
        rows: Any,
        mode: str,
        specs: Sequence[PartitionSpec],
        commit_id: CommitId,
    ) -> tuple[Snapshot | None, int]:
        if not _is_frame(type(rows)):
            return super()._write(table, rows, mode, specs, commit_id)
        from paimon_orch.errors import InputError
        from paimon_orch.spark import write

        if mode == "upsert" and not table.stores.get_schema().primary_keys:
            raise InputError(f"{table.identifier} has no primary key: use append, not upsert")
        result = write(
            rows,
            table,
            mode="overwrite" if mode == "overwrite" else "append",
            partitions=(specs or {}) if mode == "overwrite" else None,
            commit_id=commit_id,
        )
        return result.snapshot, result.rows

    def _read(self, scan: Scan, annotation: Any) -> Any:
        if annotation is not Any and isinstance(annotation, type) and not _is_frame(annotation):
            return super()._read(scan, annotation)
        from paimon_orch.spark import read

        return read(self.spark.session(), scan)


def _is_frame(kind: type) -> bool:
    return kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame"

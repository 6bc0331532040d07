"""Registers the data source ``paimon`` in Spark.

At the first lookup of a format, Spark imports every module whose name begins with ``pyspark_``. So
this module defines only the class, and imports paimon_orch when a Paimon table is used.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Paimon tables, for ``read``, ``write``, ``readStream`` and ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "paimon"

    def schema(self) -> StructType:
        """Return the columns of the table."""
        from paimon_orch.spark.datasource.batch_read import read_source_schema
        from paimon_orch.spark.datasource.worker_errors import hide_traceback

        with hide_traceback():
            return read_source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of ``schema``."""
        from paimon_orch.spark.datasource.batch_read import build_reader
        from paimon_orch.spark.datasource.worker_errors import hide_traceback

        with hide_traceback():
            return build_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return a writer of rows of ``schema``."""
        from paimon_orch.spark.datasource.batch_write import build_writer
        from paimon_orch.spark.datasource.worker_errors import hide_traceback

        with hide_traceback():
            return build_writer(self.options, schema.names, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's names
        """Return a stream reader of the columns of ``schema``."""
        from paimon_orch.spark.datasource.stream_read import build_stream_reader
        from paimon_orch.spark.datasource.worker_errors import hide_traceback

        with hide_traceback():
            return build_stream_reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Return a writer of the batches of a stream."""
        from paimon_orch.spark.datasource.stream_write import build_stream_writer
        from paimon_orch.spark.datasource.worker_errors import hide_traceback

        with hide_traceback():
            return build_stream_writer(self.options, schema.names, overwrite=overwrite)

"""Parquet files: the only way to their footers, pages and row groups.

See docs/format/parquet-files.md.
"""

from paimon_orch.files.parquet.footer import Footer
from paimon_orch.files.parquet.footer_fields import FileLayout
from paimon_orch.files.parquet.page_check import read_batches
from paimon_orch.files.parquet.page_reader import PageIndexError, RowGroupPages
from paimon_orch.files.parquet.parquet import SMALL_PAGES, ParquetFileReader, ParquetFileWriter
from paimon_orch.files.parquet.row_group_source import RowGroupSource

__all__ = [
    "SMALL_PAGES",
    "FileLayout",
    "Footer",
    "PageIndexError",
    "ParquetFileReader",
    "ParquetFileWriter",
    "RowGroupPages",
    "RowGroupSource",
    "read_batches",
]

"""Keeps Apache Paimon lake tables healthy from Dagster, over a format library of its own."""

from paimon_orch.errors import PaimonError
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.commit.commit import CommitId
from paimon_orch.table.filter.expression import col
from paimon_orch.table.table import Table

__version__ = "0.1.0"
__all__ = ["Catalog", "CommitId", "PaimonError", "Table", "col"]

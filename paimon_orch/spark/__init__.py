"""Spark: sessions, reads and writes, row-level changes, and the executor of work units.

This package exports the functions for users; its modules are internal. Names are imported on
first use, because their modules import PySpark, and workers need few of them.
"""

from paimon_orch.lazy_exports import export_lazily
from paimon_orch.optional_packages import require_package

require_package("pyspark", __name__, install="paimon-orch[spark]")
__getattr__, __dir__ = export_lazily(__name__)

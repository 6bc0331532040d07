"""Apache Paimon tables: catalogs, scans, writes and errors, without a Paimon jar.

This package, :mod:`paimon_orch.steps`, :mod:`paimon_orch.spark`, :mod:`paimon_orch.dagster` and
:mod:`paimon_orch.airflow` are the public API. All other modules are internal and may change between
releases. Names are imported on first use, because commands, Dagster and workers need different
parts of the library.
"""

from paimon_orch.lazy_exports import export_lazily

__version__ = "0.3.0"
__getattr__, __dir__ = export_lazily(__name__)

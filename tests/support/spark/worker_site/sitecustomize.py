"""Loads the packages of Spark's Python workers in the daemons that fork them.

Spark has a daemon for each kind of worker, and kills workers that failed or were idle for a minute.
Without this module, each new worker imports the packages again, which takes about a second of CPU
time: most of the time of tests with Spark. Python imports this module when it starts, if its folder
is in ``PYTHONPATH``; the session of the tests sets the variable while it starts the JVM.
"""

import gc
import importlib
import sys

_PACKAGES = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming",
    "paimon_orch.spark",
)

if "pyspark.daemon" in sys.orig_argv:
    for _package in _PACKAGES:
        importlib.import_module(_package)
    gc.freeze()  # workers collect garbage after each task

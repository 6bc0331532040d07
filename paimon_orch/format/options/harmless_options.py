"""The options that change neither rows nor files, which two tables list: key, type and default.

``harmless_table_options.tsv`` has options of tables that tune engines and reads.
``harmless_engine_options.tsv`` has options of Flink, Spark, Hive and catalogs, and at its end older
names that Java Paimon still accepts, and options that it does not document.

Java Paimon reads ``partition.mark-done-action.custom.class`` only for the action ``custom``, which
is refused. Its Spark writer computes the bucket count of new partitions from
``postpone.target-size-per-bucket``, but any count is correct.
"""

from collections.abc import Iterator, Mapping
from math import inf
from pkgutil import get_data
from typing import Any

from paimon_orch.format.options.option_builders import harmless
from paimon_orch.format.options.table_option import AnyOption
from paimon_orch.format.options.value_type import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MEMORY,
    NUMBER,
    TEXT,
    ValueType,
)

_TYPES: Mapping[str, ValueType[Any]] = {
    "boolean": BOOLEAN,
    "duration": DURATION,
    "integer": INTEGER,
    "memory": MEMORY,
    "number": NUMBER,
    "text": TEXT,
}


def _read_options(name: str) -> Iterator[AnyOption]:
    """Yield the options of a table with tabs between its columns and one header line."""
    data = get_data(__package__, name)
    assert data is not None
    for line in data.decode().splitlines()[1:]:
        key, kind, *default = line.split("\t")
        yield harmless(key, _TYPES[kind], *default)


HARMLESS = (
    *_read_options("harmless_table_options.tsv"),
    harmless("sort-spill-threshold", INTEGER, bounds=(2, inf)),
)
HARMLESS_OF_ENGINES = tuple(_read_options("harmless_engine_options.tsv"))

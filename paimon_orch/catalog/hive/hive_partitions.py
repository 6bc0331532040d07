"""The partitions of a table in a Hive metastore, as Java Paimon writes them.

See docs/format/catalogs.md#objects-of-partitions.
"""

import copy
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from paimon_orch.catalog.hive.hive_settings import LOCATION_IN_PROPERTIES
from paimon_orch.catalog.hive.hive_tables import (
    LOCATION_PROPERTY,
    PATH_DIRECTORY,
    get_table_location,
)
from paimon_orch.errors import NotFoundError
from paimon_orch.format.options import Options
from paimon_orch.format.partition_path import escape_path_name, unescape_path_name
from paimon_orch.metastore.hive_client import HiveClient, import_thrift_types, request_table
from paimon_orch.table.catalog_environment import PartitionStatistics

_BATCH_SIZE = 1000
"""Partitions that are added or changed by one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HivePartitions:
    """The partitions of one table; branches have none of their own."""

    client: HiveClient
    database: str
    table: str
    options: Options
    """The options of the catalog."""

    def list(self) -> list[dict[str, str]]:
        """Return all partitions of the metastore."""
        names = self.client.read("get_partition_names", self.database, self.table, -1)
        return [_parse_partition_name(name) for name in names]

    def add(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Add partitions with the columns of the table; existing ones are kept."""
        if not specs:
            return
        types = import_thrift_types()
        table = self.client.read("get_table_req", request_table(self.database, self.table)).table
        parts = [self._build_partition(table, spec) for spec in specs]
        for start in range(0, len(parts), _BATCH_SIZE):
            request = types.AddPartitionsRequest(
                dbName=self.database,
                tblName=self.table,
                parts=parts[start : start + _BATCH_SIZE],
                ifNotExists=True,
                needResult=False,
            )
            # Partitions that exist are kept, so the request can be repeated.
            self.client.read("add_partitions_req", request)

    def drop(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Drop partitions and keep their files; missing ones are not an error."""
        for spec in specs:
            with suppress(NotFoundError):
                arguments = self.database, self.table, list(spec.values()), False
                self.client.read("drop_partition", *arguments)

    def update_statistics(self, statistics: Sequence[PartitionStatistics]) -> None:
        """Replace the statistics of partitions; missing partitions are ignored."""
        types = import_thrift_types()
        parts = [part for one in statistics if (part := self._find_updated(one)) is not None]
        # Else the metastore replaces the totals by those of all files in the directories.
        keep = types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
        for start in range(0, len(parts), _BATCH_SIZE):
            self.client.read(
                "alter_partitions_with_environment_context",
                self.database,
                self.table,
                parts[start : start + _BATCH_SIZE],
                keep,
            )

    def mark_done(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Report that partitions are complete; partitions that do not exist are ignored."""
        event = import_thrift_types().PartitionEventType.LOAD_DONE
        for spec in specs:
            with suppress(NotFoundError):
                arguments = self.database, self.table, dict(spec), event
                self.client.read("markPartitionForEvent", *arguments)

    def _build_partition(self, table: Any, spec: Mapping[str, str]) -> Any:
        seconds = int(time.time())
        sd = copy.copy(table.sd)
        directory = (table.parameters or {}).get(PATH_DIRECTORY)
        root = str(get_table_location(table, self.options)).rstrip("/")
        root = root if directory is None else f"{root}/{directory}"
        names = (f"{escape_path_name(k)}={escape_path_name(v)}/" for k, v in spec.items())
        location = f"{root}/{''.join(names)}"
        parameters = {}
        if self.options.get(LOCATION_IN_PROPERTIES):
            parameters[LOCATION_PROPERTY] = location
        else:
            sd.location = location
        return import_thrift_types().Partition(
            dbName=self.database,
            tableName=self.table,
            values=list(spec.values()),
            createTime=seconds,
            lastAccessTime=seconds,
            sd=sd,
            parameters=parameters or None,
        )

    def _find_updated(self, statistics: PartitionStatistics) -> Any:
        """Return a partition with new statistics, or None if it does not exist."""
        values = list(statistics.spec.values())
        try:
            part = self.client.read("get_partition", self.database, self.table, values)
        except NotFoundError:
            return None
        seconds = statistics.last_file_creation_millis // 1000
        part.lastAccessTime = seconds
        part.parameters = {
            **(part.parameters or {}),
            "numFiles": str(statistics.file_count),
            "totalSize": str(statistics.file_size),
            "numRows": str(statistics.record_count),
            "lastUpdateTime": str(seconds),
            "totalBuckets": str(statistics.total_buckets),
            "transient_lastDdlTime": str(seconds),
        }
        return part


def _parse_partition_name(name: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in name.split("/"))
    return {unescape_path_name(key): unescape_path_name(value) for key, _, value in pairs}

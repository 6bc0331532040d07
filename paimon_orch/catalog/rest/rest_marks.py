"""Reports complete partitions to a REST server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_errors import RestUnsupportedError
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestMarks:
    """The marks of one table on a server."""

    client: RestClient
    database: str
    object_name: str

    def mark_done(self, specs: Sequence[Mapping[str, str]]) -> None:
        """Mark partitions as done; a server that does not keep partitions ignores this."""
        path = resource_paths.table(self.database, self.object_name, "partitions", "mark")
        try:
            self.client.post(path, {"specs": [dict(spec) for spec in specs]})
        except RestUnsupportedError as error:
            logger.warning("no partition was marked: %s", error)

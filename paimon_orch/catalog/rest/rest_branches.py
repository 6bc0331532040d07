"""The branches of a table whose REST server creates and deletes them."""

from dataclasses import dataclass

from paimon_orch.catalog.rest import resource_paths
from paimon_orch.catalog.rest.rest_client import RestClient
from paimon_orch.catalog.rest.rest_errors import refuse_unserved


@dataclass(frozen=True, slots=True, kw_only=True)
class RestBranches:
    """The branches of one table on a server."""

    client: RestClient
    database: str
    table: str

    def create(self, name: str, tag: str | None) -> None:
        """Create a branch, from a tag or without rows."""
        with refuse_unserved("branches"):
            self.client.post(self._build_path(), {"branch": name, "fromTag": tag})

    def delete(self, name: str) -> None:
        """Delete a branch."""
        with refuse_unserved("branches"):
            self.client.delete(self._build_path(name))

    def fast_forward(self, name: str) -> None:
        """Move main to the state of a branch."""
        with refuse_unserved("branches"):
            self.client.post(self._build_path(name, "forward"), {})

    def _build_path(self, *parts: str) -> str:
        return resource_paths.table(self.database, self.table, "branches", *parts)

"""What happens if the session of a connection with Kerberos cannot be used any more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from paimon_orch.errors import CommitOutcomeUnknownError
from paimon_orch.metastore import hive_client
from paimon_orch.metastore.hive_address import MetastoreAddress
from paimon_orch.metastore.hive_client import HiveClient

SECURE = MetastoreAddress(
    uris=(("one", 9083),), socket_timeout=1, user="", principal="hive/one", uses_tls=False
)


class ExpiredError(Exception):
    """Stands for an error of GSSAPI, whose package need not be installed."""


@dataclass
class Sessions:
    """Connections of which the first ones have an expired session."""

    expired: int
    opened: int = 0

    @property
    def client(self) -> Sessions:
        return self

    def get_all_databases(self) -> list[str]:
        self.opened += 1
        if self.opened <= self.expired:
            raise ExpiredError("context expired")
        return ["db"]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    pytest.importorskip("thrift", reason="the client of a metastore needs thrift")
    opened = Sessions(expired=1)
    monkeypatch.setattr(hive_client, "_get_connection", lambda _: opened)
    return opened


def test_a_read_is_repeated_with_a_new_session(sessions: Sessions) -> None:
    assert HiveClient(SECURE).read("get_all_databases") == ["db"]
    assert sessions.opened == 2


def test_a_change_is_not_repeated_because_its_outcome_is_unknown(sessions: Sessions) -> None:
    with pytest.raises(CommitOutcomeUnknownError, match="context expired"):
        HiveClient(SECURE).write("get_all_databases")
    assert sessions.opened == 1


def test_without_kerberos_an_error_of_the_code_is_not_taken_for_a_session(
    sessions: Sessions,
) -> None:
    with pytest.raises(ExpiredError):
        HiveClient(replace(SECURE, principal=None)).read("get_all_databases")

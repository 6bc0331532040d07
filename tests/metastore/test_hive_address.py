"""The address of a metastore, from the options of a catalog."""

from __future__ import annotations

import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.metastore.hive_address import SOCKET_TIMEOUT, build_address


@pytest.mark.parametrize("timeout", ["0", "0 s"])
def test_a_timeout_in_which_nothing_can_connect_is_refused(timeout: str) -> None:
    options = Options({SOCKET_TIMEOUT.key: timeout})

    with pytest.raises(InputError, match="must be more than 0"):
        build_address("thrift://host:9083", options, option="uri")

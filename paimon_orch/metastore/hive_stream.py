"""A connection to a Hive metastore whose answers have limits of time and bytes."""

import socket
from time import monotonic
from typing import Any

from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TTransportException

_MAX_ANSWER_BYTES = 256 << 20


class LimitedStream(TSocket):  # type: ignore[misc]
    """Reads each answer within the timeout of a socket, which alone begins again with each byte."""

    def __init__(self, handle: socket.socket) -> None:
        super().__init__()
        self.setHandle(handle)
        self._seconds = handle.gettimeout() or 0.0
        self.begin_answer()

    def begin_answer(self) -> None:
        """Begin the limits again, before a request."""
        self._deadline, self._left_bytes = monotonic() + self._seconds, _MAX_ANSWER_BYTES
        self.handle.settimeout(self._seconds)

    def read(self, sz: int) -> Any:
        """Return up to ``sz`` bytes; raises ``TTransportException`` after the limits."""
        left_seconds = self._deadline - monotonic()
        if left_seconds <= 0:
            raise TTransportException(TTransportException.TIMED_OUT, "read timeout")
        self.handle.settimeout(left_seconds)
        data = super().read(sz)
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            text = f"the answer has more than {_MAX_ANSWER_BYTES} bytes"
            raise TTransportException(TTransportException.UNKNOWN, text)
        return data

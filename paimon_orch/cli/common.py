"""Functions for several commands: open tables, parse arguments, print results and start Spark."""

import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

import typer

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.open_catalog import open_catalog as open_located_catalog
from paimon_orch.cli.screen import note_console, print_note, read_answer
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.executor_choice import DEFAULT_MASTER, ChoosingExecutor, ExecutorKind
from paimon_orch.steps.common.step_report import CANNOT_BE_UNDONE
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

    from paimon_orch.catalog.catalog_tables import CatalogSystemTable
    from paimon_orch.table.scan.base_scan import BaseScan
    from paimon_orch.table.system_table import SystemTable


@dataclass(slots=True)
class CliSettings:
    """The options before the command, and the allowances from the switches after it."""

    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    catalog_options: dict[str, str] = field(default_factory=dict, repr=False)
    allowances: Allowances = NO_ALLOWANCES


def open_catalog(ctx: typer.Context, location: str) -> Catalog:
    """Open a catalog with the options and the allowances of this call."""
    settings: CliSettings = ctx.obj or CliSettings()
    return open_located_catalog(
        location,
        catalog_options=settings.catalog_options,
        storage_options=settings.storage_options,
        allowances=settings.allowances,
    )


def require_match(
    catalog: Catalog, location: str, pattern: str, tables: Collection[object]
) -> None:
    """Raise :class:`NotFoundError` if no table matches a pattern, or the catalog does not exist."""
    if not tables:
        catalog.require_exists()
        if pattern != "*":
            raise NotFoundError(f"no table of {location} matches {pattern!r}")


def open_table(ctx: typer.Context, location: str, identifier: str) -> Table:
    """Open a table of a catalog; see :func:`open_catalog`."""
    return open_catalog(ctx, location).table(identifier)


def open_readable(
    ctx: typer.Context, location: str, identifier: str
) -> "Table | SystemTable | CatalogSystemTable":
    """Open a table, or a system table of a table (``db.t$files``) or catalog (``sys.tables``)."""
    catalog = open_catalog(ctx, location)
    if identifier.startswith("sys.") and "$" not in identifier:
        return catalog.system(identifier.removeprefix("sys."))
    return catalog.open(identifier)


def has_terminal() -> bool:
    """Return whether a user can answer a question."""
    return sys.stdin.isatty()


def confirm(action: str, *, yes: bool = False, undo: str = CANNOT_BE_UNDONE) -> None:
    """Ask before something is deleted; stdout is for results, so the question is on stderr.

    ``action`` says what is deleted; the dry run of the command says the same. ``undo`` says whether
    it can be undone. Raises :class:`InputError` unless the user agrees, or passed ``--yes``.
    """
    if yes:
        return
    question = f"{action}? {undo}".rstrip()
    if not has_terminal():
        raise InputError(
            f"{question} There is no terminal to ask on; add --yes to confirm. Nothing was changed"
        )
    if not read_answer(question):
        raise InputError("nothing was changed")


def parse_names(text: str) -> list[str]:
    """Split a list of names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_pair(text: str, example: str) -> tuple[str, str]:
    """Split ``key=value``; raises :class:`InputError` for any other text."""
    key, separator, value = (part.strip() for part in text.partition("="))
    if not (key and separator):
        raise InputError(f"{text!r} must look like key=value, for example {example}")
    return key, value


def parse_pairs(texts: Iterable[str] | None, example: str) -> dict[str, str]:
    """Split texts of the form ``key=value``; raises :class:`InputError` for a repeated key."""
    pairs: dict[str, str] = {}
    for key, value in (parse_pair(text, example) for text in texts or ()):
        if key in pairs:
            raise InputError(f"{key} is given twice: {pairs[key]!r} and {value!r}; remove one")
        pairs[key] = value
    return pairs


def note_rows_not_visible(
    opened: "Table | SystemTable | CatalogSystemTable", scan: "BaseScan"
) -> None:
    """Print on stderr how many records a scan does not return before a compaction."""
    rows = scan.rows_not_visible
    if rows:
        from paimon_orch.table.scan.scan import Scan
        from paimon_orch.table.scan.unseen_rows import describe_unseen_rows_in_scan
        from paimon_orch.table.system_table import SystemTable

        table = opened.table if isinstance(opened, SystemTable) else opened
        assert isinstance(table, Table), "metadata has no such rows"
        can_merge = isinstance(scan, Scan) and scan.visibility.can_merge_more
        option = "--merge-level-0" if can_merge else None
        text = describe_unseen_rows_in_scan(table.stores.label, rows, option)
        print_note(text)


def start_spark(master: str | None) -> "SparkSession":
    """Start Spark, or connect to a Spark Connect server, and print its version on stderr."""
    from paimon_orch.spark.session.session import java_in_use, spark_session

    master = master or DEFAULT_MASTER
    remote = master if master.startswith("sc://") else None
    # without a warning of Java
    start = partial(spark_session, master, remote, use_vector_module=False)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.SIG_IGN:
        # PySpark handles Ctrl-C as soon as it starts, but not if it starts in another thread
        with ThreadPoolExecutor(1) as pool:
            session = pool.submit(start).result()
    else:
        session = start()
        if threading.current_thread() is threading.main_thread():
            # PySpark's handler calls the JVM, which fails if another call is waiting for an answer
            signal.signal(signal.SIGINT, handler)
    print_note(f"Spark {session.version} on {java_in_use(session)}")
    return session


def build_executor(kind: ExecutorKind, master: str | None) -> ChoosingExecutor:
    """Return the executor of a command, which starts Spark only for work that needs it."""

    @cache
    def make_spark() -> Executor:
        from paimon_orch.spark.frame_executor import SparkFrameExecutor

        return SparkFrameExecutor(start_spark(master))

    return ChoosingExecutor(make_spark=make_spark, kind=kind, has_master=master is not None)


def open_progress_bars() -> "AbstractContextManager[Progress | None]":
    """Return a place for progress bars, or None if stderr is not a terminal."""
    if note_console.quiet or not note_console.is_terminal:
        return nullcontext()
    from rich.progress import Progress

    return Progress(console=note_console, transient=True)


def add_progress_bar(bars: "Progress | None", description: str) -> Callable[[int, int], None]:
    """Add a progress bar; returns a function that sets its completed and total number."""
    if bars is None:
        return lambda _completed, _total: None
    from rich.markup import escape

    task = bars.add_task(escape(clean_line(description)), total=None)
    return lambda completed, total: bars.update(task, completed=completed, total=total)

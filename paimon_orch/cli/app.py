"""The command line ``paimon-orch``: its global options, its commands and its exit status.

The index has the names and summaries of all commands, so that an overview does not import their
modules: a command's module imports the part of the library that the command uses, which takes most
of the time of a short call.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from io import TextIOWrapper
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.main import get_group

from paimon_orch import __version__
from paimon_orch.cli.help_page import HelpCommand, HelpGroup, OptionValueError, Panel, new_app
from paimon_orch.errors import CancelledError, InputError, PaimonError
from paimon_orch.safe_text import clean_line, clean_record, get_logger
from paimon_orch.steps.common.step_registry import StepEntry, find_steps

if TYPE_CHECKING:  # older releases of Typer have no such module
    from typer._click import Command, Context
    from typer._click.shell_completion import CompletionItem


class IndexEntry(NamedTuple):
    """Where a command or group of commands is, and how the overview describes it."""

    module: str
    """The module in ``paimon_orch.cli.commands`` whose ``app`` has it."""
    panel: Panel
    summary: str
    """The first sentence of its help page; that of a group has no other."""
    step: StepEntry | None = None
    """The step that declares the command, instead of the module."""


_PANELS = {
    "definition": Panel.TABLES,
    "expiration": Panel.EXPIRE,
    "cleanup": Panel.EXPIRE,
    "publication": Panel.PUBLISH,
    "repairs": Panel.CHECK,
    "row_level": Panel.WRITE,
    "purge-files": Panel.WRITE,
    "rollback": Panel.REFERENCES,
    "trigger-tag-automatic-creation": Panel.REFERENCES,
    "undo": Panel.REFERENCES,
}
"""The sections of declared steps by their names or folders; the others compact and optimize."""


def _index_step(name: str, entry: StepEntry) -> IndexEntry:
    panel = _PANELS.get(name) or _PANELS.get(entry.folder, Panel.COMPACT)
    return IndexEntry("", panel, entry.summary, entry)


_COMMANDS: Mapping[str, IndexEntry] = MappingProxyType(
    {
        "catalogs": IndexEntry("catalog", Panel.TABLES, "Print the configured catalogs."),
        "tables": IndexEntry("catalog", Panel.TABLES, "Print the names of the tables."),
        "create": IndexEntry(
            "catalog", Panel.TABLES, "Create a table, and its database if it does not exist."
        ),
        "rename": IndexEntry("catalog", Panel.TABLES, "Rename a table."),
        "read": IndexEntry("read", Panel.READ, "Print the rows of a table."),
        "sql": IndexEntry("sql", Panel.READ, "Print the result of an SQL query over tables."),
        "describe": IndexEntry(
            "describe",
            Panel.READ,
            "Show the columns, keys, partitions, options and comment of a table.",
        ),
        "history": IndexEntry("describe", Panel.READ, "Show the newest snapshots of a table."),
        "count": IndexEntry("describe", Panel.READ, "Count the rows of a table."),
        "inspect": IndexEntry(
            "inspect", Panel.READ, "Show the files, levels and health of a table."
        ),
        "why": IndexEntry("why", Panel.READ, "Explain what makes a table slow or large."),
        "maintenance-history": IndexEntry(
            "autopilot", Panel.READ, "Print the actions that autopilot has executed."
        ),
        "autopilot": IndexEntry(
            "autopilot", Panel.COMPACT, "Maintain all tables of a catalog, as far as it pays."
        ),
        "compact": IndexEntry("compact", Panel.COMPACT, "Merge sorted runs, or merge small files."),
        "compact-database": IndexEntry(
            "compact", Panel.COMPACT, "Compact the tables of one or more databases."
        ),
        "doctor": IndexEntry(
            "doctor", Panel.CHECK, "Find tables that are damaged, slow or not maintained."
        ),
        "check": IndexEntry("check", Panel.CHECK, "Verify a table."),
        "demo": IndexEntry("demo", Panel.DEMO, "Load, compact and check a table of flights."),
    }
)
"""The commands that are more than a step."""
_GROUPS: Mapping[str, IndexEntry] = MappingProxyType(
    {
        "database": IndexEntry("catalog", Panel.TABLES, "List, create and drop databases."),
        "quarantine": IndexEntry(
            "quarantine", Panel.EXPIRE, "List, restore and delete quarantined files."
        ),
        "tag": IndexEntry("tag", Panel.REFERENCES, "Create, list, rename and delete tags."),
        "branch": IndexEntry("branch", Panel.REFERENCES, "Create, list and delete branches."),
        "consumer": IndexEntry("consumer", Panel.REFERENCES, "List, reset and delete consumers."),
    }
)
INDEX: Mapping[str, IndexEntry] = MappingProxyType(
    {
        **_COMMANDS,
        **{
            entry.command: _index_step(name, entry)
            for name, entry in find_steps().items()
            if entry.command not in _COMMANDS and " " not in entry.command
        },
        **_GROUPS,
    }
)
"""All commands in the order of the reference page: groups are the last."""


class LazyCommands(Mapping[str, "Command"]):
    """The commands of the index; a lookup imports the command's module."""

    def __init__(self, index: Mapping[str, IndexEntry]) -> None:
        self._index = index
        self._loaded: dict[str, Command] = {}
        self.outline: dict[str, Command] = {
            name: HelpCommand(name, short_help=entry.summary, rich_help_panel=entry.panel)
            for name, entry in index.items()
        }
        """Commands with a summary only, for overviews."""

    def __getitem__(self, name: str) -> "Command":
        if name not in self._loaded:
            self._loaded |= _load_commands(self._index[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


def _load_commands(entry: IndexEntry) -> Mapping[str, "Command"]:
    """Return a command, and the other commands and groups of its module, by name."""
    if entry.step is None:
        app = import_module(f"paimon_orch.cli.commands.{entry.module}").app
    else:
        from paimon_orch.cli.step_command import add_step_command

        add_step_command(app := new_app(), entry.step)
    commands: Mapping[str, Any] = get_group(app).commands
    for key, command in commands.items():
        command.rich_help_panel = INDEX[key].panel
        command.help = command.help or INDEX[key].summary  # groups have no other text
    return commands


class LazyGroup(HelpGroup):
    """The group of all commands, which imports only the module of the command that runs."""

    def __init__(self, **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]
        self._lazy = self.commands = LazyCommands(INDEX)  # type: ignore[assignment]

    def list_commands(self, ctx: "Context") -> list[str]:  # noqa: ARG002 - the signature is Typer's
        """Return the names of all commands."""
        return list(self._lazy)

    def get_outline(self, ctx: "Context", name: str) -> "Command | None":  # noqa: ARG002
        """Return a command with its summary only."""
        return self._lazy.outline.get(name)

    def shell_complete(self, ctx: "Context", incomplete: str) -> list["CompletionItem"]:
        """Return the completions of a command's name, and of the options before it."""
        self.commands = self._lazy.outline
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = self._lazy  # type: ignore[assignment]


app = typer.Typer(
    cls=LazyGroup,
    help="Reads, writes and maintains Apache Paimon tables.",
    epilog="Exit status: 0 for success, 1 for a failure or a finding of check, inspect "
    "or doctor, 2 for wrong usage, 130 for an interrupt.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100, "help_option_names": ["--help", "-h"]},
)
logger = get_logger(__name__)

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_PY4J_MODULES = {"clientserver", "java_gateway"}  # they log to the root logger
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log details.")]
_Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print results and errors, but no notes and warnings."),
]


class LogLevel(StrEnum):
    """The least severe log lines to print."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The formats of log lines."""

    TEXT = "text"
    JSON = "json"


_Level = Annotated[
    LogLevel | None,
    typer.Option("--log-level", help="Least severe log lines.", show_default="warning"),
]
_LogFormat = Annotated[LogFormat, typer.Option(help="Format of logs, notes and errors on stderr.")]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"paimon-orch {__version__}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Print the version and exit.",
        is_eager=True,
        callback=_print_version,
    ),
]
_StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="Option of an object store; may be repeated. Put secrets as a JSON object into the "
        "environment variable PAIMON_STORAGE_OPTIONS, because other users can see command lines.",
    ),
]
_CatalogOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-option",
        metavar="NAME=VALUE",
        help="Option of a catalog, such as metastore=jdbc; may be repeated. With a metastore, "
        "CATALOG is the warehouse; otherwise the options override those of the configured catalog. "
        "Put secrets into environment variables such as PAIMON_ORCH_CATALOG__PROD__TOKEN.",
    ),
]


def main() -> None:
    """Run the command line."""
    run_process(app)


def run_process(function: Callable[[], object]) -> None:
    """Run a function as a process with the exit status and the signals of the command line.

    Prints an expected error as one paragraph without a traceback.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # file names may be invalid Unicode
        sys.stdout.reconfigure(errors="backslashreplace")
    with _terminate_like_interrupt():
        try:
            _run(function)
        except _TerminatedError as end:
            _end_interrupted(end, "terminated", 128 + signal.SIGTERM)
        except KeyboardInterrupt as end:
            _end_interrupted(end, "interrupted", 128 + signal.SIGINT)


def _run(function: Callable[[], object]) -> None:
    try:
        function()
    except SystemExit as end:
        interrupt = _find_interrupt(end)
        raise interrupt or end from None
    except CancelledError as error:
        interrupt = _find_interrupt(error) or KeyboardInterrupt()
        interrupt.add_note(str(error).rstrip("."))
        raise interrupt from None
    except PaimonError as error:
        status = 2 if isinstance(error, OptionValueError) else 1
        _fail(f"{error}{_format_notes(error)}", status)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        _fail(f"{path}{error.strerror or error}{_format_notes(error)}")
    except MemoryError:
        _fail("out of memory; nothing was committed")
    except Exception as error:
        logger.info("the command failed", exc_info=True)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(
            f"internal error ({text}). This is a bug; please report it with the output of "
            "paimon-orch --verbose COMMAND ..."
        )


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, which commands handle like Ctrl-C."""


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """Raise :class:`_TerminatedError` for SIGTERM, so that the same cleanup happens."""

    def stop(*_: object) -> None:
        raise _TerminatedError

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # the caller's handler is kept
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _find_interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that caused an error; Typer ends the process after an interrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _end_interrupted(end: KeyboardInterrupt, word: str, status: int) -> None:
    """Print one line, stop the JVM, and end the process without waiting for its threads."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _INTERRUPTS}
    try:
        with suppress(OSError):
            line_end = "\n" if sys.stderr.isatty() else ""  # the terminal shows ^C
            sys.stderr.write(f"{line_end}{clean_line(word + _format_notes(end))}\n")
        session = sys.modules.get("paimon_orch.spark.session.session")
        if session is not None:
            session.stop_jvm()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        _exit_now(status)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


_exit_now = os._exit
"""Ends the process at once: threads may wait for a server, also in handlers at the exit."""


def _fail(text: str, status: int = 1) -> None:
    from paimon_orch.cli.screen import print_error

    print_error(text)
    sys.exit(status)


def _format_notes(error: BaseException) -> str:
    """Return the notes of an error, for example on commits before the error."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


@app.callback()
def _read_settings(
    ctx: typer.Context,
    verbose: _Verbose = False,
    quiet: _Quiet = False,
    log_level: _Level = None,
    log_format: _LogFormat = LogFormat.TEXT,
    storage_options: _StorageOptions = None,
    catalog_options: _CatalogOptions = None,
    version: _Version = False,  # noqa: ARG001 - the callback of the option prints the version
) -> None:
    from paimon_orch.cli import screen
    from paimon_orch.cli.common import CliSettings

    screen.note_console.quiet = quiet
    is_json = log_format == LogFormat.JSON
    screen.message_format.formatter = _JsonFormatter() if is_json else screen.TEXT
    ctx.obj = CliSettings(
        _split_options("--storage-option", storage_options),
        _split_options("--catalog-option", catalog_options),
    )
    default = LogLevel.INFO if verbose else LogLevel.ERROR if quiet else LogLevel.WARNING
    configure_logs(log_level or default, log_format)
    # The overview of the commands does not need this import.
    from paimon_orch.orchestration.openlineage import emit_lineage

    emit_lineage()


def configure_logs(level: LogLevel = LogLevel.WARNING, form: LogFormat = LogFormat.TEXT) -> None:
    """Print log lines of this level, and more severe ones, on stderr."""
    logs = logging.StreamHandler()
    logs.addFilter(clean_record)  # the lines of other packages too
    text = logging.Formatter("%(levelname)s %(name)s: %(message)s")
    logs.setFormatter(_JsonFormatter() if form == LogFormat.JSON else text)
    if level in (LogLevel.WARNING, LogLevel.ERROR):  # the errors of Py4J are raised too
        logs.addFilter(lambda record: record.module not in _PY4J_MODULES)
        logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.basicConfig(level=level.upper(), handlers=[logs])


class _JsonFormatter(logging.Formatter):
    """Formats a log line as a JSON object, without line breaks."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time in ISO 8601, the level, the logger, the message and the traceback."""
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(values | ({"exception": record.exc_text} if record.exc_text else {}))


def _split_options(switch: str, texts: list[str] | None) -> dict[str, str]:
    """Return options by name; errors do not show the text, which may be a secret."""
    options: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not (name.strip() and separator):
            raise InputError(f"{switch} must look like name=value")
        if name.strip() in options:
            raise InputError(f"{switch} {name.strip()} is given twice; remove one")
        options[name.strip()] = value
    return options

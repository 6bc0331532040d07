"""The command line ``paimon-orch``: its global options, its commands and its exit status."""

import logging
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from paimon_orch import __version__
from paimon_orch.cli import (
    alter,
    analyze,
    catalog,
    check,
    cleanup,
    compact,
    expire,
    file_index,
    ingest,
    inspect,
    postpone,
    read,
    refs,
    row_level,
)
from paimon_orch.cli.common import CliSettings, console, error_console
from paimon_orch.cli.help_page import HelpGroup, Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.errors import InputError, PaimonError

app = typer.Typer(
    cls=HelpGroup,
    help="Reads, writes and maintains Apache Paimon tables.",
    epilog="Exit status: 0 for success, 1 for a failure or a finding of check or inspect, "
    "2 for wrong usage, 130 for an interrupt.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
logger = logging.getLogger(__name__)

_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log details.")]


def _print_version(requested: bool) -> None:
    if requested:
        console.print(f"paimon-orch {__version__}")
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
_DemoWarehouse = Annotated[
    str | None,
    typer.Option(
        metavar="DIRECTORY", help="Directory for the table.", show_default="a new directory"
    ),
]
_DemoMonths = Annotated[
    int, typer.Option(metavar="N", min=1, max=12, help="Months of 2013 to load.")
]


def main() -> None:
    """Run the command line; prints an expected error as one paragraph without a traceback."""
    if isinstance(sys.stdout, TextIOWrapper):  # file names may be invalid Unicode
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except PaimonError as error:
        _fail(f"{error}{_format_notes(error)}")
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


def _fail(text: str) -> None:
    error_console.print(f"error: {text}")
    sys.exit(1)


def _format_notes(error: Exception) -> str:
    """Return the notes of an error, for example on commits before the error."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


@app.callback()
def _read_settings(
    ctx: typer.Context,
    verbose: _Verbose = False,
    storage_options: _StorageOptions = None,
    catalog_options: _CatalogOptions = None,
    version: _Version = False,  # noqa: ARG001 - the callback of the option prints the version
) -> None:
    ctx.obj = CliSettings(
        _split_options("--storage-option", storage_options),
        _split_options("--catalog-option", catalog_options),
    )
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    if not verbose:
        logging.getLogger("py4j").setLevel(logging.ERROR)


def _split_options(switch: str, texts: list[str] | None) -> dict[str, str]:
    """Return options by name; errors do not show the text, which may be a secret."""
    options = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not (name.strip() and separator):
            raise InputError(f"{switch} must look like name=value")
        options[name.strip()] = value
    return options


def demo(warehouse: _DemoWarehouse = None, months: _DemoMonths = 12) -> None:
    """Load, compact and check a table of flights.

    Loads three waves of upserts with real flights, compacts the table after each wave, and compares
    all rows at the end.
    """
    from paimon_orch.demo.pipeline import run_demo
    from paimon_orch.demo.warehouse import fresh_warehouse

    if not run_demo(warehouse or fresh_warehouse(), months, console):
        sys.exit(1)


for module in (
    catalog,
    alter,
    ingest,
    row_level,
    read,
    inspect,
    compact,
    analyze,
    postpone,
    file_index,
    expire,
    cleanup,
    check,
    refs,
):
    module.add_commands(app)
register_command(app, demo, Panel.DEMO, has_allowances=False)

"""Runs one step of one table as a process: ``python -m paimon_orch.run_step '{"step": ...}'``.

The step is a JSON object, on standard input if there is no argument; :class:`StepRun` has its keys.
The report is one JSON object on standard output, also of a failed step. The exit status and the
messages on standard error are those of the command line. If a client of Dagster Pipes has started
the process, Dagster gets the report too. With the attribute ``run_on`` of Dagster's components, the
step is an extra of Dagster Pipes.

>>> echo '{"step": "compact", "catalog": "/lake", "table": "db.orders"}' \
...     | python -m paimon_orch.run_step
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.cli.app import configure_logs, run_process
from paimon_orch.cli.common import build_executor
from paimon_orch.cli.screen import print_json
from paimon_orch.errors import CancelledError, InputError, PaimonError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.optional_packages import require_package
from paimon_orch.orchestration.error_handling import find_next_step, may_succeed_again
from paimon_orch.orchestration.step_runs import STEP_EXTRA, name_figures, run_declared_step
from paimon_orch.safe_text import clean_values, get_logger
from paimon_orch.steps.common.argument import Argument, convert_arguments
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step_registry import load_declaration

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

logger = get_logger(__name__)

_PIPES_VARIABLE = "DAGSTER_PIPES_CONTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A step of a table, where it runs, and what it may do."""

    step: Annotated[str, Argument("Name of the step, as on the command line.")]
    table: Annotated[
        str, Argument("Name of the table with its database, or of a database to drop.")
    ]
    catalog: Annotated[
        str | None,
        Argument("Directory or URL of a warehouse, or the name of a configured catalog."),
    ] = None
    arguments: Annotated[Mapping[str, Any], Argument("Arguments of the step by name.")] = field(
        default_factory=dict
    )
    dry_run: Annotated[
        bool | None,
        Argument("Only plan the step. Steps whose command asks require true or false."),
    ] = None
    executor: Annotated[Literal["auto", "local", "spark"], Argument("Where the work runs.")] = (
        "auto"
    )
    master: Annotated[
        str | None, Argument("Spark master, or sc://host:port for Spark Connect.")
    ] = None
    catalog_options: Annotated[Mapping[str, str], Argument("Options of the catalog.")] = field(
        default_factory=dict, repr=False
    )
    storage_options: Annotated[Mapping[str, str], Argument("Options of the store.")] = field(
        default_factory=dict, repr=False
    )
    allow_stale_external: Annotated[
        bool, Argument("Run even if this leaves external systems stale.")
    ] = False
    allow_unknown_options: Annotated[
        bool, Argument("Run even if the table has unknown options.")
    ] = False

    @classmethod
    def parse(cls, text: str) -> "StepRun":
        """Return the run of a JSON text. Raises :class:`InputError` for any other text."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InputError(f"the step is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError('the step is not a JSON object, such as {"step": "compact", ...}')
        return cls.of(values)

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "StepRun":
        """Return the run of a JSON object. Raises :class:`InputError` for wrong values."""
        return cls(**convert_arguments(cls, values))

    def execute(self, *, with_table: bool = False) -> dict[str, object]:
        """Run the step; return the report of :func:`run_declared_step`."""
        catalog = open_catalog(
            self.catalog,
            catalog_options=self.catalog_options,
            storage_options=self.storage_options,
            allowances=Allowances(
                stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
            ),
        )
        executor = build_executor(ExecutorKind(self.executor), self.master)
        target = load_declaration(self.step).open_target(catalog, self.table)
        return run_declared_step(
            self.step,
            target,
            self.arguments,
            executor,
            dry_run=self.dry_run,
            with_table=with_table,
        )


def _describe_error(step: object, table: object, error: Exception) -> dict[str, object]:
    """Return the report of a failed step."""
    return {
        "step": step,
        "table": table,
        "error": {
            "type": type(error).__name__,
            "message": str(error),
            "may_succeed_again": may_succeed_again(error),
            "next_step": find_next_step(error),
        },
    }


@contextmanager
def _open_pipes() -> Iterator["PipesContext | None"]:
    """Connect to Dagster if a client of Dagster Pipes has started this process; else yield None.

    A program that has connected before it calls :func:`main` chooses the place of the messages.
    """
    pipes_module = sys.modules.get("dagster_pipes")
    is_connected = pipes_module is not None and pipes_module.PipesContext.is_initialized()
    if _PIPES_VARIABLE not in os.environ and not is_connected:
        yield None
        return
    name = "dagster-pipes"
    require_package("dagster_pipes", "a report to Dagster", install=name, package=name)
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield pipes


def _send_report(pipes: "PipesContext", report: Mapping[str, Any]) -> None:
    """Send a report as a message, and its figures as metadata of the assets of the run."""
    pipes.report_custom_message(report)
    if not pipes.is_asset_step or "error" in report:
        return
    figures = report["outcome"] or report["plan"]
    metadata: dict[str, Any] = {
        **name_figures(report["step"].replace("-", "_"), figures, dry_run=report["dry_run"]),
        "paimon/dry_run": report["dry_run"],
        "paimon/report": {"raw_value": report, "type": "json"},
    }
    for key in pipes.asset_keys:
        pipes.report_asset_materialization(metadata, asset_key=key)


def _run_requested(pipes: "PipesContext", values: Mapping[str, Any]) -> None:
    """Run the step that the orchestrator has sent, and send the report, also of a failed step.

    The orchestrator raises its error. This process ends normally, because a client of Dagster Pipes
    returns only the messages of a successful process.
    """
    try:
        report = StepRun.of(values).execute(with_table=True)
    except CancelledError:
        raise
    except Exception as error:
        logger.exception("the step failed", exc_info=not isinstance(error, PaimonError))
        report = _describe_error(values.get("step"), values.get("table"), error)
    print_json(report)
    pipes.report_custom_message(clean_values(report))


def main() -> None:
    """Run the step of Dagster, of the argument, or of standard input, and print its report."""
    configure_logs()
    with _open_pipes() as pipes:
        requested = None if pipes is None else pipes.extras.get(STEP_EXTRA)
        if pipes is not None and requested is not None:
            _run_requested(pipes, requested)
            return
        run = StepRun.parse(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read())

        def send(report: Mapping[str, Any]) -> None:
            print_json(report)
            if pipes is not None:
                _send_report(pipes, clean_values(report))

        try:
            report = run.execute()
        except Exception as error:
            send(_describe_error(run.step, run.table, error))
            raise
        send(report)
        if report["is_incomplete"]:
            sys.exit(1)


if __name__ == "__main__":
    run_process(main)

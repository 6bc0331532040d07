"""Rules of options: those that stop steps, and places that are not allowed."""

from collections.abc import Iterator

from paimon_orch.format.options.blocking_options import describe_options
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.inspection.doctor.rule_context import RuleContext

_CHANGE_OPTION = (
    "no command can decide this: correct the option with `paimon-orch alter --set KEY=VALUE`, or, if no "
    "other reader or writer needs it, reset it with `--reset KEY`"
)
_ALLOW = (
    "no command can decide this: allow the place, as docs/how-to/catalogs.md says, or remove the "
    "option"
)


def check_options(context: RuleContext, schema: TableSchema) -> Iterator[DoctorFinding]:
    """Yield the options of a table that stop its steps."""
    environment = context.table.environment
    for text in describe_options(schema.options, has_service=environment.is_service):
        yield context.find(DoctorRule.OPTION, Severity.WARNING, text, advice=_CHANGE_OPTION)
    for text in environment.permissions.list_refusals(context.table.identifier, schema):
        yield context.find(DoctorRule.NOT_ALLOWED, Severity.WARNING, text, advice=_ALLOW)

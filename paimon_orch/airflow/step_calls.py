"""The steps that operators run: request from arguments, plan, run, and their JSON reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, get_args, get_type_hints

from paimon_orch.errors import CorruptFileError, InputError
from paimon_orch.format.times import parse_cutoff, parse_duration
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.step import StepOutcome, run_step
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.expiration import expire_snapshots as snapshot_step
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import rewrite_file_index as index_step
from paimon_orch.table.table import Table

_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """How an operator plans and runs a step."""

    request: type
    plan: Callable[[Table, Any, Executor], Any]
    run: Callable[[Table, Any, Executor], StepOutcome]


def _remove_orphan_files(
    table: Table, plan: orphan_step.OrphanFilesPlan, executor: Executor
) -> StepOutcome:
    report = check(table, executor=executor)
    if not report:
        raise CorruptFileError(
            table.paths.root,
            f"no orphan file is removed from a damaged table (findings: {len(report.findings)}, "
            f"the first: {report.findings[0]})",
        )
    return run_step(orphan_step.REMOVE_ORPHAN_FILES, table, plan, executor)


STEP_CALLS: Mapping[str, StepCall] = {
    "compact": StepCall(
        request=compact_step.CompactRequest,
        plan=lambda table, request, executor: compact_step.plan(table, request, executor=executor),
        run=compact_step.run_compaction,
    ),
    "expire_snapshots": StepCall(
        request=snapshot_step.ExpireSnapshotsRequest,
        plan=lambda table, request, _executor: snapshot_step.plan(table, request),
        run=snapshot_step.run_expiration,
    ),
    "remove_orphan_files": StepCall(
        request=orphan_step.RemoveOrphanFilesRequest,
        plan=lambda table, request, executor: orphan_step.plan(table, request, executor=executor),
        run=_remove_orphan_files,
    ),
    "rewrite_file_index": StepCall(
        request=index_step.RewriteFileIndexRequest,
        plan=lambda table, request, _executor: index_step.plan(table, request),
        run=lambda table, plan, executor: run_step(
            index_step.REWRITE_FILE_INDEX, table, plan, executor
        ),
    ),
}
"""The steps by name."""


def get_step_call(step: str) -> StepCall:
    """Return a step by its name; raises :class:`InputError` for an unknown one."""
    if step not in STEP_CALLS:
        raise InputError(f"no step {step!r} (steps: {', '.join(sorted(STEP_CALLS))})")
    return STEP_CALLS[step]


def build_request(call: StepCall, arguments: Mapping[str, Any]) -> Any:
    """Return the request of a step; None means the default of an argument.

    Texts, as templates render them, are parsed: durations such as ``12 h``, the cutoff
    ``older_than`` as a duration or a point in time, and numbers. Raises :class:`InputError` for an
    unknown argument or a text that cannot be parsed.
    """
    known = {field.name for field in fields(call.request)}
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise InputError(
            f"unknown arguments {', '.join(unknown)} (known: {', '.join(sorted(known))})"
        )
    hints = get_type_hints(call.request)
    values = {
        name: _parse(name, value, hints[name])
        for name, value in arguments.items()
        if value is not None
    }
    return call.request(**values)


def _parse(name: str, value: object, hint: object) -> object:
    types = get_args(hint) or (hint,)
    if name == "partitions" and isinstance(value, str):
        return [value]
    if isinstance(value, list) and name != "partitions":
        return tuple(value)
    if not isinstance(value, str) or str in types:
        return value
    if timedelta in types:
        return parse_duration(name, value)
    if name == "older_than":
        return parse_cutoff(name, value)
    if bool in types:
        return _parse_with(_TRUTHS.__getitem__, name, value.lower())
    return _parse_with(int, name, value) if int in types else value


def _parse_with(parse: Callable[[str], object], name: str, text: str) -> object:
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise InputError(f"{name} {text!r} is neither a number nor true or false") from None

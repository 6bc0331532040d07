"""Commands that remove missing files from the metadata."""

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    Identifier,
    Yes,
)
from paimon_orch.cli.common import (
    confirm,
    open_table,
    print_values,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import register_command
from paimon_orch.format.display import format_count
from paimon_orch.steps.cleanup import remove_unexisting_files as missing_step
from paimon_orch.steps.cleanup import remove_unexisting_manifests as manifest_step
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.repairs.tag_before import describe_tag

_RESTORE_FILES = "If a backup has the files, restore them instead."


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        remove_unexisting_files,
        Panel.CHECK,
        examples=["remove-unexisting-files /lake db.orders --dry-run"],
    )
    register_command(
        app,
        remove_unexisting_manifests,
        Panel.CHECK,
        examples=["remove-unexisting-manifests /lake db.orders --dry-run"],
    )


def remove_unexisting_files(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove missing data files from the metadata.

    Afterwards, the remaining rows of the newest snapshot can be read again. The rows of the missing
    files are lost. In a table with a primary key, older values of the same keys become visible, and
    are written to a Parquet file of the quarantine. The tag before-repair-<UTC time> keeps the
    state before.
    """
    target = open_table(ctx, location, table)
    missing = missing_step.plan(target, EmptyRequest())
    files = format_count(len(missing.paths), "missing file")
    action = f"remove {files} of {table} from the metadata; {missing.describe_loss()}"
    if dry_run or not missing:
        text = f"would {action}; nothing was changed" if missing else "no file is missing"
        print_values(missing.to_dict(), as_json, *missing.paths, text)
        return
    confirm(action, yes=yes, undo=_RESTORE_FILES)
    result = run_step(missing_step.REMOVE_UNEXISTING_FILES, target, missing)
    text = f"removed {files} from the metadata{result.describe_visible_rows()}"
    end = [] if result.tag is None else [describe_tag(target, result.tag)]
    print_values(result.to_dict(), as_json, *missing.paths, text, *end)


def remove_unexisting_manifests(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove missing manifests from the metadata.

    Afterwards, the files of the other manifests can be read again. Files that the missing manifests
    added are lost, and files that they deleted are read again if they exist: run check --deep. The
    tag before-repair-<UTC time> keeps the state before.
    """
    target = open_table(ctx, location, table)
    missing = manifest_step.plan(target, EmptyRequest())
    manifests = format_count(len(missing.paths), "missing manifest")
    action = f"remove {manifests} of {table} from the metadata; {missing.describe_loss()}"
    if dry_run or not missing:
        text = f"would {action}; nothing was changed" if missing else "no manifest is missing"
        print_values(missing.to_dict(), as_json, *missing.paths, text)
        return
    confirm(action, yes=yes, undo=_RESTORE_FILES)
    result = run_step(manifest_step.REMOVE_UNEXISTING_MANIFESTS, target, missing)
    lines = [*missing.paths, f"removed {manifests} from the metadata"]
    if missing.comparable_id is not None:
        lines.append(
            f"snapshot {missing.comparable_id} is the newest older one with all manifests: compare "
            "the rows with its rows"
        )
    lines += [] if result.tag is None else [describe_tag(target, result.tag)]
    print_values(result.to_dict(), as_json, *lines)

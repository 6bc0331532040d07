"""Commands for quarantined files."""

from paimon_orch.cli.step_command import build_group
from paimon_orch.steps.cleanup.quarantine import Quarantine

app = build_group(
    "quarantine",
    lambda table: Quarantine.of(table).list_folders(),
    "Print the folders of quarantined files.\n\n"
    "Each run of remove-orphan-files --quarantine creates one.",
)

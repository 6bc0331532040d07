"""Commands for branches."""

from paimon_orch.cli.step_command import build_group

app = build_group(
    "branch", lambda table: table.branches.names(), "Print the names of all branches except main."
)

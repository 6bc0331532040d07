"""Commands for tags."""

from paimon_orch.cli.step_command import build_group

app = build_group("tag", lambda table: table.tags.names(), "Print the names of all tags.")

"""Commands for consumers."""

from paimon_orch.cli.step_command import build_group

app = build_group(
    "consumer",
    lambda table: table.stores.open_consumers().find_matching(),
    "Print the ids of all consumers.\n\n"
    "The system table DATABASE.TABLE$consumers also has their next snapshots.",
)

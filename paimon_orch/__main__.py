"""Run the command line as ``python -m paimon_orch``."""

from paimon_orch.cli.app import main

main()

"""The demo: writes, compacts and verifies tables of real flights."""

from paimon_orch.optional_packages import require_package

require_package("pandas", "the demo", install="paimon-orch[demo]")

"""The default warehouses of the demo and of its code location."""

from datetime import datetime

import platformdirs


def default_warehouse() -> str:
    """Return the warehouse of the demo's code location: a directory in the user's cache."""
    return str(platformdirs.user_cache_path("paimon-orch") / "warehouse")


def fresh_warehouse() -> str:
    """Return an unused directory in the user's cache, named by the current time."""
    base = platformdirs.user_cache_path("paimon-orch") / "demo"
    return str(base / datetime.now().strftime("%Y-%m-%d-%H%M%S-%f"))

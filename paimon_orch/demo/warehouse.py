"""Where the demo and the example code location keep their tables unless told otherwise."""

from datetime import datetime

import platformdirs


def default_warehouse() -> str:
    """Return the warehouse of the example code location: a directory in the user's cache."""
    return str(platformdirs.user_cache_path("paimon-orch") / "warehouse")


def fresh_warehouse() -> str:
    """Return a directory in the user's cache that no run has used yet, named by the time."""
    base = platformdirs.user_cache_path("paimon-orch") / "demo"
    return str(base / datetime.now().strftime("%Y-%m-%d-%H%M%S-%f"))

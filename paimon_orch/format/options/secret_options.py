"""Options of tables whose values are credentials, which must not be shown."""

import re
from collections.abc import Mapping

from paimon_orch.format.options.core_options import ICEBERG_REST_SETTING

_SECRET = re.compile(r"token|credential|secret|password|header\.|key", re.IGNORECASE)
_PREFIX = ICEBERG_REST_SETTING.named("").key


def is_secret_setting(name: str) -> bool:
    """Return whether a property of an Iceberg REST client may be a credential."""
    return _SECRET.search(name) is not None


def hide_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table with ``***`` for credentials."""
    return {
        key: "***" if key.startswith(_PREFIX) and is_secret_setting(key[len(_PREFIX) :]) else value
        for key, value in options.items()
    }

"""Options of tables whose values may be credentials, which must not be shown."""

from collections.abc import Mapping

from paimon_orch.format.options.option_lookup import find_option
from paimon_orch.safe_text import MASK, is_secret_name, mask_secrets

_FREE_TEXTS = (".param", ".params")
"""How the keys of options end whose values are passed to other programs."""
_SETTING = "<setting>"


def is_secret_option(key: str) -> bool:
    """Return whether the value of a table's option may be a credential.

    These are parameters of callbacks and requests, and options with the name of a secret that
    Paimon does not define, or only as settings of another library.
    """
    option = find_option(key)
    if option is None:
        return is_secret_name(key)
    if option.key.endswith(_FREE_TEXTS):
        return True
    is_of_library = option.key.endswith(_SETTING) and not option.key.startswith("file-index.")
    return is_of_library and is_secret_name(key)


def hide_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table as they are shown: without credentials, also in URLs."""
    return {
        mask_secrets(key): MASK if is_secret_option(key) else mask_secrets(value)
        for key, value in options.items()
    }


def show_option(key: str, value: str) -> str:
    """Return an option of a table for a message: ``'bucket' = '4'``, without credentials."""
    return f"{key!r} = {MASK if is_secret_option(key) else value!r}"

"""Requests to an Iceberg REST catalog through pyiceberg: options, time limits and errors.

See docs/format/iceberg-metadata.md#rest-catalogs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paimon_orch.errors import (
    AccessDeniedError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    InputError,
    PaimonError,
)
from paimon_orch.format.options.core_options import ICEBERG_REST_SETTING, ICEBERG_STORAGE
from paimon_orch.optional_packages import require_package
from paimon_orch.safe_text import is_secret_name, mask_secrets, mask_values

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

REST_PREFIX = ICEBERG_REST_SETTING.named("").key
_AUTH_TYPE = "rest.auth.type"
_BASIC = "rest.auth.basic."
_SIGV4 = "rest.sigv4-enabled"
_USED_PROPERTIES = frozenset(
    {
        "uri",
        "warehouse",
        "prefix",
        "credential",
        "token",
        "scope",
        "audience",
        "resource",
        "oauth2-server-uri",
        "client.region",
        "client.access-key-id",
        "client.secret-access-key",
        "client.session-token",
    }
)
_USED_PREFIXES = ("header.", "rest.auth.", "rest.sig")
"""Options name no class and no file: other properties are those of Java clients."""


def read_rest_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the REST client in the options of a table; checks them.

    Raises :class:`InputError` if they are incomplete, or if an optional package is missing.
    """
    purpose = f"'{ICEBERG_STORAGE.key}' = 'rest-catalog'"
    require_package("pyiceberg", purpose, install="paimon-orch[iceberg-rest]")
    named = {
        key.removeprefix(REST_PREFIX): value
        for key, value in options.items()
        if key.startswith(REST_PREFIX)
    }
    properties = {
        key: value
        for key, value in named.items()
        if key in _USED_PROPERTIES or key.startswith(_USED_PREFIXES)
    }
    if not properties.get("uri"):
        raise InputError(
            f"'{ICEBERG_STORAGE.key}' = 'rest-catalog' needs the option '{REST_PREFIX}uri'"
        )
    kind = properties.get(_AUTH_TYPE, "none").lower()
    if kind not in ("none", "basic", "oauth2", "sigv4"):
        raise InputError(
            f"'{REST_PREFIX}{_AUTH_TYPE}' = {kind!r} is not supported, only none, basic, "
            "oauth2 and sigv4"
        )
    return properties


@contextmanager
def open_rest_catalog(properties: Mapping[str, str]) -> "Iterator[RestCatalog]":
    """Connect to a catalog; errors within the context become those of this library.

    Their messages contain no credentials. Errors that a caller handles have to be caught inside.
    """
    from paimon_orch.table.iceberg.confined_rest_catalog import ConfinedRestCatalog

    try:
        catalog = ConfinedRestCatalog("iceberg", **_translate_properties(properties))
        try:
            yield catalog
        finally:
            catalog.close()
    except PaimonError:
        raise
    except Exception as error:  # noqa: BLE001 - pyiceberg's errors have no common base
        # The original error may show credentials, so tracebacks leave it out.
        raise _translate_error(error, properties) from None


def _translate_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of pyiceberg's client for those of Iceberg Java."""
    kind = properties.get(_AUTH_TYPE, "none").lower()
    translated: dict[str, Any] = {
        key: value for key, value in properties.items() if not key.startswith("rest.auth.")
    }
    if kind == "sigv4":
        translated[_SIGV4] = "true"
    elif kind == "basic":
        basic = {name: properties.get(_BASIC + name, "") for name in ("username", "password")}
        translated["auth"] = {"type": "basic", "basic": basic}
    return translated


def _translate_error(error: Exception, properties: Mapping[str, str]) -> PaimonError:
    from pyiceberg.exceptions import (
        CommitStateUnknownException,
        ForbiddenError,
        OAuthError,
        UnauthorizedError,
    )

    line = (str(error).splitlines() or [""])[0]  # servers add the stack of their error
    text = redact(f"{type(error).__name__}: {line}", properties)
    message = f"the Iceberg REST catalog {redact(properties['uri'], properties)}: {text}"
    match error:
        case CommitStateUnknownException():
            return CommitOutcomeUnknownError(message)
        case UnauthorizedError() | ForbiddenError() | OAuthError():
            return AccessDeniedError(message)
    return CatalogUnavailableError(message)


def redact(text: str, properties: Mapping[str, str]) -> str:
    """Return a text without credentials."""
    secrets = [value for key, value in properties.items() if is_secret_name(key)]
    parts = [part for value in secrets for part in (value, *value.split(":", 1))]
    return mask_secrets(mask_values(text, parts))

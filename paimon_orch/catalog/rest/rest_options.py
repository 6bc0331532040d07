"""The options of a REST catalog. See docs/format/catalogs.md."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from paimon_orch.catalog.catalog_options import STORAGE_PREFIX, URI, check_option_names
from paimon_orch.errors import InputError
from paimon_orch.format.argument_checks import format_option_value
from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.value_type import BOOLEAN, KEYWORD, TEXT

HEADER_PREFIX = "header."

PREFIX = honoured("prefix", TEXT)
TOKEN = honoured("token", TEXT)
TOKEN_PROVIDER = honoured("token.provider", KEYWORD, choices=("bear", "dlf"))
DATA_TOKEN_ENABLED = honoured("data-token.enabled", BOOLEAN, "false")
DLF_REGION = honoured("dlf.region", TEXT)
DLF_TOKEN_PATH = honoured("dlf.token-path", TEXT)
DLF_ACCESS_KEY_ID = honoured("dlf.access-key-id", TEXT)
DLF_ACCESS_KEY_SECRET = honoured("dlf.access-key-secret", TEXT)
DLF_SECURITY_TOKEN = honoured("dlf.security-token", TEXT)
DLF_TOKEN_LOADER = honoured("dlf.token-loader", KEYWORD, choices=("ecs", "local_file"))
DLF_TOKEN_ECS_METADATA_URL = honoured(
    "dlf.token-ecs-metadata-url",
    TEXT,
    "http://100.100.100.200/latest/meta-data/Ram/security-credentials/",
)
DLF_TOKEN_ECS_ROLE_NAME = honoured("dlf.token-ecs-role-name", TEXT)
DLF_OSS_ENDPOINT = honoured("dlf.oss-endpoint", TEXT)
DLF_SIGNING_ALGORITHM = honoured("dlf.signing-algorithm", KEYWORD, choices=("default", "openapi"))

REST_OPTIONS = (
    URI,
    PREFIX,
    TOKEN,
    TOKEN_PROVIDER,
    DATA_TOKEN_ENABLED,
    DLF_REGION,
    DLF_TOKEN_PATH,
    DLF_ACCESS_KEY_ID,
    DLF_ACCESS_KEY_SECRET,
    DLF_SECURITY_TOKEN,
    DLF_TOKEN_LOADER,
    DLF_TOKEN_ECS_METADATA_URL,
    DLF_TOKEN_ECS_ROLE_NAME,
    DLF_OSS_ENDPOINT,
    DLF_SIGNING_ALGORITHM,
)
_IGNORED_PREFIXES = ("io-cache.", "format-table.enabled", "sync-all-properties")
"""Options of caches and engines: they change no table, and have no effect here."""
_SECRETS = (TOKEN, DLF_ACCESS_KEY_SECRET, DLF_SECURITY_TOKEN)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_OWN_HEADERS = frozenset(
    {"authorization", "connection", "content-length", "host", "transfer-encoding"}
)


def parse_rest_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a user; return them as texts, without those that are None.

    Options of the object store, which are not Paimon's, keep their types.
    """
    prefixes = (HEADER_PREFIX, *_IGNORED_PREFIXES)
    check_option_names(options, REST_OPTIONS, prefixes)
    parsed = {
        name: value if name.startswith(STORAGE_PREFIX) else format_option_value(value).strip()
        for name, value in options.items()
        if value is not None
    }
    extract_headers(parsed)
    for option in REST_OPTIONS:
        if option.choices and option.key in parsed and parsed[option.key] not in option.choices:
            raise InputError(f"option {option.key!r} must be one of {', '.join(option.choices)}")
    return parsed


def parse_server_uri(options: Mapping[str, Any]) -> str:
    """Return the URL of the server without a trailing slash; a missing scheme means http."""
    text = str(options.get(URI.key) or "").strip().rstrip("/")
    if not text:
        raise InputError("a catalog with metastore=rest needs the option 'uri'")
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        valid = valid and not parts.netloc.endswith(":")
    except ValueError:
        valid = False
    if not valid or not _HEADER_VALUE.fullmatch(url) or " " in url:
        raise InputError("option 'uri' must be a URL like https://catalog.example.com")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(
            "option 'uri' must have no user, password, query or fragment; "
            "credentials belong in 'token' or 'dlf.*'"
        )
    return url


def extract_headers(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that options add to each request; messages do not show their values."""
    headers = dict[str, str]()
    for key, value in options.items():
        if not key.startswith(HEADER_PREFIX):
            continue
        name = key.removeprefix(HEADER_PREFIX)
        if name.lower() in _OWN_HEADERS:
            raise InputError(f"option {key!r} cannot be set: the client makes this header")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(str(value)):
            raise InputError(f"option {key[:100]!r} is not a valid HTTP header")
        headers[name] = str(value)
    return headers


def find_secrets(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of options that messages must not contain."""
    secret_names = {option.key for option in _SECRETS}
    values = {
        str(value)
        for name, value in options.items()
        if name in secret_names
        or (name.startswith(HEADER_PREFIX) and name.lower() != "header.user-agent")
    }
    return tuple(values)

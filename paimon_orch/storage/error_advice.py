"""Describes errors of the packages of object stores in one sentence, with what to do."""

import re

_ADVICE = (
    (
        r"NoCredentials|DefaultCredentials|ClientAuthenticationError|credentials!!$",
        "give the credentials as storage options, or where the package looks for them",
    ),
    (
        r"PermissionError|Access ?Denied|Authori[sz]ation|Authenticat|Anonymous|Invalid Credentials",
        "check the credentials, and what they permit",
    ),
    (
        r"FileNotFoundError|NoSuchBucket|ResourceNotFound|(?:bucket|container) does not exist",
        "check that the bucket or container exists",
    ),
    (
        r"Invalid endpoint|Connect|Timeout|ServiceRe(?:quest|sponse)Error|SSLError",
        "check the address of the store, the network, and that the store runs",
    ),
    (r"Errno 16|SlowDown|TooManyRequests|ServiceUnavailable|ServerBusy", "try again later"),
)
"""Patterns of types and messages, and what to do; the first that matches."""


def describe_store_error(error: Exception) -> str:
    """Return the type of an error, the first line of its message, and what to do."""
    first, _, rest = str(error).strip().partition("\n")
    if first.endswith(":"):  # the reason follows
        first += f" {rest.splitlines()[0]}" if rest else ""
    text = f"{type(error).__name__}: {first}".removesuffix(": ")
    advice = next((do for pattern, do in _ADVICE if re.search(pattern, text)), None)
    return text if advice is None else f"{text.rstrip('.')}; {advice}"

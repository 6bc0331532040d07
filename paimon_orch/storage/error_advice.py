"""Describes errors of the packages of object stores in one sentence, with what to do."""

import re

from paimon_orch.stores import list_stores

_ADVICE = (
    (
        (
            r"PermissionError|Access ?Denied|Forbidden|Authori[sz]ation|not authori[sz]ed|Authenticat"
            "|Anonymous|Invalid Credentials"
        ),
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
"""Patterns of types and messages, and what to do; the first that matches, after those of stores."""

_REASON_FOLLOWS = re.compile(r":$|^(?:Forbidden|Bad Request): \S+$")  # the second is that of gcsfs


def describe_store_error(error: Exception) -> str:
    """Return the type of an error, the first line of its message, and what to do."""
    first, _, rest = str(error).strip().partition("\n")
    if rest and _REASON_FOLLOWS.search(first):
        first = f"{first.removesuffix(':')}: {rest.splitlines()[0]}"
    text = f"{type(error).__name__}: {first}".removesuffix(": ")
    advices = (*(advice for store in list_stores() for advice in store.advice), *_ADVICE)
    advice = next((do for pattern, do in advices if re.search(pattern, text)), None)
    return text if advice is None else f"{text.rstrip('.')}; {advice}"

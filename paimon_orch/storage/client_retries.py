"""How often the packages of object stores repeat a request that a store refuses for the moment.

An operation that a store refuses should end within about ``STORE_RETRY_SECONDS``. The library sees
only the last answer, so the packages are told to wait less: with their defaults, botocore repeats a
request for 10 seconds, gcsfs for 34 and azure-storage-blob for 83.
"""

from functools import cache
from typing import Any

_GCS_ATTEMPTS = 4
"""With waits of 1, 2 and 4 seconds, and up to one more each."""
_AZURE_WAITS = {"initial_backoff": 0, "increment_base": 1.7, "random_jitter_range": 1}
"""Three waits of 1.7, 2.9 and 4.9 seconds, and up to one more or less."""


def limit_retries(fs: Any) -> None:
    """Let the client of an opened store end within the time of an operation."""
    package = type(fs).__module__.partition(".")[0]
    if package == "s3fs":
        fs.retries = 1  # botocore retries each request; s3fs would repeat all its attempts
    elif package == "adlfs":
        # adlfs has no option for it; all clients of blobs share the policy of this one
        policy = getattr(getattr(fs.service_client, "_config", None), "retry_policy", None)
        for name, value in _AZURE_WAITS.items() if policy is not None else ():
            setattr(policy, name, value)


@cache
def find_gcs_class(cls: Any) -> Any:
    """Return the class of gcsfs that uses only the JSON API, with fewer attempts.

    Since 2026.10 the class that gcsfs registers first asks a gRPC service for the kind of a bucket,
    and waits for its answer for up to 60 seconds in each process. The answer matters only for
    directories, which this library does not use, and for zonal buckets, in which it does not write.
    """
    if cls.__module__.partition(".")[0] != "gcsfs":
        return cls
    from gcsfs.core import GCSFileSystem
    from gcsfs.retry import retry_request

    request = getattr(GCSFileSystem._request, "__wrapped__", None)  # noqa: SLF001
    if request is None:  # another release of gcsfs; it keeps its six attempts
        return GCSFileSystem
    names = {
        "_request": retry_request(retries=_GCS_ATTEMPTS)(request),
        "__module__": GCSFileSystem.__module__,
    }
    return type(GCSFileSystem.__name__, (GCSFileSystem,), names)

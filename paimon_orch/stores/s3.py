"""Amazon S3, and servers that speak its protocol."""

from typing import Any

from paimon_orch.stores._declaration import GIVE_CREDENTIALS, Store, StoreCapabilities


def build_s3(**declared: Any) -> Store:
    """Return a store that s3fs opens; a dialect of the protocol has a ``public_host``.

    Dialects are implemented from the documentation of the stores. Whether they create objects
    exclusively is tested before the first write to a bucket, as for each store.
    """
    return Store(
        package="s3fs",
        extra="s3",
        fsspec_protocol="s3",
        capabilities=StoreCapabilities(has_bulk_delete=True),
        first_trusted_version=(2025, 7),
        public_options=("addressing_style", "region_name", "signature_version", "use_ssl"),
        advice=(("NoCredentials", GIVE_CREDENTIALS),),
        **declared,
    )


STORE = build_s3(
    schemes=("s3", "s3a", "s3n"),
    shortens_ranges=True,
    option_prefixes=("fs.s3a.", "s3a.", "s3."),
    options={
        "access.key": "key",
        "secret.key": "secret",
        "session.token": "token",
        "endpoint": "endpoint_url",
        "endpoint.region": "client_kwargs.region_name",
        "region": "client_kwargs.region_name",
        "path.style.access": "config_kwargs.s3.addressing_style=path",
    },
)

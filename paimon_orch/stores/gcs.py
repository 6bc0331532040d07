"""Google Cloud Storage."""

from paimon_orch.stores._declaration import GIVE_CREDENTIALS, Store

STORE = Store(
    schemes=("gs", "gcs"),
    package="gcsfs",
    extra="gcs",
    fsspec_protocol="gs",
    first_trusted_version=(2025, 7),
    shortens_ranges=True,
    public_options=("project",),
    advice=(("DefaultCredentials|credentials!!$", GIVE_CREDENTIALS),),
)

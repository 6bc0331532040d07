"""Azure Blob Storage, and Data Lake Storage."""

from paimon_orch.stores._declaration import GIVE_CREDENTIALS, Store

STORE = Store(
    schemes=("abfs", "abfss", "az"),
    package="adlfs",
    extra="azure",
    fsspec_protocol="abfs",
    first_trusted_version=(2024, 12),
    shortens_ranges=True,
    public_options=("account_name",),
    advice=(("ClientAuthenticationError", GIVE_CREDENTIALS),),
)

"""The memory of one process, for tests."""

from paimon_orch.stores._declaration import ExclusiveCreation, Store, StoreCapabilities

STORE = Store(
    schemes=("memory",),
    package=None,
    extra=None,
    fsspec_protocol="memory",
    capabilities=StoreCapabilities(exclusive_creation=ExclusiveCreation.ONE_PROCESS),
    shortens_ranges=True,
)

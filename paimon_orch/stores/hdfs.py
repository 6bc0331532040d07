"""HDFS, and viewfs, whose mounts are directories in HDFS."""

from paimon_orch.stores._declaration import ExclusiveCreation, Store, StoreCapabilities

STORE = Store(
    schemes=("hdfs", "viewfs"),
    has_different_schemes=True,
    opener="paimon_orch.storage.hdfs:open_hdfs",
    server_reader="paimon_orch.storage.hdfs_settings:HdfsSettings.read",
    package="hdfs-native",
    extra="hdfs",
    capabilities=StoreCapabilities(
        has_directories=True,
        has_atomic_rename=True,
        exclusive_creation=ExclusiveCreation.RENAME,
    ),
)

"""The client of a Hive metastore: addresses, connections and types of columns.

It knows no tables of Paimon, so that two floors can use it: Hive catalogs, and the publication of
Iceberg metadata in a metastore, which also tables that are opened by path need.
"""

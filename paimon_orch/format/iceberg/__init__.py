"""Iceberg metadata of Paimon tables: schemas, values and files, without I/O.

See docs/format/iceberg-metadata.md.
"""

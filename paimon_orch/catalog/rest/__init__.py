"""The REST catalog of Paimon. See docs/format/catalogs.md."""

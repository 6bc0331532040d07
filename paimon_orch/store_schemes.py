"""Schemes of stores: several of them name the same store."""

_SCHEME_BY_ALIAS = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}


def normalize_scheme(scheme: str) -> str:
    """Return the first scheme of a store, in lower case."""
    lowered = scheme.lower()
    return _SCHEME_BY_ALIAS.get(lowered, lowered)

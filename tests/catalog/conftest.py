"""Fixtures of the catalogs' tests."""

from support.catalogs.fixtures import start_rest_server

__all__ = ["start_rest_server"]

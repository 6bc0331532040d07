"""Checks of ORC files before pyarrow decodes them."""

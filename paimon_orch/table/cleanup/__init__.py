"""Finds unreferenced files of a table and deletes them safely."""

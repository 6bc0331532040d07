"""Selects files and rows by btree and bitmap indexes of columns that cover many data files.

See docs/format/global-index-files.md#use-on-read.
"""

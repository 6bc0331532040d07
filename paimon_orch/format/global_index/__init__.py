"""Index files that cover many data files: btree and bitmap indexes of one column.

See docs/format/global-index-files.md.
"""

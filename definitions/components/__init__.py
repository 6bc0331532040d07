"""Components of this code location: a folder with a `defs.yaml` for each table that is looked after."""

"""Components of this code location: folders with a `defs.yaml`. There are none so far."""

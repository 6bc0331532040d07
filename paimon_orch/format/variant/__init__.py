"""Values of VARIANT columns: their bytes, their JSON text, and shredded columns."""

"""Steps that change the tables and databases of a catalog."""

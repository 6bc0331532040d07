"""Statistics of data files: collecting them, and evaluating predicates against them."""

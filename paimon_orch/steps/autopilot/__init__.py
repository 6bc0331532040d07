"""Maintenance of all tables of a catalog: one queue of actions, ranked by read cost, in budgets."""

"""What an orchestrator runs, and when: cursors, decisions, runs, partition keys, checks, errors.

The modules use no orchestrator; :mod:`paimon_orch.dagster` adapts them to Dagster.
"""

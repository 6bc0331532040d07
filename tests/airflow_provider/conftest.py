"""The folder ``inside`` is run by the pytest of the environment with Airflow."""

collect_ignore = ["inside"]

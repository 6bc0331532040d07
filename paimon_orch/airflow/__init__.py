"""Paimon tables in Airflow: a connection, a hook, triggers, sensors and operators.

Import from the modules, as from other providers:

>>> from paimon_orch.airflow.hooks import PaimonHook
>>> from paimon_orch.airflow.operators import PaimonCompactOperator
>>> from paimon_orch.airflow.sensors import PaimonSnapshotSensor
>>> from paimon_orch.airflow.triggers import PaimonTableSnapshotTrigger

The package itself imports nothing of Airflow, because each command of Airflow reads its
:mod:`~paimon_orch.airflow.provider`.
"""

from paimon_orch.optional_packages import require_package

require_package("airflow", __name__, install="paimon-orch[airflow]", package="apache-airflow")

"""What Airflow asks a provider: its connection type, and the form of its connections."""

from typing import Any

import paimon_orch

CONNECTION_TYPE = "paimon"


def get_provider_info() -> dict[str, Any]:
    """Return the metadata of this provider; the entry point ``apache_airflow_provider`` names it."""
    return {
        "package-name": "paimon-orch",
        "name": "Apache Paimon",
        "description": "Reads, writes and maintains Apache Paimon tables.",
        "versions": [paimon_orch.__version__],
        "hooks": [{"integration-name": "Apache Paimon", "python-modules": [_module("hooks")]}],
        "operators": [
            {"integration-name": "Apache Paimon", "python-modules": [_module("operators")]}
        ],
        "sensors": [{"integration-name": "Apache Paimon", "python-modules": [_module("sensors")]}],
        "triggers": [
            {"integration-name": "Apache Paimon", "python-modules": [_module("triggers")]}
        ],
        "extra-links": [f"{_module('links')}.PaimonReportLink"],
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-class-name": f"{_module('hooks')}.PaimonHook",
                "hook-name": "Apache Paimon",
                "conn-fields": build_connection_fields(),
                "ui-field-behaviour": build_form(),
            }
        ],
    }


def _module(name: str) -> str:
    return f"{__package__}.{name}"


def build_connection_fields() -> dict[str, Any]:
    """Return the fields that the form of a connection has in addition to Airflow's."""
    text = {"type": ["string", "null"]}
    return {
        "catalog": {
            "label": "Configured catalog",
            "schema": text,
            "description": "The name of a catalog that is configured on the workers.",
        },
        "metastore": {
            "label": "Metastore",
            "schema": {**text, "enum": [None, "filesystem", "rest", "hive", "jdbc"]},
            "description": "The kind of the catalog; without one, the warehouse is the catalog.",
        },
        "uri": {
            "label": "URI",
            "schema": text,
            "description": "The address of the REST server, the Hive metastore or the database.",
        },
    }


def build_form() -> dict[str, Any]:
    """Return the labels of Airflow's fields of a connection."""
    return {
        "hidden-fields": ["schema", "login", "port"],
        "relabeling": {"host": "Warehouse", "password": "Token"},
        "placeholders": {
            "host": "s3://bucket/warehouse",
            "password": "the token of a REST catalog",
            "extra": '{"storage_options": {"endpoint_url": "https://..."}, "catalog_options": {}}',
        },
    }

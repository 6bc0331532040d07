"""Returns the ids of a running session and the address of its user interface."""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote


def find_ui_links(session: SparkSession) -> dict[str, str]:
    """Return the known values of ``application_id``, ``ui`` (an address) and ``session_id``."""
    try:
        links = {"application_id": session.conf.get("spark.app.id", None)}
        if is_remote():
            links["session_id"] = getattr(session, "session_id", None)
        else:
            links["ui"] = session.sparkContext.uiWebUrl
    except (PySparkException, Py4JError, OSError):  # links are optional
        return {}
    return {name: str(value) for name, value in links.items() if value}

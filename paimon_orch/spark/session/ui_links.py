"""Where to look at what a session does: its application, its user interface, its session on a server."""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote


def find_ui_links(session: SparkSession) -> dict[str, str]:
    """Return what is known of ``application_id``, ``ui`` (an address) and ``session_id`` (on Spark Connect)."""
    try:
        found = {"application_id": session.conf.get("spark.app.id", None)}
        if is_remote():
            found["session_id"] = getattr(session, "session_id", None)
        else:
            found["ui"] = session.sparkContext.uiWebUrl
    except (PySparkException, Py4JError, OSError):  # a courtesy: the work itself was done
        return {}
    return {name: str(value) for name, value in found.items() if value}

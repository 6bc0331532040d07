"""The Spark data source ``paimon``."""

"""Work units as Spark tasks."""

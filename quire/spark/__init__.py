"""Data source of Spark for topics: batch and streaming reads, batch and streaming writes.

`format("quire")` works by itself where the package `pyspark_quire`, which comes with this one, can be imported: Spark
looks for packages of such names. Where it cannot be found (a session whose look-up happened before the path was set,
say), register it:

    import quire.spark
    quire.spark.register(spark)

Importing this package imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate", "register"]


def activate(spark: SparkSession) -> None:
    """Make `spark` the active session of the calling thread. Call it first in every thread that writes with
    `format("quire")`.

    A batch write looks for its format in the thread's active session, and a thread started from Python has none
    (DATA_SOURCE_NOT_FOUND). Reads, streams and `foreachBatch` do not need it; with Spark Connect nothing does.

    Args:
        spark: the session.
    """
    if hasattr(spark, "_jsparkSession"):
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def register(spark: SparkSession) -> None:
    """Register `format("quire")` with a session; sessions made of it by `newSession()` need it again.

    Executors import this package, so it must be installed there, or be given with `--py-files`.

    Args:
        spark: the session.

    Raises:
        MissingDependencyError: pyspark or pyarrow is missing, or too old.
    """
    from quire.spark.checks import require_packages

    require_packages()
    from pyspark_quire import DefaultSource

    spark.dataSource.register(DefaultSource)

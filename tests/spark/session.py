"""Spark sessions of the tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

# JVMs that live for a minute: the second compiler costs more than it brings. The bytecode of Spark's thousands of
# classes is not verified, which is a fifth of the processor time of such a JVM.
os.environ["SPARK_SUBMIT_OPTS"] = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def use_installed_pyspark(folder: Path) -> None:
    """Point Spark, here and in processes started from here, at a new folder with links to all of its installation but
    `python/lib/pyspark.zip`.

    Spark puts that archive first on the path of its Python workers, and Python keeps no bytecode of an archive: each
    worker would compile what it imports of pyspark, 1.4 s. Without it, they import the installed package.
    """
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    folder.mkdir()
    for each in Path(found.origin).parent.iterdir():
        if each.name != "python":
            (folder / each.name).symlink_to(each)
    os.environ["SPARK_HOME"] = str(folder)


def make_session(folder: Path, master: str = "local[2,3]") -> Any:
    """Return a session with its files in `folder`; its workers run the same Python, with this checkout."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master(master)
        .appName("quire-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.sql.streaming.pollingDelay", "100ms")
        .config("spark.python.authenticate.socketTimeout", "120s")  # on a busy machine
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}")
        .getOrCreate()
    )

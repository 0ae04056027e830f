"""Client of a Spark Connect server on the same machine: reads a topic, streams it into another, writes batches, and
prints what came of it as one line of JSON.

    python -m tests.spark.connect_run SERVICE_URL ADMIN_URL FROM TO FOLDER

The session has no JVM of its own: what it does goes to the server over gRPC.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(service_url: str, admin_url: str, source: str, to: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    import quire.spark

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.streaming.stateless.enabled", "false")
        .getOrCreate()
    )
    quire.spark.activate(spark)
    options = {"service.url": service_url, "admin.url": admin_url}
    found: dict[str, Any] = {"client": f"{type(spark).__module__}", "version": spark.version}

    def values(topic: str) -> list[str]:
        rows = spark.read.format("quire").options(**options, topic=topic).load().select("value").collect()
        return sorted(bytes(row.value).decode() for row in rows)

    found["read"] = values(source)
    stream = spark.readStream.format("quire").options(
        **options, topic=source, subscription="connect", startingOffsets="earliest", maxMessagesPerTrigger="2"
    )
    query = (
        stream.load()
        .select("__key", "value")
        .writeStream.format("quire")
        .options(**options, topic=to, exactlyOnce="true")
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["streamed"] = values(to)
    spark.createDataFrame([("written",)], "value STRING").write.format("quire").mode("append").options(
        **options, topic=to
    ).save()
    found["written"] = values(to)
    try:
        spark.read.format("quire").options(**options, topics="misspelled").load().collect()
    except Exception as error:  # of Spark Connect's client, whose classes the other environments do not have
        found["refused"] = str(error)
    spark.stop()
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

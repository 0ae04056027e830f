"""A program for spark-submit: a stream from a topic to a topic, exactly once, and where its tasks ran.

spark-submit ... cluster_job.py SERVICE_URL ADMIN_URL FROM TO CHECKPOINT TRACE WAY

WAY   once         the query once, to its end
      slow         the first attempt of one task stops for a while in the middle of its rows
      apart        the query twice; between the two, the cluster gives back the executors that are not used
"""

from __future__ import annotations

import sys
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

SLOW_S = 20.0
DEADLINE_S = 240.0


def where(_: int) -> str:
    import quire

    return f"{sys.prefix} {quire.__file__}"


def slow(value: bytes) -> bytes:
    """Return the value, late in the first attempt of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0 and bytes(value) == b"000101":
        time.sleep(SLOW_S)
    return value


def executors(spark: Any) -> list[str]:
    """Return the ids of the executors that run now."""
    found = spark.sparkContext._jsc.sc().getExecutorIds()
    return [found.apply(number) for number in range(found.size())]


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def main(service_url: str, admin_url: str, source: str, to: str, checkpoint: str, trace: str, way: str) -> None:
    spark = SparkSession.builder.appName("cluster-job").getOrCreate()
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    options = {"service.url": service_url, "admin.url": admin_url}
    if way == "once":
        places = spark.range(0, 40, 1, 40).select(udf(where, "string", useArrow=False)("id"))
        print("places", *sorted({row[0] for row in places.collect()}), sep="|")

    def run() -> None:
        held = {**options, "topic": source, "subscription": "job", "startingOffsets": "earliest"}
        frame = spark.readStream.format("quire").options(**held, maxMessagesPerTrigger="400").load()
        value = udf(slow, "binary", useArrow=False)("value").alias("value") if way == "slow" else "value"
        writer = frame.select(value, "__key").writeStream.format("quire")
        writer = writer.options(**options, topic=to, trace=trace, exactlyOnce="true")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start().awaitTermination(600)

    if way == "apart":
        wait_until(lambda: executors(spark), "no executor")
        run()
        wait_until(lambda: not executors(spark), "executors that are not used stay")
        import pulsar

        client = pulsar.Client(service_url)
        producer = client.create_producer(source)
        for number in range(1000, 1200):
            producer.send_async(b"%06d" % number, None, partition_key=f"k{number % 7}")
        producer.flush()
        client.close()
        run()
        found = spark.sparkContext._jsc.sc().statusStore().executorList(False)
        ids = {found.apply(number).id() for number in range(found.size())}
        print("executors", *sorted(ids - {"driver"}))
    else:
        run()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:8])

"""A Spark program like a user's: a batch read, two streams, a sink. Then it stops its session, prints a line, and
continues to run.

python leaks_run.py FOLDER OPTIONS TOPIC

OPTIONS: addresses and credentials, in JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.session import make_session


def main(folder: Path, given: str, topic: str) -> None:
    spark = make_session(folder)
    options = json.loads(given)
    source = {**options, "topic": topic, "startingOffsets": "earliest"}
    read = spark.read.format("quire").options(**source).load().count()
    seen: list[int] = []

    def take(frame: Any, number: int) -> None:
        seen.append(frame.count())

    def stream(name: str) -> Any:
        held = {**source, "subscription": name, "maxMessagesPerTrigger": "40"}
        writer = spark.readStream.format("quire").options(**held).load().writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(folder / name))

    stream("hold-drained").trigger(availableNow=True).start().awaitTermination(60)
    drained = sum(seen)
    query = stream("hold-stopped").start()
    query.processAllAvailable()
    frame = spark.createDataFrame([(b"one",), (b"two",)], "value binary")
    frame.write.format("quire").options(**options, topic=f"{topic}-out").mode("append").save()
    print(json.dumps({"event": "working", "read": read, "drained": drained}), flush=True)
    sys.stdin.readline()
    query.stop()
    spark.stop()
    print(json.dumps({"event": "stopped"}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])

"""A Spark program like a user's: a stream from a topic to a topic, exactly once. It runs until it is killed.

python exact_driver.py FOLDER OPTIONS FROM TO TRACE EXACTLY_ONCE

OPTIONS: addresses and credentials, in JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark.session import make_session


def main(folder: Path, given: str, source: str, to: str, trace: str, exactly_once: str) -> None:
    (folder / "spark").mkdir(exist_ok=True)
    spark = make_session(folder / "spark", "local[2,4]")
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    # (a server that is a JVM starts slowly on a busy machine)
    options = {**json.loads(given), "trace": trace, "operationTimeoutMs": "300000"}
    held = {**options, "topic": source, "subscription": f"exact-{exactly_once}", "startingOffsets": "earliest"}
    frame = spark.readStream.format("quire").options(**held, maxMessagesPerTrigger="400").load()
    writer = frame.select("value", "__key").writeStream.format("quire")
    writer = writer.options(**options, topic=to, exactlyOnce=exactly_once)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:7])

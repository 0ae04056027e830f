"""A Spark program like a user's: a stream from a topic to a topic, exactly once. It runs until it is killed.

python exact_driver.py FOLDER SERVICE_URL ADMIN_URL FROM TO TRACE EXACTLY_ONCE
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.session import make_session


def main(folder: Path, service_url: str, admin_url: str, source: str, to: str, trace: str, exactly_once: str) -> None:
    (folder / "spark").mkdir(exist_ok=True)
    spark = make_session(folder / "spark", "local[2,4]")
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    options = {"service.url": service_url, "admin.url": admin_url, "trace": trace}
    held = {**options, "topic": source, "subscription": f"exact-{exactly_once}", "startingOffsets": "earliest"}
    frame = spark.readStream.format("quire").options(**held, maxMessagesPerTrigger="400").load()
    writer = frame.select("value", "__key").writeStream.format("quire")
    writer = writer.options(**options, topic=to, exactlyOnce=exactly_once)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:8])

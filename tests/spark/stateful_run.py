"""Counts the values of a topic so far with transformWithStateInPandas, up to its end, and writes the counts to another
one, exactly once. Each run continues where the one before ended.

    python -m tests.spark.stateful_run OPTIONS FROM TO FOLDER

OPTIONS: addresses and credentials, in JSON.

It needs pandas, which .venv does not have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.spark.session import make_session

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Counting(StatefulProcessor):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
    """Number of rows of a key since the first run."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        import pandas as pd

        count = sum(len(each) for each in rows)
        if self._count.exists():
            count += self._count.get()[0]
        self._count.update((count,))
        yield pd.DataFrame({"value": [f"{key[0]}:{count}"]})

    def close(self) -> None:
        pass


def main(given: str, source: str, to: str, folder: str) -> None:
    spark = make_session(Path(folder))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORE)
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    options = json.loads(given)
    rows = spark.readStream.format("quire").options(
        **options, topic=source, subscription="counting", startingOffsets="earliest"
    )
    counts = (
        rows.load()
        .selectExpr("cast(value as string) as word")
        .groupBy("word")
        .transformWithStateInPandas(Counting(), "value STRING", "Append", "None")
    )
    query = (
        counts.writeStream.format("quire")
        .options(**options, topic=to, exactlyOnce="true", sortRows="true")
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    # Spark pickles the class by the name of its module, which workers import.
    from tests.spark.stateful_run import main as run

    run(*sys.argv[1:])

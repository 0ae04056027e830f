"""Garbage collection in the processes that Spark keeps for the next task.

PySpark's daemon collects garbage each time such a process has done something, and the collector then looks at every
object there is, most of which belong to imported modules: about 45 ms, in four processes of each micro-batch. So what
exists after the first uses is left out from then on.
"""

from __future__ import annotations

import gc
import os

_KEPT = "SPARK_REUSE_WORKER"
"""Variable that is set in processes that serve more than one task. Source: pyspark.daemon."""
_TIMES_MAX = 3
"""Uses of a process after which everything that it needs is imported: Spark imports modules behind the first."""

_times = 0


def settle() -> None:
    """Leave what exists now out of later collections. Call it at the end of what a process does for a query.

    Does nothing outside the processes that Spark keeps, and after a few calls."""
    global _times
    if _times >= _TIMES_MAX or not os.environ.get(_KEPT):
        return
    _times += 1
    # Garbage that exists would never be freed.
    gc.collect()
    gc.freeze()

"""Modules of a broker that no start waits for, loaded in a thread once it serves.

They belong to requests that most brokers never get: the first explanation, the first policy of a topic. Imported by
those they hold the event loop for 18 to 22 ms. The simulator, which has no web port, imports them when needed.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final

from quire.world.doors import Offload

LATE: Final = (
    "broker.explain.explanations",
    "broker.explain.quotas",
    "broker.explain.rates",
    "broker.topics.topic_policies.change_log",
    "broker.topics.topic_policies.event_schema",
    "broker.topics.topic_policies.writing",
    "quire.client.routing",
)


async def load_late(offload: Offload) -> None:
    """Load them off the loop, one by one: a request that needs one in the meantime waits for that one."""
    for name in LATE:
        await offload.run(partial(import_module, name), name=f"import {name}")

"""Work of operators in brokers of simulated hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from broker.errors import BrokerError
from broker.server import Broker
from quire.metadata.errors import MetadataError
from quire.wire.pulsar.names import TopicName
from simulation.machines.power import PowerCut
from simulation.machines.scheduler import HOST

JOB_S = 20.0
"""Virtual seconds that an operator waits for an answer; a broker that crashes meanwhile gives none."""
FAILURES: tuple[type[BaseException], ...] = (BrokerError, MetadataError, OSError, PowerCut)


async def operate(
    host: str,
    is_up: Callable[[], bool],
    job: Callable[[], Awaitable[None]],
    failed: Callable[[BaseException], None],
    name: str,
) -> bool:
    """Do an operator's job in a process of a host; return whether it was answered. `is_up`: whether that process
    lives, and still does: a process that is gone answers nothing."""
    answered = False

    async def run() -> None:
        nonlocal answered
        HOST.set(host)
        try:
            await job()
            answered = is_up()
        except FAILURES as error:
            failed(error)

    if not is_up():
        return False
    with trio.move_on_after(JOB_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, name=name)
    return answered


def serves(broker: Broker, topic: TopicName) -> bool:
    """Return whether a broker serves a topic, as far as it knows."""
    return broker.topics.find(topic) is not None

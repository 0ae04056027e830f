"""Statistics of publishers and consumers, and rates and times of what they use, under the original's names.

Source: Pulsar's PublisherStatsImpl, ConsumerStatsImpl, SubscriptionStatsImpl.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import trio

from broker.context import Context
from broker.dispatch.consumer import Consumer, S
from broker.dispatch.counts import Counts
from broker.measures import Rates
from broker.topics.producer import Producer
from quire.world.doors import Clock


def wall_ms(clock: Clock, at: float) -> int:
    """Return a time of the event loop in ms since 1970; 0 for 0.0, which stands for "never"."""
    return 0 if not at else clock.wall_ms() - round((trio.current_time() - at) * 1000)


def publisher(context: Context, producer: Producer, *, is_exclusive: bool) -> dict[str, Any]:
    """Return the statistics of a producer."""
    rates, connection = context.measures.of(producer), producer.connection
    return {
        "accessMode": "Exclusive" if is_exclusive else "Shared",
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "address": f"/{connection.stream.peer}",
        "connectedSince": _since(context, producer.since),
        "clientVersion": connection.client_version,
        "metadata": dict(producer.properties),
        **incoming(rates),
        "chunkedMessageRate": rates.chunks_in,
    }


def consumer(context: Context, each: Consumer[S], permits: int, unacked: int) -> dict[str, Any]:
    """Return the statistics of a consumer, which has so many permits and unacknowledged messages."""
    return {
        "consumerName": each.name,
        "address": f"/{each.connection.stream.peer}",
        "connectedSince": _since(context, each.since),
        "clientVersion": each.connection.client_version,
        "msgOutCounter": each.messages_out,
        "bytesOutCounter": each.bytes_out,
        "availablePermits": permits,
        "unackedMessages": unacked,
        "blockedConsumerOnUnackedMsgs": each.blocked,
        "metadata": dict(each.properties),
        **({"appId": each.role} if each.role else {}),
        **outgoing(context.measures.of(each)),
        **times(context.world.clock, each),
    }


def incoming(rates: Rates) -> dict[str, float]:
    """Return the rates of what is published."""
    size = rates.bytes_in / rates.messages_in if rates.messages_in else 0.0
    return {"msgRateIn": rates.messages_in, "msgThroughputIn": rates.bytes_in, "averageMsgSize": size}


def outgoing(rates: Rates) -> dict[str, float]:
    """Return the rates of what is delivered."""
    return {
        "msgRateOut": rates.messages_out,
        "msgThroughputOut": rates.bytes_out,
        "msgRateRedeliver": rates.redelivered,
        "messageAckRate": rates.acked,
    }


def times(clock: Clock, used: Counts | Consumer[S]) -> dict[str, int]:
    """Return when a subscription or consumer was last used, in ms since 1970; 0: never."""
    return {
        "lastConsumedFlowTimestamp": wall_ms(clock, used.flowed_at),
        "lastConsumedTimestamp": wall_ms(clock, used.consumed_at),
        "lastAckedTimestamp": wall_ms(clock, used.acked_at),
    }


def _since(context: Context, at: float) -> str:
    """Return a time of the event loop as a text in UTC."""
    moment = datetime.fromtimestamp(wall_ms(context.world.clock, at) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

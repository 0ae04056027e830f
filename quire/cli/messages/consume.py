"""`quire consume` and `quire read`: messages of a topic, with a subscription or without."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from quire.cli.messages.access import INTERRUPTED, ClusterAccess, FlagsError, full_name, guarded
from quire.cli.messages.feed import Feed
from quire.cli.messages.flags import argument, flag
from quire.cli.messages.receiving import Pattern, ReceiveFlags, TopicReceiving
from quire.cli.messages.stopping import run_async, stoppable
from quire.cli.perf.topics import parts_of
from quire.client.client import Client, ConsumerOptions, MessageId, open_client
from quire.client.consumer import TYPES
from quire.world.real import real_world

_CODES = """Exit codes: 0 done, also if the reader of the output has gone, 1 the cluster refuses or does not answer,
2 flags cannot be used, 130 interrupted."""
CONSUME_TEXT = f"""Receive messages of a subscription, write them, and acknowledge what was written.

{_CODES}
"""
READ_TEXT = f"""Read messages of a topic from a position on, without a subscription.

{_CODES}
"""
POSITIONS = {"Latest": False, "Earliest": True}
MODES = {"Durable": True, "NonDurable": False}


@dataclass(frozen=True, kw_only=True)
class ConsumeFlags(ReceiveFlags, ClusterAccess):
    """Flags of `quire consume`."""

    topic: str = argument("Topic, or with --regex the pattern of topics.", name="TOPIC")
    subscription_name: str = flag("", "--subscription-name", "-s", help="Name of the subscription (required).")
    subscription_type: str = flag("Exclusive", "--subscription-type", "-t", help=f"One of {', '.join(TYPES)}.")
    subscription_mode: str = flag("Durable", "--subscription-mode", "-m", help="Durable or NonDurable.")
    subscription_position: str = flag(
        "Latest", "--subscription-position", "-p", help="Start of a new subscription: Latest or Earliest."
    )
    ack: bool = flag(True, "--ack/--no-ack", help="Acknowledge what was written.")
    regex: bool = flag(False, "--regex", help="TOPIC is a regular expression; new topics are found every 30 s.")


@dataclass(frozen=True, kw_only=True)
class ReadFlags(ReceiveFlags, ClusterAccess):
    """Flags of `quire read`."""

    topic: str = argument("Topic, such as orders or persistent://public/default/orders.", name="TOPIC")
    start_message_id: str = flag(
        "latest", "--start-message-id", "-m", help="latest, earliest, LEDGER:ENTRY or LEDGER:ENTRY:BATCH."
    )
    inclusive: bool = flag(False, "--start-message-id-inclusive", "-i", help="Read the message at the start too.")
    read_compacted: bool = flag(False, "--readCompacted", "-rc", help="Read the last message of each key only.")


def choose(found: dict[str, bool], text: str, name: str) -> bool:
    """Return the value of a word, in any case. Raises FlagsError."""
    for word, value in found.items():
        if word.lower() == text.lower():
            return value
    raise FlagsError(f"{name} {text} is none of {', '.join(found)}")


def type_of(text: str) -> str:
    """Return a subscription type, written in any case. Raises FlagsError."""
    for word in TYPES:
        if word.lower() == text.lower():
            return word
    raise FlagsError(f"--subscription-type {text} is none of {', '.join(TYPES)}")


def run_consume(flags: ConsumeFlags) -> int:
    """Run `quire consume`, and return its exit code."""
    return guarded("consume", lambda: run_async(partial(_consume, flags)))


def run_read(flags: ReadFlags) -> int:
    """Run `quire read`, and return its exit code."""
    return guarded("read", lambda: run_async(partial(_read, flags)))


async def _consume(flags: ConsumeFlags) -> int:
    if not flags.subscription_name:
        raise FlagsError("give the name of the subscription: --subscription-name NAME")
    pattern = Pattern(flags.topic) if flags.regex else None
    topic = "" if pattern else full_name(flags.topic)
    options = ConsumerOptions(
        type=type_of(flags.subscription_type),
        durable=choose(MODES, flags.subscription_mode, "--subscription-mode"),
        earliest=choose(POSITIONS, flags.subscription_position, "--subscription-position"),
        window=max(flags.queue_size, 1),
    )

    async def work(client: Client) -> tuple[TopicReceiving, list[str]]:
        async def open_feed(name: str) -> Feed:
            return Feed(name, await client.consumer(name, flags.subscription_name, options))

        receiving = TopicReceiving(flags, open_feed, acknowledge=flags.ack)
        topics = await (pattern.topics(client) if pattern else parts_of(client, topic, create=True))
        return receiving, topics

    return await _run(flags, work, "consumed", pattern)


async def _read(flags: ReadFlags) -> int:
    topic = full_name(flags.topic)
    start, first = start_of(flags.start_message_id, inclusive=flags.inclusive)

    async def work(client: Client) -> tuple[TopicReceiving, list[str]]:
        async def open_feed(name: str) -> Feed:
            window = max(flags.queue_size, 1)
            reader = await client.reader(name, start, window=window, compacted=flags.read_compacted)
            return Feed(name, reader, first=MessageId.LATEST if start == MessageId.LATEST and flags.end else first)

        topics = await parts_of(client, topic, create=False)
        if len(topics) > 1 and start not in (MessageId.EARLIEST, MessageId.LATEST):
            raise FlagsError(f"{topic} has {len(topics)} partitions: name the one to which the start belongs")
        return TopicReceiving(flags, open_feed, acknowledge=False), topics

    return await _run(flags, work, "read", None)


def start_of(text: str, *, inclusive: bool) -> tuple[MessageId, MessageId | None]:
    """Return where a reader starts, and the first message that is wanted; None: all are. Raises FlagsError."""
    if text == "earliest":
        return MessageId.EARLIEST, None
    if text == "latest":
        return MessageId.LATEST, None
    try:
        found = MessageId.parse(text)
    except ValueError as error:
        raise FlagsError(str(error)) from None
    start = MessageId(found.ledger_id, max(found.entry_id, 0))
    if inclusive:
        return start, found
    if found.batch_index >= 0:
        return start, found._replace(batch_index=found.batch_index + 1)
    return start, MessageId(found.ledger_id, found.entry_id + 1)


async def _run(
    flags: ConsumeFlags | ReadFlags,
    work: Callable[[Client], Awaitable[tuple[TopicReceiving, list[str]]]],
    verb: str,
    pattern: Pattern | None,
) -> int:
    receiving: TopicReceiving | None = None
    try:
        async with stoppable() as stop, open_client(real_world(), flags.brokers(), flags.client_options()) as client:
            receiving, topics = await work(client)
            try:
                with stop.scope:
                    await receiving.run(client, topics, pattern)
            finally:
                await receiving.close()
            return INTERRUPTED if stop.interrupted else 0
    finally:
        print(f"{receiving.count if receiving else 0} messages successfully {verb}", file=sys.stderr)

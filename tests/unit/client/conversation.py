"""A client and the fake broker it talks to, in text: what the client asks, what the broker does, and what is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from quire.client.client import Client
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.client.packing import Packed, pack
from quire.client.producer import Producer
from quire.client.reader import Reader
from quire.client.subscription import Subscription
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue
from tests.support.pulsar_frames import entry
from tests.support.waiting import until
from tests.unit.client.fake_broker import HOST, LEDGER, TOPIC, URL, B, FakeBroker, Session, story

TEXTS = ("url",)
"""Options of a client that are text; the others are numbers."""


def place(text: str) -> MessageId:
    """Return the id of `earliest`, `latest`, or an entry."""
    marks = {"earliest": MessageId.EARLIEST, "latest": MessageId.LATEST}
    return marks[text] if text in marks else MessageId(LEDGER, int(text))


def packed(count: int, *, size: int = 20, first: int = 0) -> list[Packed]:
    """Return numbered entries of one message each."""
    values = [b"%d/" % number + bytes(size) for number in range(first, first + count)]
    return pack(values, [None] * count, None, None, batch=False)


def runs(numbers: Sequence[int]) -> str:
    """Return numbers with runs as `0..4`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] + 1 == number:
            found[-1].append(number)
        else:
            found.append([number])
    return " ".join(f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in found) or "none"


class Conversation:
    """Steps of a dialogue. A step that is refused shows its error, and the virtual seconds that it took if any."""

    def __init__(self, client: Client, broker: FakeBroker) -> None:
        self.client = client
        self.broker = broker
        self.subscriptions: dict[str, Subscription] = {}
        self.reader: Reader
        self.producer: Producer
        self.closing: Subscription | Producer | Reader
        self.sent = 0

    async def answer(self, step: Line) -> str:
        began = trio.current_time()
        try:
            for part in (self.of_client, self.of_attachment, self.of_broker):
                if (found := await part(step)) is not None:
                    return found
        except (ClientError, ValueError) as error:
            return f"{type(error).__name__}: {error}{late(began)}".replace(TOPIC, "t")
        raise step.unknown()

    async def of_client(self, step: Line) -> str | None:
        match step.name:
            case "partitions":
                create = len(step.words) > 1
                found = await self.client.partitions(step.word(), create=create)
                return str(found) + (f", {step.word()}d" if create else "")
            case "partitions-of-nothing":
                return str(await self.client.partitions(""))
            case "topics":
                return " ".join(await self.client.topics(step.word()))
            case "reader":
                word = step.word()
                window = step.option_number("window", 1000)
                self.reader = self.closing = await self.client.reader(TOPIC, place(word), window=window)
                return ""
            case "producer":
                self.producer = self.closing = await self.client.producer(TOPIC, name=step.option("name", ""))
                return self.producer.name
            case "subscribe":
                name = step.word()
                self.subscriptions[name] = self.closing = await self.client.subscription(
                    TOPIC,
                    name,
                    start=place(step.option("start", "earliest")),
                    create_topic=step.option("create", "yes") == "yes",
                )
                return ""
        return None

    async def of_attachment(self, step: Line) -> str | None:
        """Use the producer, the reader, or a subscription by its name."""
        match step.name:
            case "send":
                count, size = step.number(), step.option_number("size", 20)
                await self.producer.send(packed(count, size=size, first=self.sent))
                self.sent += count
                return ""
            case "flush":
                await self.producer.flush()
                assert self.producer.pending == 0
                return "" if self.producer.last_ids == MessageId.EARLIEST else f"through {self.producer.last_ids}"
            case "take":
                return await self.take(step.number())
            case "last":
                return str(await (self.reader if not step.words else self.subscriptions[step.word()]).last_message_id())
            case "mark-delete":
                return str(await self.subscriptions[step.word()].mark_delete())
            case "ack":
                await self.subscriptions[step.word()].acknowledge(MessageId(LEDGER, step.number()))
                return ""
            case "seek":
                await self.subscriptions[step.word()].seek(MessageId(LEDGER, step.number()))
                return ""
            case "unsubscribe":
                await self.subscriptions[step.word()].unsubscribe()
                return ""
            case "close":
                began = trio.current_time()
                await self.closing.close()
                return late(began).removeprefix(", ")
        return None

    async def take(self, count: int) -> str:
        """Take so many entries of the reader; no more may come. Return their ids."""
        found: list[int] = []
        while len(found) < count:
            got = await self.reader.receive()
            assert len(got) > 0
            assert set(got.ledger_ids) == {LEDGER}
            assert got.entries == [self.broker.entries[number] for number in got.entry_ids]
            found += got.entry_ids
        assert len(found) == count
        return runs(found)

    async def of_broker(self, step: Line) -> str | None:
        broker = self.broker
        match step.name:
            case "entries":
                first, size = len(broker.entries), step.option_number("size", 20)
                new = range(first, first + step.number())
                broker.append(*(entry(b"%d" % number + bytes(size), sequence_id=number) for number in new))
            case "drop":
                broker.drop()
            case "reset":
                broker.universe.network.reset("client", HOST)
                await trio.sleep(1)
            case "deaf":
                broker.deaf = True
            case "silent":
                broker.silent = {B.Type.Value(kind) for kind in step.words}
                step.words = []
            case "refuse":
                kind, code, text = B.Type.Value(step.word()), step.word(), step.word()
                times = step.option_number("times", 1)
                broker.refuse[kind] = [(pb.ServerError.Value(code), text)] * times
            case "refusals-left":
                return str(sum(map(len, broker.refuse.values())))
            case "lookups":
                broker.on[B.LOOKUP] = lookups(step.word(), step.option("url", URL))
            case "lose":
                broker.on[kind] = lose(broker, kind := B.Type.Value(step.word()))
            case "close-consumer":
                broker.sessions[0].close_consumer(broker.consumers[0])
            case "close-producer":
                broker.sessions[0].producers.clear()
                answer = B(type=B.CLOSE_PRODUCER)
                answer.close_producer.producer_id = broker.of(B.PRODUCER)[0].producer.producer_id
                answer.close_producer.request_id = (1 << 64) - 1
                broker.sessions[0].send(answer)
            case "message-size-max":
                broker.message_size_max = step.number()
            case "garbage":
                broker.sessions[0]._unsent += b"\xff" * 100
                broker.sessions[0]._some.set()
            case "says":
                broker.sessions[0].send(says(step.word()))
            case "sleep":
                await trio.sleep(step.number())
            case "until":
                kind, count = B.Type.Value(step.word()), step.number()
                await until(lambda: len(broker.of(kind)) == count)
            case _:
                return self.seen(step)
        return ""

    def seen(self, step: Line) -> str | None:
        """Return what the broker has received and stored."""
        broker = self.broker
        match step.name:
            case "got":
                kinds, step.words = step.words, []
                return " ".join(str(len(broker.of(B.Type.Value(kind)))) for kind in kinds)
            case "field":
                kind, part, name = B.Type.Value(step.word()), step.word(), step.word()
                return " ".join(
                    str(getattr(getattr(each, part), name)).replace(TOPIC, "t") or "-" for each in broker.of(kind)
                )
            case "connections":
                return str(broker.connections)
            case "consumers":
                return str(len(broker.consumers))
            case "marks":
                return " ".join(f"{name}={mark}" for name, mark in broker.mark_delete.items()) or "none"
            case "published":
                names = sorted({name for name, _ in broker.published})
                return f"{' '.join(names)} {runs([number for _, number in broker.published])}"
        return None


def late(began: float) -> str:
    """Return the virtual seconds since then, if there are any."""
    took = trio.current_time() - began
    return f", after {took:.1f} s" if took >= 0.5 else ""


def lookups(kind: str, url: str) -> Any:
    """Return a handler that answers look-ups: `redirect` until the client is authoritative, `redirect-always`, or
    `proxy`."""

    def handle(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        if kind == "redirect" and command.lookupTopic.authoritative:
            return False
        answer = B(type=B.LOOKUP_RESPONSE)
        response = answer.lookupTopicResponse
        response.request_id = command.lookupTopic.request_id
        response.response = (
            pb.CommandLookupTopicResponse.Connect if kind == "proxy" else pb.CommandLookupTopicResponse.Redirect
        )
        response.brokerServiceUrl = url
        response.authoritative = kind == "redirect"
        response.proxy_through_service_url = kind == "proxy"
        session.send(answer)
        return True

    return handle


def lose(broker: FakeBroker, kind: int) -> Any:
    """Return a handler that breaks the connections at the first request."""

    def handle(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        del broker.on[kind]
        broker.drop()
        return True

    return handle


def says(what: str) -> pb.BaseCommand:
    """Return a command that the client did not ask for."""
    match what:
        case "ping":
            return B(type=B.PING, ping=pb.CommandPing())
        case "success":
            return B(type=B.SUCCESS, success=pb.CommandSuccess(request_id=99))
        case "error":
            return B(type=B.ERROR, error=pb.CommandError(request_id=98, error=pb.UnknownError, message="late"))
        case "end-of-topic":
            return B(type=B.REACHED_END_OF_TOPIC, reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=5))
    assert what == "close-consumer"
    return B(type=B.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=9, request_id=1))


@asynccontextmanager
async def conversation(dialogue: Dialogue) -> AsyncIterator[Conversation]:
    """Yield the conversation of `client option=value`, whose options are those of the client."""
    given, dialogue.command.options = dialogue.command.options, {}
    options: dict[str, Any] = {
        name.replace("-", "_"): value if name in TEXTS else float(value) if "." in value else int(value)
        for name, value in given.items()
    }
    seed = options.pop("seed", 1)
    async with story(seed=seed, **options) as (client, broker):
        yield Conversation(client, broker)

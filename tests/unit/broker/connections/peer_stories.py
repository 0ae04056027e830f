"""Stories of clients and a whole broker as text, in testdata/*.txt.

    story test_a_producer_that_fences_ends_the_others
    broker {"deduplication":true}
    a produces name=first mode=Exclusive -> ok epoch=0
    a sends 0 1
    b produces mode=ExclusiveWithFencing -> ok epoch=1
    a receipts -> 0 1
    a told CLOSE_PRODUCER

A step begins with the name of a client, which is connected when it is named first, or with a verb of the broker. The
verbs are the methods `client_VERB` and `step_VERB` of `PeerPlayer`. All clients answer PINGs while one of them waits.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from managed_ledger.ledger_list import decode
from managed_ledger.stored_list import log_path
from quire.ledger.errors import LedgerWriteError
from quire.ledger.position import Position
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.datadriven import Line
from tests.support.nodes import node_at
from tests.support.pulsar_frames import SUB, U64_MAX, C, entry
from tests.support.stories.text import Step, Story, StoryError
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

NAMESPACE = "/admin/policies/public/default"
OWN = "/admin/topic-policies/local/public/default/persistent/orders"
SETTINGS: dict[str, dict[str, Any]] = {"dedup": {"deduplication": True, "deduplication_entries_interval": 5}}
SCHEMAS = {
    "TEXT": pb.Schema(name="s", schema_data=b"", type=pb.Schema.String),
    "ANY": pb.Schema(name="", schema_data=b"", type=pb.Schema.AutoConsume),
    "NOTHING": pb.Schema(name="", schema_data=b"", type="None"),
    **{
        name: pb.Schema(name="R", schema_data=data, type=pb.Schema.Avro)
        for name, data in (
            ("FIRST", b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'),
            ("SECOND", b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
                       b'{"name":"b","type":"int","default":0}]}'),
            ("OTHER", b'{"type":"record","name":"R","fields":[{"name":"z","type":"string"}]}'),
            ("WRONG", b"no schema"),
        )
    },
}  # fmt: skip


class PeerPlayer:
    """Plays the steps of one story."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.peers: dict[str, Peer] = {}
        self.expected = ""
        self.why = ""
        """Text of the last error."""

    @property
    def topic(self) -> Any:
        [topic] = self.room.broker.topics.loaded()
        return topic

    async def play(self, step: Step) -> None:
        line = step.line
        self.expected = step.text.partition(" -> ")[2]
        verb = getattr(self, f"step_{line.name.replace('-', '_')}", None)
        if verb is not None:
            answer = await verb(line)
        else:
            if line.name not in self.peers:
                self.peers[line.name] = await self.room.connect()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer_pings, line.name)
                act = getattr(self, f"client_{line.word().replace('-', '_')}")
                answer = await act(self.peers[line.name], line)
                nursery.cancel_scope.cancel()
        line.check_used()
        assert (answer or "") == self.expected, f"the answer is {answer}"

    async def _answer_pings(self, but: str) -> None:
        while True:
            for name, peer in self.peers.items():
                if name != but and not peer.stream.closed:
                    peer.take()
            await trio.sleep(0.25)

    # Clients

    def _producer(self, line: Line) -> dict[str, Any]:
        options: dict[str, Any] = {"producer_id": line.option_number("id", 1)}
        options["topic"] = line.word() if line.words else TOPIC
        for key, name in (("name", "producer_name"), ("subscription", "initial_subscription_name")):
            if key in line.options:
                options[name] = line.option(key)
        for key in ("epoch", "topic_epoch"):
            if key in line.options:
                options[key] = line.option_number(key)
        if "mode" in line.options:
            options["producer_access_mode"] = pb.ProducerAccessMode.Value(line.option("mode"))
        if "schema" in line.options:
            options["schema"] = SCHEMAS[line.option("schema")]
        return options

    async def client_asks_to_produce(self, peer: Peer, line: Line) -> None:
        peer.ask_producer(**self._producer(line))

    async def client_produces(self, peer: Peer, line: Line) -> str:
        await self.client_asks_to_produce(peer, line)
        return await self.client_answer(peer, line)

    async def client_answer(self, peer: Peer, line: Line) -> str:
        """Return what a client is told of a producer or consumer it has asked for."""
        command, _ = await peer.receive()
        if command.type == C.ERROR:
            self.why = command.error.message
            return pb.ServerError.Name(command.error.error)
        if command.type == C.SUCCESS:
            return "ok"
        assert command.type == C.PRODUCER_SUCCESS, command
        found = command.producer_success
        said = ["ok" if found.producer_ready else "waiting"]
        said += [f"epoch={found.topic_epoch}"] if found.HasField("topic_epoch") else []
        said += [f"last={found.last_sequence_id}"] if found.last_sequence_id != -1 else []
        said += [f"version={int.from_bytes(found.schema_version, 'big')}"] if found.schema_version else []
        return " ".join(said)

    async def client_because(self, peer: Peer, line: Line) -> None:
        """Compare a part of the text of the last error."""
        assert line.word() in self.why, self.why

    async def client_sends(self, peer: Peer, line: Line) -> None:
        """Send messages: `5`, a batch `0..9`, one without its highest id `10*2`, a part `0.1` of three of message 0."""
        producer_id, name, text = line.option_number("id", 1), line.option("name", "p"), line.option("text", "m")
        while line.words:
            item = line.word()
            first, dots, last = item.partition("..")
            first, star, count = first.partition("*")
            first, dot, part = first.partition(".")
            sequence_id = int(first)
            messages = int(last) - sequence_id + 1 if dots else int(count or 1)
            body = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=messages)
            fields: dict[str, Any] = {"producer_name": name, "sequence_id": sequence_id}
            if dots or star:
                fields["num_messages_in_batch"] = messages
            if dots:
                body.highest_sequence_id = fields["highest_sequence_id"] = int(last)
            if dot:
                body.is_chunk = True
                fields |= {"uuid": f"u{sequence_id}", "chunk_id": int(part), "num_chunks_from_msg": 3}
            peer.send(C(type=C.SEND, send=body), entry(f"{text}{first}{dot}{part}".encode(), **fields))

    async def client_receipts(self, peer: Peer, line: Line) -> str:
        """Return as many answers of sends as are expected: `5` was stored, `5=` was a duplicate."""
        found = []
        for _ in self.expected.split():
            receipt = (await peer.expect(C.SEND_RECEIPT)).send_receipt
            is_duplicate = receipt.message_id.ledgerId == receipt.message_id.entryId == U64_MAX
            found.append(f"{receipt.sequence_id}{'=' if is_duplicate else ''}")
        return " ".join(found)

    async def client_publishes(self, peer: Peer, line: Line) -> None:
        """Publish messages, and wait for their receipts."""
        await peer.publish(
            *[line.word().encode() for _ in range(len(line.words))], first=line.option_number("first", 0)
        )

    async def client_subscribes(self, peer: Peer, line: Line) -> str:
        options: dict[str, Any] = {"name": line.option("name", "s"), "consumer_id": line.option_number("id", 1)}
        options["topic"] = line.word() if line.words else TOPIC
        if "schema" in line.options:
            options["schema"] = SCHEMAS[line.option("schema")]
        peer.ask_subscribe(**options)
        return await self.client_answer(peer, line)

    async def client_told(self, peer: Peer, line: Line) -> None:
        """Wait for commands of these kinds, in any order."""
        wanted = sorted(line.word() for _ in range(len(line.words)))
        assert sorted([C.Type.Name((await peer.receive())[0].type) for _ in wanted]) == wanted

    async def client_send_error(self, peer: Peer, line: Line) -> str:
        return str((await peer.expect(C.SEND_ERROR)).send_error.sequence_id)

    async def client_silent(self, peer: Peer, line: Line) -> None:
        await peer.silent(float(line.word()))

    async def client_ends(self, peer: Peer, line: Line) -> None:
        """Close a producer."""
        await peer.end_producer(line.option_number("id", 1))

    async def client_closes(self, peer: Peer, line: Line) -> None:
        """Ask to close a producer."""
        peer.close_producer()

    async def client_leaves(self, peer: Peer, line: Line) -> None:
        await peer.closed_by_us()

    async def client_dies(self, peer: Peer, line: Line) -> None:
        """Answer no PINGs any more."""
        peer.dead = True

    async def client_is_dropped(self, peer: Peer, line: Line) -> None:
        assert peer.stream.closed

    async def client_schema(self, peer: Peer, line: Line) -> str:
        """Return the version and the name of a schema."""
        body = pb.CommandGetSchema(request_id=peer.next_id(), topic=line.word() if line.words else TOPIC)
        if "version" in line.options:
            body.schema_version = bytes.fromhex(line.option("version").removeprefix("x"))
        peer.send(C(type=C.GET_SCHEMA, getSchema=body))
        found = (await peer.expect(C.GET_SCHEMA_RESPONSE)).getSchemaResponse
        assert found.request_id == body.request_id
        if found.HasField("error_code"):
            return pb.ServerError.Name(found.error_code)
        assert (found.schema.type, found.schema.name) == (pb.Schema.Avro, "public/default/orders"), found
        [name] = [name for name, each in SCHEMAS.items() if each.schema_data == found.schema.schema_data]
        return f"{int.from_bytes(found.schema_version, 'big')} {name}"

    async def client_adds_schema(self, peer: Peer, line: Line) -> str:
        """Return the version that a schema has or gets."""
        body = pb.CommandGetOrCreateSchema(request_id=peer.next_id(), topic=TOPIC, schema=SCHEMAS[line.word()])
        peer.send(C(type=C.GET_OR_CREATE_SCHEMA, getOrCreateSchema=body))
        found = (await peer.expect(C.GET_OR_CREATE_SCHEMA_RESPONSE)).getOrCreateSchemaResponse
        assert found.request_id == body.request_id
        if found.HasField("error_code"):
            return pb.ServerError.Name(found.error_code)
        return str(int.from_bytes(found.schema_version, "big")) if found.schema_version else "none"

    # The broker

    async def step_stored(self, line: Line) -> str:
        """Return the payloads that the topic has."""
        peer = await self.room.connect()
        await peer.subscribe(name="look", durable=False, initialPosition=SUB.Earliest, permits=100)
        found = [payload.decode() for payload in await peer.payloads(self.topic.ledger.entry_count)]
        await peer.closed_by_us()
        return " ".join(found)

    async def step_reload(self, line: Line) -> None:
        """Drop the topic as at a crash: nothing is stored; the next use opens it."""
        topic = self.topic
        topic.abandon()
        self.room.broker.topics.close_soon(topic)
        del self.room.broker.topics._loaded[TOPIC]

    async def step_unload(self, line: Line) -> None:
        self.room.broker.topics.close_soon(self.topic)
        await until(lambda: not self.room.broker.topics.loaded())

    async def step_delete(self, line: Line) -> None:
        await self.room.broker.topics.delete(TopicName.parse(TOPIC), force=True)

    async def step_snapshot(self, line: Line) -> None:
        """Wait until fewer entries than `below=` follow the durable snapshot; `exact` is one of all that is before."""
        ledger, below = self.topic.ledger, line.option_number("below", 5)
        cursor = ledger.cursors[DEDUPLICATION_CURSOR]
        await until(lambda: ledger.count_between(cursor.durable_mark_delete, ledger.last_confirmed) < below)
        assert not cursor.active
        if line.words and line.word() == "exact":
            # A resend after a crash is judged by it and by what follows.
            assert cursor.properties["p"] == ledger.count_between(Position(-1, -1), cursor.mark_delete) - 1

    async def step_hold(self, line: Line) -> None:
        """Let no append be confirmed."""
        for writer in self.room.cluster.ledgers.writers.values():
            writer.held = True

    async def step_release(self, line: Line) -> None:
        self.room.cluster.ledgers.release()

    async def step_under_way(self, line: Line) -> None:
        """Wait until the log has a send that is not durable."""
        await until(lambda: self.topic.ledger.pending_bytes)

    async def step_bookies(self, line: Line) -> None:
        """Let the ledger fail and no other be made, `away`, or be made again, `back`. Bookies have `stored=`."""
        ledgers, stored = self.room.cluster.ledgers, line.option_number("stored", -1)
        if line.word() == "back":
            ledgers.failures.clear()
            return
        ledgers.failures["create"] = [LedgerWriteError("away")] * 1000
        for writer in ledgers.writers.values():
            if writer.stored.entries:
                writer.store(stored)
            writer.fail(LedgerWriteError("broken"))

    async def step_policies(self, line: Line) -> None:
        """Store the policies of the `namespace` or of the `topic`; delete those of the topic if there are none."""
        path, value = {"namespace": NAMESPACE, "topic": OWN}[line.word()], line.word().encode()
        store = self.room.cluster.stores[0]
        if value == b"none":
            await store.delete(path)
        elif await store.get(path) is None:
            await store.create(path, value, make_parents=True)
        else:
            await store.put(path, value, ANY_VERSION)

    async def step_namespace_has(self, line: Line) -> None:
        """Wait until a policy of the namespace is known to the broker."""
        key = line.word()
        held = await self.room.broker.policies.load(TopicName.parse(TOPIC))
        await until(lambda: held.of_namespace is not None and key in held.of_namespace)

    async def step_epoch(self, line: Line) -> str:
        """Return the stored epoch of the topic."""
        node = await node_at(self.room.cluster.stores[0], log_path(TopicName.parse(TOPIC).managed_ledger_path))
        return str(dict(decode(node.value).properties).get("pulsar.topic.epoch"))

    async def step_state(self, line: Line) -> str:
        """Return a number or a list of the topic."""
        what, topic = line.word(), self.topic
        cursor = topic.ledger.cursors.get(DEDUPLICATION_CURSOR)
        state = {
            "entries": lambda: topic.entries_in,
            "waiting": lambda: len(topic.access.waiting),
            "producers": lambda: len(topic.producers),
            "subscriptions": lambda: " ".join(topic.subscriptions) or "none",
            "cursors": lambda: " ".join(topic.ledger.cursors) or "none",
            "ledgers": lambda: len({info.ledger_id for info in topic.ledger.ledgers}),
            "deduplication": lambda: "off" if topic.deduplication is None else "on",
            "persisted": lambda: shown(topic.deduplication.sequences.persisted),
            "snapshot": lambda: shown(cursor.properties),
        }
        return str(state[what]())

    async def step_until_no_cursor(self, line: Line) -> None:
        await until(lambda: DEDUPLICATION_CURSOR not in self.topic.ledger.cursors)


def shown(values: dict[str, int]) -> str:
    return " ".join(f"{name}:{value}" for name, value in values.items()) or "none"


@asynccontextmanager
async def broker_of(story: Story) -> AsyncIterator[tuple[PeerPlayer, list[Step]]]:
    head, *rest = story.steps
    name, _, options = head.text.partition(" ")
    is_setting = name == "broker"
    chosen = {} if not is_setting else SETTINGS[options] if options in SETTINGS else json.loads(options)
    async with in_broker(**chosen) as room:
        yield PeerPlayer(room), rest if is_setting else story.steps


async def play(story: Story) -> None:
    """Play a story; StoryError of the first step that fails."""
    async with broker_of(story) as (player, steps):
        for step in steps:
            try:
                await player.play(step)
            except Exception as error:
                raise StoryError(f"{step.where}: {step.text}: {type(error).__name__}: {error}") from error
